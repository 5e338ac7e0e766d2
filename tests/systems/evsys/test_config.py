"""EvSys' section of a run's configuration file."""

from __future__ import annotations

import pytest

from calipers.errors import InputError
from calipers.running.settings import read_config

EVSYS = {"dialect": "evsys", "max_tokens": 512, "temperature": 0.0, "concurrency": 8}


def read(tmp_path, text):
    path = tmp_path / "c.yaml"
    path.write_text(text)
    return read_config(str(path))


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("{path: a}", {"benchmark": ("a",)}),
        ("{path: a, id: b, name: c}", {"benchmark": ("a",)}),  # path takes precedence over id, and id over name
        ("{id: b, name: c}", {"benchmark": ("b",)}),
        ("{name: c, num_samples: 4}", {"benchmark": ("c",), "samples": 4}),
        ("{path: a, max_tokens: 9, temperature: 0.7}", {"benchmark": ("a",), "max_tokens": 9, "temperature": 0.7}),
        ("{path: a, n_concurrent: 2, limit: 3}", {"benchmark": ("a",), "concurrency": 2, "limit": 3}),
        (
            "{path: a, metrics: [avg], breakdown_keys: [x.y]}",
            {"benchmark": ("a",), "metrics": ("avg",), "by": ("x.y",)},
        ),
        # models are named as in litellm
        ("{path: a, model: gpt-4o}", {"benchmark": ("a",), "model": ("litellm/gpt-4o",)}),
        ("{path: a, models: [a/b, openai/c]}", {"benchmark": ("a",), "model": ("litellm/a/b", "openai/c")}),
        ("{path: a, models: []}", {"benchmark": ("a",)}),
        (
            "{path: a, chat_template: {system_prompt: s, user_template: 'Q {prompt}', enable_thinking: false}}",
            {
                "benchmark": ("a",),
                "system_prompt": "s",
                "user_template": "Q {prompt}",
                "gen_kwargs": {"chat_template_kwargs": {"enable_thinking": False}},
            },
        ),
        (
            "{path: a, inference: {kind: openai, params: {model: m, base_url: 'http://h'}}}",
            {"benchmark": ("a",), "model": ("openai/m",), "base_url": "http://h"},
        ),
    ],
)
@pytest.mark.parametrize("wrapped", ["benchmark: {}", "metadata: {{benchmark: {}}}", "benchmark: [{}]"])
def test_the_section_of_evsys(tmp_path, section, expected, wrapped):
    runs, notes = read(tmp_path, wrapped.format(section))
    assert (runs, notes) == ([{**EVSYS, **expected}], [])


def test_the_mock_answers_with_its_own_template_alone(tmp_path):
    (run,), _ = read(tmp_path, "benchmark: {path: a, inference: {kind: mock}}")
    assert run["model"] == ("python/calipers.systems.evsys.lent:MockInference",)
    with pytest.raises(InputError) as caught:
        read(tmp_path, "benchmark: {path: a, inference: {kind: mock, params: {template: A}}}")
    wrong = "benchmark.inference.params: is {'template': 'A'}, which the mock does not accept here"
    right = "remove params, or use your own client as model: python/FILE.py:OBJECT"
    assert str(caught.value).endswith(f"{wrong}; {right}")


def test_a_parameter_beside_kind_is_refused(tmp_path):
    """If it were ignored, the answers would be those of another model."""
    with pytest.raises(InputError) as caught:
        read(tmp_path, "benchmark: {path: a, inference: {kind: openai, model: m}}")
    wrong = "benchmark.inference: no key named 'model'; expected {kind: ..., params: {model: ...}}"
    assert str(caught.value).endswith(wrong)


def test_our_settings_beside_the_section_beat_it(tmp_path):
    (run,), _ = read(tmp_path, "benchmark: {path: a, num_samples: 2}\nsamples: 3\nmodel: openai/m")
    assert (run["samples"], run["model"]) == (3, ("openai/m",))


def test_what_only_training_reads_is_passed_over_and_said(tmp_path):
    _, notes = read(tmp_path, "metadata: {benchmark: {path: a, run_every: 5, split: val}}\nalgorithm: grpo")
    assert [note.partition("c.yaml: ")[2] for note in notes] == [
        "benchmark: run_every, split: only for training, ignored here",
        "algorithm: not used here",
    ]


@pytest.mark.parametrize(
    ("section", "wrong"),
    [
        ("inference: {kind: openai, params: 5}", "inference.params: is 5; expected a mapping"),
        ("inference: {kind: openai, params: model}", "inference.params: is 'model'; expected a mapping"),
        ("inference: {kind: openai, params: [[x]]}", "inference.params: is [['x']]; expected a mapping"),
        ("chat_template: {system_prompt: 5}", "chat_template.system_prompt: is 5; expected text or null"),
        ("num_samples: null", "num_samples: is None; expected an integer"),
        ("n_concurrent: null", "n_concurrent: is None; expected an integer"),
    ],
)
def test_a_value_of_another_kind(tmp_path, section, wrong):
    with pytest.raises(InputError) as caught:
        read(tmp_path, f"benchmark: {{path: a, {section}}}")
    assert str(caught.value).endswith(f"benchmark.{wrong}")
