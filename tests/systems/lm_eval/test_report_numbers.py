import json
from pathlib import Path

import pytest

from calipers.errors import InputError
from calipers.systems.lm_eval.benchmarks import LoadedTasks, TaskRequest
from calipers.systems.lm_eval.report import responses, sample_rows, score_run
from calipers.systems.lm_eval.write import line_text

RUN = Path(__file__).parents[2] / "golden" / "lm_eval" / "e2e" / "gen_repeats"


def logged(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def rows():
    """The responses of lm-evaluation-harness, written as a log of Calipers."""
    lines = map(json.loads, (RUN / "fixtures.jsonl").read_text().splitlines())
    return [{"task": str(one["doc_id"]), "sample": one["repeat"], "completion": one["response"]} for one in lines]


@pytest.fixture
def task():
    return LoadedTasks().task(str(RUN / "inputs" / "task.yaml"), "e2e_gen_repeats", TaskRequest())


def test_the_same_responses_give_the_same_numbers_and_samples(task, rows, tmp_path):
    scored = score_run(task, logged(tmp_path / "log", reversed(rows)), 5)  # in whatever order they came
    expected = json.loads((RUN / "results.json").read_text())["results"]["e2e_gen_repeats"]
    numbers = scored.scores.numbers().metrics
    assert numbers == pytest.approx({key: expected[key] for key in numbers}, rel=1e-9)
    assert {key for key in expected if "," in key} == set(numbers)
    samples = (RUN / "samples_e2e_gen_repeats.jsonl").read_text().splitlines()
    assert [json.loads(line_text(row)) for row in sample_rows(scored)] == [json.loads(line) for line in samples]


def test_a_document_with_a_gap_is_left_out(task, rows, tmp_path):
    rows[7] = {"task": rows[7]["task"], "sample": rows[7]["sample"], "outcome": "client_failed"}
    number = int(rows[7]["task"])
    scored = score_run(task, logged(tmp_path / "log", rows), 5)
    assert sorted(scored.responses) == [one for one in range(8) if one != number]
    assert scored.scores.numbers().sample_len == 7


def test_the_last_attempt_counts(tmp_path):
    rows = [
        {"task": "0", "sample": 0, "attempt": 2, "completion": "later"},
        {"task": "0", "sample": 0, "attempt": 1, "outcome": "client_failed"},
        {"task": "0", "sample": 1, "completion": ""},  # nothing said is an answer
    ]
    assert responses(logged(tmp_path / "log", rows)) == {0: ["later", ""]}


def test_what_is_no_such_log_is_refused(task, tmp_path):
    with pytest.raises(InputError, match=r"log:1: is not a rollout of a task of lm-evaluation-harness"):
        responses(logged(tmp_path / "log", [{"task": "a name"}]))
    with pytest.raises(InputError, match="no document has all its completions; expected 5 completions of one document"):
        score_run(task, logged(tmp_path / "log", [{"task": "0", "completion": "x"}]), 5)
