"""Benchmarks in memory, made from a table, run against a model with their own verifiers."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

import calipers
from calipers.errors import InputError, UnknownName, VerifierError

ROWS = [{"question": "2 + 2?", "answer": 4, "level": "easy"}, {"question": "3 + 4?", "answer": 7, "level": "hard"}]
MODEL = 'def answer(prompt):\n    return "It is 4." if "2 + 2" in prompt else "8"\n'
ASKED = "python/m.py:answer"


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text(MODEL)
    (tmp_path / "my.py").write_text("def grade(task, completion):\n    return str(task.target) in completion\n")
    (tmp_path / "qa.csv").write_text("question,answer\n2 + 2?,4\n3 + 4?,7\n")


def grade(task, completion):
    return str(task.target) in completion


async def later(task, completion):
    return str(task.target) in completion


class Client:
    def generate(self, prompt, **_):
        return "It is 4." if "2 + 2" in prompt else "8"


@pytest.mark.parametrize("verifier", ["numeric_match", "contains", "my.py:grade", grade, later])
def test_a_benchmark_of_a_table_is_run(verifier):
    frame = pl.DataFrame(ROWS)
    benchmark = calipers.Benchmark.from_table(
        frame, prompt="question", target="answer", verifier=verifier, metadata="level"
    )
    result = calipers.evaluate(benchmark, ASKED, by=["level"])
    assert result["mean_reward"].value == 0.5
    assert benchmark.score(Client()).metrics["mean_reward"] == 0.5  # and as EvSys scores it


def test_a_table_from_python_is_the_table_of_the_command():
    by_path = calipers.evaluate("qa.csv", ASKED, prompt="question", verifier="numeric_match")
    benchmark = calipers.Benchmark.from_table("qa.csv", verifier="numeric_match")
    assert benchmark.name == "qa"
    assert calipers.evaluate(benchmark, ASKED, out="r").digest == by_path.digest


def test_multiple_choice_in_memory():
    row = {"question": "Capital of Italy?", "A": "Paris", "B": "Rome", "answer": "Rome"}
    benchmark = calipers.Benchmark.from_table([row], choices=["A", "B"])
    assert benchmark.tasks[0].verifier.expected == "B"

    class Says:
        def generate(self, prompt, **_):
            return "The answer is B."

    assert benchmark.score(Says()).metrics["mean_reward"] == 1.0


def test_a_function_that_was_changed_does_not_go_on_in_the_old_run(tmp_path):
    def judged(code):
        scope = {}
        exec(code, scope)
        benchmark = calipers.Benchmark.from_table(ROWS, verifier=scope["grade"])
        return calipers.evaluate(benchmark, ASKED)["mean_reward"].value

    assert judged("def grade(task, completion):\n    return True") == 1.0
    assert judged("def grade(task, completion):\n    return True") == 1.0
    assert len([*(tmp_path / "runs").iterdir()]) == 1
    assert judged("def grade(task, completion):\n    return False") == 0.0
    assert len([*(tmp_path / "runs").iterdir()]) == 2


def test_a_verifier_of_the_call_judges_in_place_of_the_benchmarks_own():
    benchmark = calipers.Benchmark.from_table(ROWS, verifier="exact_match")
    assert calipers.evaluate(benchmark, ASKED, out="a")["mean_reward"].value == 0.0
    assert calipers.evaluate(benchmark, ASKED, verifier="my.py:grade", out="b")["mean_reward"].value == 0.5
    plan = json.loads(Path("b/plan.json").read_text())
    assert plan["identity"]["verifier_code"]


def test_what_cannot_be_run_from_memory():
    benchmark = calipers.Benchmark.from_table(ROWS)
    with pytest.raises(InputError, match="prompt: is for a table of questions, and this is already a benchmark"):
        calipers.evaluate(benchmark, ASKED, prompt="question")
    with pytest.raises(
        InputError, match=r"benchmark: is DataFrame; expected a path, a name, or a Benchmark: Benchmark\.from_table"
    ):
        calipers.evaluate(pl.DataFrame(ROWS), ASKED)
    with pytest.raises(InputError, match="metrics: a run's plan holds names of metrics, and no objects"):
        calipers.evaluate(benchmark, ASKED, metrics=[grade])
    with pytest.raises(UnknownName, match="no verifier named 'exactmatch'"):
        calipers.evaluate(calipers.Benchmark.from_table(ROWS, verifier="exactmatch"), ASKED)
    with pytest.raises(VerifierError, match="failed: ZeroDivisionError"):
        calipers.Benchmark.from_table(ROWS, verifier=lambda task, completion: 1 / 0).score(Client())


def test_what_from_table_refuses():
    with pytest.raises(InputError, match="row 2: the prompt is empty"):
        calipers.Benchmark.from_table([*ROWS[:1], {**ROWS[1], "question": ""}])
    with pytest.raises(InputError, match="no column named 'qestion'"):
        calipers.Benchmark.from_table(ROWS, prompt="qestion")


def test_a_folder_with_its_verifier_once_is_evsys_benchmark_too(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "tasks.jsonl").write_text('{"task_id": "a", "instruction": "2 + 2?", "expected": "4"}\n')
    (tmp_path / "b" / "metadata.yaml").write_text("verifier: contains\n")
    benchmark = calipers.Benchmark.from_dir(tmp_path / "b")
    assert benchmark.tasks[0].verifier.fn_name == "contains"
    assert benchmark.score(Client()).metrics["mean_reward"] == 1.0
