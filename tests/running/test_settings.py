"""The configuration file of a run: its keys, and errors in it."""

from __future__ import annotations

import pytest

from calipers.clients import Price
from calipers.errors import CalipersError, InputError
from calipers.running import Job
from calipers.running.settings import OURS, jobs_of, read_config, setting, suite_file


def read(tmp_path, text):
    path = tmp_path / "c.yaml"
    path.write_text(text)
    return read_config(str(path))


@pytest.mark.parametrize("text", ['system_prompt: "\\ud800"', 'stop: [x, "\\udfff"]', 'gen_kwargs: {a: "\\ud800"}'])
def test_half_a_character_is_refused(tmp_path, text):
    with pytest.raises(InputError, match=r"c.yaml: \w+: is .*; expected (whole characters|a JSON value)"):
        read(tmp_path, text)


NUMBERS = ("samples", "timeout", "concurrency", "retries", "confidence", "seed")  # that a run needs


@pytest.mark.parametrize("name", [name for name in OURS if name not in ("benchmark", "model", *NUMBERS)])
def test_null_is_the_default(tmp_path, name):
    (tmp_path / "c.yaml").write_text(f"benchmark: a\nmodel: m/x\n{name}: null\n")
    [job], _ = jobs_of([str(tmp_path / "c.yaml")], {})
    assert getattr(job, name) == getattr(Job("a", "m/x"), name)


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_a_run_needs_is_never_null(tmp_path, name):
    with pytest.raises(InputError, match=f"{name}: is None; expected a"):
        read(tmp_path, f"{name}: null\n")


def test_a_key_that_is_no_text_is_named_beside_a_section_of_another_system(tmp_path):
    _, notes = read(tmp_path, "1: x\nmetadata: {benchmark: {path: a}}\n")
    assert notes[-1].endswith(": 1: not used here")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("benchmark: a\nmodel: m/x", [{"benchmark": ("a",), "model": ("m/x",)}]),
        ("benchmark: [a, b]\nmodel: [m/x, m/y]", [{"benchmark": ("a", "b"), "model": ("m/x", "m/y")}]),
        ("benchmark: a\nmax-tokens: 5", [{"benchmark": ("a",), "max_tokens": 5}]),  # with the option's spelling
        ("benchmark: a\ntemperature: 1", [{"benchmark": ("a",), "temperature": 1.0}]),
        ("benchmark: a\nprice: [0.1, 2]", [{"benchmark": ("a",), "price": Price(0.1, 2.0)}]),
        (
            "benchmark: a\nmetrics: [pass@1, {metric: pass@3, threshold: 0.5}]",
            [{"benchmark": ("a",), "metrics": ("pass@1", {"metric": "pass@3", "threshold": 0.5})}],
        ),
    ],
)
def test_our_own_words(tmp_path, text, expected):
    assert read(tmp_path, text) == (expected, [])


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("benchmark: a\nsamples: 1\nmodel: m/x\nsamples: 4", {4: "samples"}),
        ("benchmark:\n  path: a\n  limit: 1\n  limit: 2", {4: "limit"}),
        ("benchmark: a\ngen_kwargs: {a: {b: 1, b: 2}}", {2: "b"}),
        ("benchmark: a\ngen_kwargs: {a: {b: 1}, c: {b: 2}}", {}),  # the same key in two mappings
        ("benchmark: a\ngen_kwargs: {a: &x {b: 1, b: 1}, c: *x}", {2: "b"}),  # an alias is reported once
    ],
)
def test_a_key_that_stands_twice_is_said(tmp_path, text, lines):
    """YAML uses the last value silently, so that a typing error would not be noticed."""
    _, notes = read(tmp_path, text)
    assert [note.partition("c.yaml:")[2] for note in notes] == [
        f"{line}: {key} appears twice; the last value is used" for line, key in lines.items()
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sampels: 4", "c.yaml:1: no key named 'sampels'; did you mean 'samples'?"),
        ("samples: four", "c.yaml: samples: is 'four'; expected an integer"),
        ("samples: true", "c.yaml: samples: is True; expected an integer"),
        ("temperature: hot", "c.yaml: temperature: is 'hot'; expected a number or null"),
        ("api: chut", "c.yaml: api: is 'chut'; expected chat or completions"),
        ("index_from: 2", "c.yaml: index_from: is 2; expected 0 or 1 or null"),
        ("out: 5", "c.yaml: out: is 5; expected text"),
        ("by: [1]", "c.yaml: by: is [1]; expected text or a list of texts"),
        (
            "gen_kwargs: {since: 2020-01-01}",
            "c.yaml: gen_kwargs: is {'since': datetime.date(2020, 1, 1)}; expected a JSON value; put dates in",
        ),
        ("gen_kwargs: {top_p: .nan}", "c.yaml: gen_kwargs: is {'top_p': nan}; expected a JSON value"),
        ("price: 3", "c.yaml: price: is 3; expected IN,OUT in dollars per million tokens: 0.15,0.6"),
        ("benchmark: {num_sample: 4}", "c.yaml: benchmark: no key named 'num_sample'; did you mean 'num_samples'?"),
        ("benchmark: {num_samples: 4}", "c.yaml: benchmark: does not name a benchmark; expected path, id or name"),
        ("benchmark: [a, {path: b}, 3]", "c.yaml: benchmark[0]: is 'a'; expected a mapping with path, id or name"),
        ("benchmark: {path: a, models: [1]}", "expected a model's name or a list of them"),
        ("benchmark: {path: a, inference: {kind: vllm}}", "kind is 'vllm'; expected openai or mock"),
        ("benchmark: {path: a, chat_template: {system: s}}", "expected system_prompt, user_template, enable_thinking"),
        ("benchmark: {path: a, engine: Harbor}", "calipers run does not support it yet"),
        ("- 1", "c.yaml: is not a mapping; expected keys such as benchmark, model, samples"),
        ("a: [", "c.yaml:1: is not valid YAML"),
        ("metadata: 2024-13-45", "c.yaml: is not valid YAML (month must be in 1..12)"),
        ("samples: !!int four", "c.yaml: is not valid YAML (invalid literal for int() with base 10: 'four')"),
        ("documents: !!timestamp soon", "c.yaml: is not valid YAML ("),
        (
            "documents: 0,9-6",
            "c.yaml: documents: is '0,9-6'; expected numbers counted from 0: 0,3,6-9, below 10,000,000",
        ),
        (
            "documents: 0-999999999",
            "c.yaml: documents: is '0-999999999'; expected numbers counted from 0: 0,3,6-9, below",
        ),
        ("a: !!python/object/apply:os.getcwd []", "is not valid YAML (could not determine a constructor"),
    ],
)
def test_a_wrong_file_says_where_and_what(tmp_path, text, said):
    with pytest.raises(CalipersError) as caught:
        read(tmp_path, text)
    assert said in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(CalipersError, match="cannot be read"):
        read_config(str(tmp_path / "none.yaml"))


@pytest.mark.parametrize("value", ["1,2,3,4", " 1, 2, 3, 4", [1, 2, 3, 4], (1, 2, 3, 4)])
def test_four_seeds_however_they_are_given(value):
    assert setting("ours.yaml: load_seeds", "load_seeds", value) == (1, 2, 3, 4)
    assert setting("ours.yaml: load_seeds", "load_seeds", 7) == (7, 7, 7, 7)
    assert setting("ours.yaml: load_seeds", "load_seeds", [1, 2, 3]) == (1, 2, 3, 1234)


@pytest.mark.parametrize("value", [[1, 2], [1, 2, 3, 0.5], [True, 1, 1, 1], {"random": 1}, "None,1,1,1"])
def test_what_are_no_seeds_is_refused(value):
    with pytest.raises(
        InputError, match=r"^ours\.yaml: load_seeds: is .*; expected four integers >= 0, the seeds of random, numpy"
    ):
        setting("ours.yaml: load_seeds", "load_seeds", value)


# --- suites


def pairs(runs):
    return [(run["benchmark"][0], run["model"][0]) for run in runs]


@pytest.mark.parametrize(
    "text",
    [
        "benchmarks: [a, b]\nmodels: [m, n]",
        "benchmarks: {a: , b: {}}\nmodels: [{name: m}, {model: n}]",
        "benchmarks: [{path: a}, {benchmark: b}]\nmodels: {m: , n: }",
        "benchmark: [a, b]\nmodels: [m, n]",
        "benchmarks: [a, b]\nmodel: [m, n]",
    ],
)
def test_a_suite_is_every_benchmark_with_every_model(tmp_path, text):
    runs, notes = read(tmp_path, text)
    assert pairs(runs) == [("a", "m"), ("a", "n"), ("b", "m"), ("b", "n")]
    assert notes == []


def test_settings_of_an_entry_hold_for_it_alone_and_those_of_a_model_come_last(tmp_path):
    text = """
samples: 1
max-tokens: 9
gen_kwargs: {top_p: 0.5}
benchmarks:
  - a
  - {benchmark: b, samples: 4, gen_kwargs: {top_k: 3}}
models:
  - {model: m, base_url: "http://x", max_tokens: 5}
  - n
"""
    found, _ = read(tmp_path, text)
    runs = dict(zip(pairs(found), found, strict=True))
    assert [runs[pair]["samples"] for pair in (("a", "m"), ("b", "m"))] == [1, 4]
    assert [runs["a", model]["max_tokens"] for model in "mn"] == [5, 9]
    assert runs["a", "m"]["base_url"] == "http://x"
    assert "base_url" not in runs["a", "n"]
    assert runs["b", "n"]["gen_kwargs"] == {"top_p": 0.5, "top_k": 3}


def test_models_of_the_command_take_the_place_of_those_in_the_file(tmp_path):
    (tmp_path / "s.yaml").write_text("benchmarks: [a, b]\nmodels: [{model: m, samples: 3}, n]\n")
    jobs, _ = jobs_of([str(tmp_path / "s.yaml")], {"model": ("x",)})
    assert [(job.benchmark, job.model, job.samples) for job in jobs] == [("a", "x", 1), ("b", "x", 1)]


def test_runs_of_a_suite_stand_beside_each_other_even_when_there_is_one(tmp_path):
    (tmp_path / "s.yaml").write_text("benchmarks: [a]\nmodels: [m]\nout: here\n")
    (job,), _ = jobs_of([str(tmp_path / "s.yaml")], {})
    assert job.among


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("benchmarks: [a]\nmodels: [{model: m, out: x}]", "c.yaml:2: no key named 'out'"),
        ("benchmarks: [a]\nmodels: [{samples: 1}]", "c.yaml:2: models has {'samples': 1}; expected openai/gpt-4o-mini"),
        ("benchmarks: a\nmodels: [{model: m, samples: two}]", "c.yaml:2: samples: is 'two'; expected an integer"),
        ("benchmarks: [a]\nmodels: [m, m]", "c.yaml:2: model 'm' appears twice; expected it once"),
        ("benchmarks: \nmodels: [m]", "c.yaml:1: benchmarks has None"),
    ],
)
def test_a_wrong_suite_says_where_and_what(tmp_path, text, said):
    with pytest.raises(CalipersError) as caught:
        read(tmp_path, text)
    assert said in str(caught.value)


def test_what_is_a_suite(tmp_path):
    for name, text in (("s.yaml", "benchmarks: [a]\ngate: [x > 1]\n"), ("run.yaml", "benchmark: a\nmodel: m\n")):
        (tmp_path / name).write_text(text)
    suite = suite_file([str(tmp_path / "s.yaml")])
    assert suite is not None
    assert (suite.gate, suite.lines["gate",]) == (["x > 1"], 2)
    assert suite_file([str(tmp_path / "run.yaml")]) is None
    assert suite_file(["no.yaml", "folder"]) is None
    (tmp_path / "flow.yaml").write_text("{benchmarks: [a], models: [m]}\n")
    assert suite_file([str(tmp_path / "flow.yaml")]) is not None
    (tmp_path / "task.yaml").write_text("task: x\nprocess_results: !function utils.score\n")
    assert suite_file([str(tmp_path / "task.yaml")]) is None
    (tmp_path / "theirs.yaml").write_text("metadata: {benchmark: {path: a}}\nmodels: [x]\n")
    assert suite_file([str(tmp_path / "theirs.yaml")]) is None
