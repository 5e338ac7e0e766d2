"""The Python API: every verb of the command, of tables in memory as of files."""

from __future__ import annotations

import doctest
import inspect
import json
import subprocess
import sys
from dataclasses import fields

import click
import numpy as np
import pandas
import polars
import pytest
from harbor_datasets import write_dataset
from rooms import needs_rooms
from running.scene import sums

import calipers
from calipers import CalipersError, InputError, RunSettings
from calipers.cli import commands
from calipers.running import OF_AGENTS, Job

NAMES = {"task": "id", "sample": "n", "reward": "ok"}
TRUTH = {"yes": 1, "no": 0}
HOW = {"columns": NAMES, "truth": TRUTH}


def rows(passes: str) -> list[dict[str, object]]:
    """Three samples of each task: as many passes of each as a digit says."""
    return [
        {"id": f"t{task}", "n": sample, "ok": "yes" if sample < int(count) else "no", "level": "ab"[task % 2]}
        for task, count in enumerate(passes)
        for sample in range(3)
    ]


BEFORE, AFTER = rows("012301230123"), rows("123312331233")


@pytest.fixture
def files(tmp_path):
    paths = []
    for name, some in (("before", BEFORE), ("after", AFTER)):
        path = tmp_path / f"{name}.jsonl"
        records = [
            {"task": row["id"], "sample": row["n"], "reward": TRUTH[row["ok"]], "metadata": {"level": row["level"]}}
            for row in some
        ]
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        paths.append(str(path))
    return paths


# --- what is public


def test_every_public_name_is_marked_and_dir_shows_no_other():
    public = [name for name in calipers.__all__ if not name.startswith("_")]
    assert sorted(calipers._STABILITY) == sorted(public)
    assert {*calipers._STABILITY.values()} == {"stable", "provisional"}
    assert [name for name in dir(calipers) if not name.startswith("__")] == public


COMMAND_ONLY = {  # options of a page on a terminal, of code that a command loads, or another name of a parameter
    "shape", "out", "plugins", "verbose", "help", "fail_on", "junit", "export", "hooks", "force", "paths", "labels",
    "scripts", "plot", "limit", "name", "pairs", "every", "details", "economics", "models", "errors",
    "partial", "cache", "cache_check",
    "history", "alarm", "false_alarms", "nights", "online", "accept",  # a file that the gate of each night writes anew
    "mean",  # of several benchmarks, which calipers.matrix compares
    "steps",  # another page: of checkpoints, not of models
}  # fmt: skip
VERBS = {"score", "compare", "gate", "plan", "curve", "items", "judge-check", "leaderboard", "rescore", "explain"}
RENAMED = {"requirements": "require"}


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_a_verb_has_the_options_of_its_command(verb):
    command = commands.get_command(click.Context(commands), verb)
    assert command is not None
    there = set(inspect.signature(getattr(calipers, verb.replace("-", "_"))).parameters)
    options = {RENAMED.get(option.name or "", option.name) for option in command.params}
    assert options - there - COMMAND_ONLY == set()


@pytest.mark.parametrize(
    "verb", sorted({*(verb.replace("-", "_") for verb in VERBS), "evaluate", "load", "matrix", "read", "run"})
)
def test_every_parameter_of_a_verb_has_a_type(verb):
    signature = inspect.signature(getattr(calipers, verb))
    assert [name for name, each in signature.parameters.items() if each.annotation in (each.empty, "Any")] == []
    assert signature.return_annotation is not signature.empty


def test_the_settings_of_a_run_are_typed():
    decided = {"benchmark", "model", "origins", "among", "lm_eval"}
    settings = {field.name for field in fields(Job)} - decided
    assert set(RunSettings.__annotations__) == {*settings, *OF_AGENTS, "fewshot_seed"}
    command = commands.get_command(click.Context(commands), "run")
    assert command is not None
    options = {option.name for option in command.params if option.name}
    page = {
        "benchmarks",
        "model",
        "shape",
        "export",
        "plugins",
        "unsafe",
        "help",
        "verbose",
        "details",
        "economics",
        "every",
    }
    printed = {"cache_requests", "check_integrity", "dry_run", "notify", "show_config", "write_out"}  # the command's
    assert options - set(RunSettings.__annotations__) - page == printed


# --- tables in memory


TABLES = {
    "records": list,
    "pandas": pandas.DataFrame,
    "polars": polars.DataFrame,
    "lazy": polars.LazyFrame,
    "arrow": lambda some: polars.DataFrame(some).to_arrow(),
    "columns": lambda some: polars.DataFrame(some).to_dict(as_series=False),
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_says_what_its_file_says(kind, files):
    before, after = TABLES[kind](BEFORE), TABLES[kind](AFTER)
    differences = [
        [(finding.delta, finding.interval, finding.p) for finding in comparison.contests[0].pairs[0].findings]
        for comparison in (
            calipers.compare(*files, metrics=["mean_reward", "pass@2"], by="level"),
            calipers.compare(before, after, metrics=["mean_reward", "pass@2"], by="level", **HOW),
        )
    ]
    assert differences[0] == differences[1]
    assert len(differences[0]) == 6
    curves = calipers.curve(files[0])["pass@k"].points, calipers.curve(before, **HOW)["pass@k"].points
    assert curves[0] == curves[1]
    tables = calipers.items(*files).tables[0].items, calipers.items(before, after, **HOW).tables[0].items
    assert tables[0] == tables[1]
    plans = calipers.plan(*files, detect=0.1), calipers.plan(before, after, detect=0.1, **HOW)
    assert plans[0].designs == plans[1].designs
    rules = ["lower(mean_reward) >= 0.1", "lower(delta(mean_reward)) > 0", "worst(mean_reward[level=a]) >= 0.1"]
    gates = [
        [(check.word, check.value, check.interval) for check in gate.checks]
        for gate in (
            calipers.gate(files[1], require=rules, baseline=files[0]),
            calipers.gate(after, require=rules, baseline=before, **HOW),
        )
    ]
    assert gates[0] == gates[1]
    assert [word for word, *_ in gates[0]] == ["passed", "passed", "passed"]


@pytest.mark.parametrize("kind", TABLES)
def test_labels_may_be_a_table(kind, files, tmp_path):
    labels = [{"task": row["id"], "sample": row["n"], "label": row["ok"] == "yes"} for row in BEFORE[::2]]
    path = tmp_path / "labels.csv"
    path.write_text("task,sample,label\n" + "".join(f"{r['task']},{r['sample']},{int(r['label'])}\n" for r in labels))
    by_file = calipers.judge_check(files[0], path)
    by_table = calipers.judge_check(TABLES[kind](BEFORE), TABLES[kind](labels), **HOW)
    assert by_table.groups == by_file.groups


def test_a_word_without_a_number_is_refused_by_every_verb():
    for verb in (calipers.curve, calipers.items, calipers.plan):
        with pytest.raises(InputError, match="yes"):
            verb(BEFORE, columns=NAMES)
    with pytest.raises(InputError, match="yes"):
        calipers.gate(BEFORE, require="mean_reward > 0", columns=NAMES)


def test_a_gate_takes_results_in_memory(tmp_path):
    before, after = (calipers.score(some, by="level", **HOW) for some in (BEFORE, AFTER))
    path = tmp_path / "before.json"
    path.write_text(before.to_json())
    rules = ["lower(mean_reward) >= 0.1", "delta(mean_reward) > 0", "mean_reward[level=a] > 0"]
    in_memory = calipers.gate(after, require=rules, baseline=before)
    assert in_memory.word == "passed"
    assert in_memory.checks == calipers.gate(after, require=rules, baseline=path).checks
    with pytest.raises(InputError, match="the result: is a finished result, so --columns"):
        calipers.gate(after, require=rules, baseline=before, columns=NAMES)
    with pytest.raises(CalipersError, match="did you mean 'mean_reward'"):
        calipers.gate(after, require="mean_rewrd > 0")
    assert calipers.gate(before, require="mean_reward >= 0.9").exit_code == 1


def test_a_result_is_not_taken_for_rollouts():
    result = calipers.score(BEFORE, **HOW)
    for verb in (calipers.compare, calipers.curve, calipers.plan, calipers.score):
        with pytest.raises(InputError, match="a Result has numbers, and its rollouts are gone"):
            verb(result)


def test_a_policy_may_be_asked_of_a_table(tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text("critical:\n  - mean_reward >= 0.4\n")
    assert calipers.gate(BEFORE, policy=policy, **HOW).word == "passed"
    policy.write_text("results: {a: run}\ncritical:\n  - mean_reward >= 0.4\n")
    with pytest.raises(InputError, match="names its results, and --baseline is given too"):
        calipers.gate(policy=policy, baseline=BEFORE)


# --- two names of one parameter


def test_metrics_are_asked_for_by_either_name():
    by_name = [
        calipers.compare(BEFORE, AFTER, **{name: "pass@2"}, **HOW).contests[0].pairs[0].findings[0].metric
        for name in ("metrics", "metric")
    ]
    assert by_name == ["pass@2", "pass@2"]
    assert {calipers.plan(BEFORE, **{name: "pass_rate"}, **HOW).metric for name in ("metrics", "metric")} == {
        "pass_rate"
    }
    with pytest.raises(InputError, match="metric: is given beside metrics"):
        calipers.compare(BEFORE, AFTER, metrics="pass@2", metric="pass@2", **HOW)
    with pytest.raises(CalipersError, match="known: mean_reward, pass_rate"):
        calipers.plan(BEFORE, metrics="pass@2", **HOW)


# --- runs


MODEL = "def answer(prompt):\n    return '3' if '1 + 2' in prompt else 'the answer is 5'\n"


def test_a_run_and_its_rescoring(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    benchmark, model = sums(tmp_path, 4), "python/model.py:answer"
    result = calipers.run(benchmark, model, samples=2, metrics=["mean_reward"], out=tmp_path / "run")
    assert result.digest == calipers.evaluate(benchmark, model=model, samples=2, metrics="mean_reward").digest
    again = calipers.rescore(tmp_path / "run", filters="last_number", name="number")
    assert again.new == "number"
    scores = [{"id": task, "n": sample, "ok": "yes"} for task in ("s0", "s1", "s2", "s3") for sample in (0, 1)]
    given = calipers.rescore(tmp_path / "run", scores=scores, **HOW)
    assert (given.new, given.after["mean_reward"].value) == ("scores", 1.0)
    with pytest.raises(CalipersError, match="did you mean 'samples'"):
        calipers.run(benchmark, model, sampels=2)
    with pytest.raises(InputError, match="--environment: is for agents"):
        calipers.run(benchmark, model, environment="room")
    with pytest.raises(InputError, match="no model"):
        calipers.run(benchmark)


@needs_rooms
def test_an_agent_works_on_tasks_of_its_kind(tmp_path):
    done = calipers.run(write_dataset(tmp_path / "three"), agent="oracle", environment="room", out=tmp_path / "out")
    assert done["mean_reward"].value == 1.0
    assert done.groups[0].agent == "oracle"
    with pytest.raises(InputError, match="--max-cost: is only for models without an agent"):
        calipers.run(tmp_path / "three", agent="oracle", max_cost=1.0)


def test_explain_is_the_page_of_the_command(capsys):
    page = calipers.explain("pass@4")
    commands.main(["explain", "pass@4"], standalone_mode=False)
    assert capsys.readouterr().out == page
    assert repr(page) == page.rstrip("\n")
    assert page._repr_html_().startswith("<pre>pass@4\n")
    assert "&lt;" in calipers.Explanation("a < b")._repr_html_()
    with pytest.raises(CalipersError, match="did you mean"):
        calipers.explain("pas@4")
    assert "any_of_first_3" in calipers.explain("pass@3", dialect="evsys")


# --- settings as numpy makes them


@pytest.mark.parametrize("verb", [calipers.score, calipers.compare, calipers.leaderboard, calipers.matrix])
def test_a_seed_of_numpy_is_a_number_of_its_document(verb):
    """A seed from ``rng.integers`` or ``np.arange`` ended the digest and the document with a traceback."""
    table = [{**row, "model": model} for model, some in (("a", BEFORE), ("b", AFTER)) for row in some]
    settings = {**HOW, "metrics": "mean_reward", "confidence": np.float32(0.5)}
    made, usual = verb(table, seed=np.int64(3), **settings), verb(table, seed=3, **settings)
    assert (made.digest, made.to_json()) == (usual.digest, usual.to_json())
    assert json.loads(made.to_json())["seed"] == 3


@pytest.mark.parametrize("seed", [2.5, float("nan"), None, "3"])
def test_a_seed_is_an_integer(seed):
    with pytest.raises(InputError, match=r"^seed is .*; expected an integer"):
        calipers.score([[1, 0]], seed=seed)


@pytest.mark.parametrize(
    ("setting", "error"),
    [
        ({"confidence": "0.9"}, "confidence is '0.9'; expected a number between 0 and 1, such as 0.95"),
        ({"by": 1}, "by is 1; expected a text, or a list of texts"),
        ({"by": ["level", 1]}, r"by is \['level', 1\]; expected a text, or a list of texts"),
        ({"exclude": 1}, "exclude is 1; expected a text, or a list of texts"),
        ({"cluster": 1}, "cluster is 1; expected the name of a key"),
        ({"reward": 1}, "reward is 1; expected the name of a key"),
        ({"cluster": ""}, "cluster is ''; expected the name of a key"),  # it was ignored
        ({"by": ["level", " "]}, r"by is \['level', ' '\]; expected a text, or a list of texts"),
        ({"metrics": "my.py"}, "my.py: no metric is named; expected my.py:FUNCTION"),
    ],
)
def test_a_setting_of_another_type_is_named(setting, error):
    with pytest.raises(InputError, match=f"^{error}$"):
        calipers.score([[1, 0]], **setting)


def test_other_settings_of_numpy():
    curves = calipers.curve([[1, 0], [1, 1]], upto=np.int64(2), confidence=np.float32(0.5))
    study = calipers.plan(variance_between=0.1, variance_within=0.1, tasks=np.int64(100), samples=np.uint8(250))
    compared = calipers.compare([[1], [0]], [[1], [1]], margin=np.float32(0.5), flips=np.int64(1))
    for page in (curves, study, compared):
        assert type(page).from_json(page.to_json()).to_json() == page.to_json()


def test_a_registered_function_keeps_its_type(tmp_path):
    pytest.importorskip("mypy")
    code = tmp_path / "own.py"
    code.write_text(
        "import calipers\n"
        "@calipers.metric\n"
        "def one(rewards: list[list[float]]) -> float:\n    return 1.0\n"
        "@calipers.verifier('two')\n"
        "def two(task: object, completion: str) -> float:\n    return 1.0\n"
        "reveal_type(one)\nreveal_type(two)\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--follow-imports=silent", str(code)]
    said = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path).stdout
    assert said.count("def (") == 2
    assert "Any" not in said


EXTRAS = ["cryptography", "fastapi", "fsspec", "jsonschema", "litellm", "math_verify", "matplotlib", "pydantic", "ray"]
EXTRAS += ["sacrebleu", "sklearn", "torch", "transformers", "uvicorn"]


def test_every_public_name_is_there_without_an_extra():
    """``from calipers import *`` and ``help(calipers)`` ended with "No module named 'pydantic'" in a core install."""
    code = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS})); from calipers import *; print(score)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "function score" in done.stdout


REGISTERING = {"__version__", "metric", "verifier"}  # their examples remove what they registered, by an inner name


@pytest.mark.parametrize("name", sorted({*calipers.__all__} - REGISTERING))
def test_the_example_of_a_public_name_runs_as_its_reader_types_it(name):
    """Examples under the names that they have inside Calipers, such as ``pass_ladder``, worked for nobody else."""
    public = {each: getattr(calipers, each) for each in calipers.__all__} | {"cal": calipers}
    text = inspect.getdoc(getattr(calipers, name)) or ""
    test = doctest.DocTestParser().get_doctest(text, public, name, None, 0)
    assert doctest.DocTestRunner(verbose=False).run(test).failed == 0
