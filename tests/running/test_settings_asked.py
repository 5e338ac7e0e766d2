"""Jobs from arguments and files: the command line takes precedence over the file, the file over the default."""

from __future__ import annotations

import pytest

from calipers.errors import InputError
from calipers.running.settings import gen_kwargs, jobs_of


def test_benchmarks_and_models_make_their_product():
    jobs, _ = jobs_of(["a", "b"], {"model": ("m/x", "m/y"), "samples": 3})
    assert [(job.benchmark, job.model) for job in jobs] == [("a", "m/x"), ("a", "m/y"), ("b", "m/x"), ("b", "m/y")]
    assert {(job.samples, job.among) for job in jobs} == {(3, True)}


def test_the_command_line_beats_the_file_and_the_plan_says_so(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("benchmark: a\nmodel: m/x\nsamples: 2\nlimit: 7")
    (job,), _ = jobs_of([str(path)], {"samples": 5})
    assert (job.samples, job.limit, job.retries) == (5, 7, 8)
    settings = job.settings()
    assert settings["samples"] == {"value": 5, "from": "command line"}
    assert settings["limit"] == {"value": 7, "from": str(path)}
    assert settings["retries"] == {"value": 8, "from": "default"}


@pytest.mark.parametrize(
    ("model", "given", "in_flight"),
    [
        ("openai/m", {}, 32),
        ("openai/m", {"concurrency": 5}, 5),
        ("hf/m", {}, 2048),  # enough for any automatic batch size
        ("hf/m", {"concurrency": 5}, 5),
        ("hf/m", {"concurrency": 32}, 32),  # the default for a server, but given explicitly
        ("hf/m", {"until": "width(mean_reward) <= 0.1"}, 128),  # few enough that the run can stop early
        ("hf/m", {"until": "width(mean_reward) <= 0.1", "concurrency": 500}, 500),
    ],
)
def test_requests_in_flight(model, given, in_flight):
    (job,), _ = jobs_of(["a"], {"model": (model,), **given})
    assert job.in_flight == in_flight


@pytest.mark.parametrize(("given", "kept"), [(20.0, 20), (1.0, 1), (0.25, 0.25), (3, 3)])
def test_a_limit_is_kept_as_it_is_meant(given, kept):
    """The command line reads a float; "20.0 tasks" in a plan would be odd."""
    (job,), _ = jobs_of(["a"], {"model": ("m/x",), "limit": given})
    assert repr(job.settings()["limit"]["value"]) == repr(kept)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("top_p=0.9", {"top_p": 0.9}),
        ("a=1, b=two ,c=true,d=False", {"a": 1, "b": "two", "c": True, "d": False}),
        ("a=TRUE,b=None,c='7',d=\"7\",e='", {"a": True, "b": None, "c": "7", "d": "7", "e": "'"}),
        ('{"stop": ["x", "y"], "n": {"m": 1}}', {"stop": ["x", "y"], "n": {"m": 1}}),
    ],
)
def test_gen_kwargs(text, found):
    assert gen_kwargs(text) == found


@pytest.mark.parametrize(
    ("text", "temperature", "tokens"),
    [
        ("do_sample=false,temperature=0.8", 0.0, None),  # greedy, whatever the temperature
        ("do_sample=true,temperature=0.8,max_new_tokens=9", 0.8, 9),
    ],
)
def test_the_words_of_other_systems_are_our_settings(text, temperature, tokens):
    (job,), _ = jobs_of(["a"], {"model": ("m/x",), "gen_kwargs": text})
    assert (job.temperature, job.max_tokens, job.gen_kwargs) == (temperature, tokens, {})


@pytest.mark.parametrize(
    ("model", "text", "extra"),
    [
        ("hf/x", "do_sample=true", {"do_sample": True}),  # a local model would be greedy without it
        ("hf/x", "do_sample=true,temperature=0.8", {}),
        ("hf/x", "do_sample=false", {}),
        ("openai/x", "do_sample=true", {}),  # the temperature is the server's
    ],
)
def test_a_local_model_gets_do_sample_if_there_is_no_temperature(tmp_path, model, text, extra):
    (tmp_path / "run.yaml").write_text(f"benchmark: a\nmodel: {model}\n")
    (job,), _ = jobs_of(["a"], {"model": (model,), "gen_kwargs": text})
    (in_file,), _ = jobs_of([str(tmp_path / "run.yaml")], {"gen_kwargs": text})
    other, beside, _ = jobs_of(["a"], {"model": ("openai/y", model, "hf/z"), "gen_kwargs": text})[0]
    assert job.gen_kwargs == in_file.gen_kwargs == beside.gen_kwargs == extra
    assert other.gen_kwargs == {}


def test_do_sample_of_a_file_stays_for_a_server(tmp_path):
    (tmp_path / "run.yaml").write_text("benchmark: a\nmodel: openai/x\ngen_kwargs: {do_sample: true, n: 1}\n")
    (job,), _ = jobs_of([str(tmp_path / "run.yaml")], {"gen_kwargs": "do_sample=true,n=2"})
    assert job.gen_kwargs == {"do_sample": True, "n": 2}


@pytest.mark.parametrize("text", ["", "a", "=1", "{a}", "[1]"])
def test_gen_kwargs_that_cannot_be_read(text):
    with pytest.raises(InputError, match="--gen-kwargs"):
        gen_kwargs(text)


@pytest.mark.parametrize("text", ["temperature=hot", '{"max_gen_toks": "x"}', '{"until": [5]}', '{"stop": 5}'])
def test_gen_kwargs_of_another_type_are_refused_by_name(text):
    with pytest.raises(InputError, match=r"--gen-kwargs: \w+: is .*; expected"):
        jobs_of(["a"], {"model": ("m/x",), "gen_kwargs": text})


def test_gen_kwargs_may_say_what_an_option_says_and_the_option_wins():
    (job,), _ = jobs_of(["a"], {"model": ("m/x",), "gen_kwargs": "temperature=0.5,max_gen_toks=9,until=X,top_k=3"})
    assert (job.temperature, job.max_tokens, job.stop, job.gen_kwargs) == (0.5, 9, ("X",), {"top_k": 3})
    (job,), _ = jobs_of(["a"], {"model": ("m/x",), "gen_kwargs": "temperature=0.5", "temperature": 0.9})
    assert job.temperature == 0.9


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "--model: no model; expected --model openai/gpt-4o-mini"),
        ({"samples": 0}, "--samples: is 0; expected an integer >= 1"),
        ({"limit": -1}, "--limit: is -1; expected a number of tasks, or a fraction below 1, such as 0.1"),
        ({"limit": 1.5}, "--limit: is 1.5; expected a number of tasks"),
        ({"concurrency": 0}, "--concurrency: is 0"),
        ({"timeout": 0.0}, "--timeout: is 0; expected a number > 0"),
        ({"max_cost": float("nan")}, "--max-cost: is nan; expected a number > 0"),
        ({"temperature": -1.0}, "--temperature: is -1.0; expected >= 0"),
        ({"temperature": float("inf")}, "--temperature: is inf; expected >= 0"),  # JSON cannot represent it
        ({"samples": 2**31}, "--samples: is 2147483648; expected an integer <= 2147483647"),
        ({"price": "1"}, "--price: is '1'; expected IN,OUT in dollars per million tokens"),
        ({"price": "1,-2"}, "--price: is '1,-2'"),
    ],
)
def test_what_cannot_be(given, said):
    with pytest.raises(InputError) as caught:
        jobs_of(["a"], {**({"model": ("m/x",)} if given else {}), **given})
    assert said in str(caught.value)


def test_a_wrong_value_in_a_file_names_the_file(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("benchmark: a\nmodel: m/x\nsamples: 0")
    with pytest.raises(InputError) as caught:
        jobs_of([str(path)], {})
    assert str(caught.value) == f"{path}: samples: is 0; expected an integer >= 1"


@pytest.mark.parametrize(
    ("model", "given", "api", "extra"),
    [
        ("hf/tiny", {}, "completions", {"truncate": "left"}),
        ("hf/tiny", {"api": "chat"}, "chat", {"truncate": "left"}),  # the template was requested explicitly
        ("openai/m", {}, "chat", {}),
    ],
)
def test_a_local_model_is_asked_as_lm_eval_asks(tmp_path, model, given, api, extra):
    task = tmp_path / "sums.yaml"
    task.write_text(
        "task: sums\ndataset_path: json\ndataset_kwargs: {data_files: {test: d.jsonl}}\ntest_split: test\n"
        "output_type: generate_until\ndoc_to_text: '{{q}}'\ndoc_to_target: '{{a}}'\n"
    )
    ((job,), _) = jobs_of([str(task)], {"model": (model,), **given})
    assert (job.api, dict(job.gen_kwargs)) == (api, extra)
