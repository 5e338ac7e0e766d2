"""``calipers.evaluate`` takes the same arguments as ``calipers run``, and gives the same result."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from cli.running import calipers
from running.scene import sums
from systems.lm_eval.tasks.given import TASK, task_folder

from calipers.clients import Price
from calipers.errors import InputError, UnknownName
from calipers.running.perform import evaluate

MODEL = """
def answer(prompt):
    number = prompt.rpartition("q")[2][0]
    return "a" + number if number in "0134" else "wrong"
"""
ASKED = "python/model.py:answer"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    task_folder(tmp_path, both_yaml="group: both\ntask: [made, other]\n")
    (tmp_path / "other.yaml").write_text("include: task.yaml\ntask: other\ntag: tagged\nrepeats: 2\n")
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


def printed(home, *arguments):
    done = calipers("run", *arguments, "--model", ASKED, "--format", "json", "--out", "by_command", cwd=home)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["digest"]


@pytest.mark.parametrize(
    ("benchmark", "settings", "command"),
    [
        ("task.yaml", {}, ["task.yaml"]),
        (Path("other.yaml"), {}, ["other.yaml"]),  # this suite has each question twice
        ("made", {"include_path": "."}, ["made", "--include-path", "."]),
        ("tagged", {"include_path": ["."]}, ["tagged", "--include-path", "."]),
        ("both", {"include_path": ["."]}, ["both", "--include-path", "."]),  # a group: two runs, one result
        ("task.yaml", {"limit": 0.3}, ["task.yaml", "--limit", "0.3"]),
        (
            "task.yaml",
            {"samples": 2, "limit": 3, "num_fewshot": 1, "gen_kwargs": {"temperature": 0.5, "top_p": 0.9}},
            [
                "task.yaml",
                "--samples",
                "2",
                "--limit",
                "3",
                "--num-fewshot",
                "1",
                "--gen-kwargs",
                "temperature=0.5,top_p=0.9",
            ],
        ),
    ],
)
def test_a_task_of_lm_eval_as_the_command_runs_it(home, benchmark, settings, command):
    result = evaluate(benchmark, ASKED, **settings)
    assert result.dialect == "lm_eval"
    assert json.loads(result.to_json())["digest"] == printed(home, *command)


def test_the_number(home):
    result = evaluate("task.yaml", ASKED)
    assert result["mean"].value == 4 / 6
    assert result.groups[0].dataset == "made"


@pytest.mark.parametrize(("limit", "tasks"), [(0.3, 2), (0.5, 3), (0.51, 4), (1, 1), (1.0, 1), (2.0, 2)])
def test_a_share_of_the_documents_as_lm_eval_takes_it(home, limit, tasks):
    """A tenth of six tasks is rounded up to one, and 1.0 is one task."""
    assert evaluate("task.yaml", ASKED, limit=limit).groups[0].ledger.tasks == tasks


def test_a_share_of_any_benchmark(home):
    result = evaluate(sums(home), "python/model.py:answer", limit=0.1)
    assert result.groups[0].ledger.tasks == 3  # of thirty tasks


def test_in_a_notebook(home):
    async def cell():
        return evaluate("task.yaml", ASKED)

    assert asyncio.run(cell())["mean"].value == 4 / 6


def test_code_in_the_data_waits_for_trust(home):
    (home / "utils.py").write_text("def score(doc, results): return {'acc': results[0] == doc['a']}\n")
    (home / "code.yaml").write_text(TASK + "process_results: !function utils.score\n")
    with pytest.raises(InputError, match="run it with --trust"):
        evaluate("code.yaml", ASKED)
    assert evaluate("code.yaml", ASKED, trust=True)["mean"].value == 4 / 6


def test_other_benchmarks_as_before(home):
    (home / "sum.py").write_text("def answer(prompt): return str(eval(prompt[8:-1]))\n")
    result = evaluate(sums(home, 5), "python/sum.py:answer", price=Price(1.0, 2.0), stop="\n", temperature=None)
    assert (result.dialect, result["mean_reward"].value) == ("native", 1.0)


def test_a_file_of_ours_whose_runs_have_no_result_in_common(home):
    first, second = sums(home, 2, "first"), sums(home, 2, "second")
    (home / "runs.yaml").write_text(
        f"benchmark: [{{path: {first}, metrics: [pass@1]}}, {{path: {second}, metrics: [pass@3]}}]\n"
    )
    with pytest.raises(InputError, match=r"runs.yaml: its runs differ in metrics, so they have no common result"):
        evaluate("runs.yaml", ASKED)
    assert not (home / "runs").exists()


@pytest.mark.parametrize(
    ("benchmark", "settings", "error", "said"),
    [
        ("task.yaml", {"sampels": 3}, UnknownName, "did you mean 'samples'"),
        ("maed", {"include_path": ["."]}, UnknownName, "no task, group or tag named 'maed'; did you mean 'made'"),
        ("task.yaml", {"gen_kwargs": {"x": object()}}, InputError, "gen_kwargs: is .*expected a mapping such as"),
        ("task.yaml", {"samples": 0}, InputError, "--samples: is 0; expected an integer >= 1"),
        ("task.yaml", {"samples": 2.5}, InputError, "samples: is 2.5; expected an integer"),  # no command line can
        ("task.yaml", {"by": 5}, InputError, r"by: is \[5\]; expected text or a list of texts"),
        ("task.yaml", {"stop": ["\n", 1]}, InputError, r"stop: is .*1\]; expected text or a list of texts"),
        ("task.yaml", {"temperature": "hot"}, InputError, "temperature: is 'hot'; expected a number or null"),
        ("task.yaml", {"out": 5}, InputError, "out: is 5; expected text"),
    ],
)
def test_what_cannot_be_is_said_before_any_call(home, benchmark, settings, error, said):
    with pytest.raises(error, match=said):
        evaluate(benchmark, ASKED, **settings)
    assert not (home / "runs").exists()


def test_a_model_is_named_and_not_handed_over(home):
    with pytest.raises(
        InputError, match="model: is function; expected a model name such as 'openai/gpt-x'; for your own code"
    ):
        evaluate("task.yaml", lambda prompt: "a0")
