"""Harbor's summary of a job, from its directory and from its own file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from harbor_jobs import job, made

from calipers.errors import InputError, UnknownName
from calipers.systems.harbor.job_result import (
    EvalCounts,
    aggregate,
    document,
    encoded,
    load_job_result,
    lost,
    read_job,
    requested_metrics,
)

SMALL = Path(__file__).parents[2] / "golden" / "harbor" / "job_small"
PASS, FAIL = {"rewards": {"reward": 1.0}}, {"rewards": {"reward": 0.0}}


def test_the_file_of_a_finished_job_is_written_again_to_the_byte():
    found = document(read_job(str(SMALL)))
    assert encoded(found) == (SMALL / "result.json").read_bytes()
    assert lost(read_job(str(SMALL)), found) == []


def test_the_file_is_strict_json_even_if_a_sum_is_infinite(tmp_path):
    huge = {"rewards": {"reward": 1e308}}
    path = job(tmp_path / "job", huge, huge, config={"metrics": [{"type": "sum"}, {"type": "min"}]})
    written = encoded(document(read_job(str(tmp_path / path))))
    assert b"Infinity" not in written
    (values,) = json.loads(written)["stats"]["evals"].values()
    assert values["metrics"] == [{"sum": None}, {"min": 1e308}]


def test_a_job_that_was_cut_off_before_it_could_sum_up(tmp_path):
    copy = tmp_path / "job"
    shutil.copytree(SMALL, copy)
    (copy / "result.json").unlink()
    (copy / "add-two__FzwhamM" / "result.json").unlink()
    shutil.rmtree(copy / "add-two__GKvJNHh")
    found = document(read_job(str(copy)))
    stats = found["stats"]
    assert (found["finished_at"], found["n_total_trials"]) == (None, 18)
    assert (stats["n_completed_trials"], stats["n_running_trials"], stats["n_pending_trials"]) == (16, 1, 1)
    assert list(found) == list(json.loads((SMALL / "result.json").read_text()))
    assert load_job_result(found) == {**found, "stats": {**stats, "evals": load_job_result(found)["stats"]["evals"]}}


def test_a_trial_that_cannot_be_read_is_passed_over_and_told_of(tmp_path):
    job(tmp_path / "job", PASS, FAIL)
    (tmp_path / "job" / "t__1" / "result.json").write_text('{"task')
    found = read_job(str(tmp_path / "job"))
    assert [trial.trial_name for trial in found.trials] == ["t__0"]
    assert len(found.notes) == 1
    assert "t__1/result.json: excluded, because it cannot be read" in found.notes[0]


@pytest.mark.parametrize(
    ("metrics", "names"),
    [
        (None, ["mean"]),
        ([], ["mean"]),
        ([{"type": "max"}, {}], ["max", "mean"]),  # an entry without a type is a mean
    ],
)
def test_the_metrics_of_a_job(tmp_path, metrics, names):
    path = job(tmp_path / "job", PASS, config=None if metrics is None else {"metrics": metrics})
    assert list(read_job(str(tmp_path / path)).names) == names
    assert requested_metrics(str(tmp_path / path)) == (names if metrics else [])


def test_the_metrics_of_a_directory_of_jobs(tmp_path):
    for number, metrics in enumerate(([{"type": "max"}], [], [{"type": "sum"}])):
        job(tmp_path / f"job{number}", PASS, config={"metrics": metrics})
    (tmp_path / "notes.txt").write_text("no job")
    assert requested_metrics(str(tmp_path)) == ["max", "sum"]
    assert requested_metrics(str(tmp_path / "notes.txt")) == []
    assert requested_metrics(str(tmp_path / "nowhere")) == []


def test_a_script_among_the_metrics_is_not_run(tmp_path):
    config = {"metrics": [{"type": "uv-script", "kwargs": {"script_path": "f1.py"}}, {"type": "sum"}]}
    found = read_job(str(tmp_path / job(tmp_path / "job", PASS, config=config)))
    assert list(found.names) == ["sum"]
    assert any("the metric f1.py is a script, so it is not in the file" in note for note in found.notes)


def test_a_job_behind_a_link_asks_for_nothing(tmp_path):
    """Its trials are not read, either."""
    (tmp_path / "jobs").mkdir()
    job(tmp_path / "elsewhere", PASS, config={"metrics": [{"type": "sum"}]})
    job(tmp_path / "jobs" / "job", PASS, config={"metrics": [{"type": "max"}]})
    (tmp_path / "jobs" / "linked").symlink_to(tmp_path / "elsewhere")
    assert requested_metrics(str(tmp_path / "jobs")) == ["max"]


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("config.json", b'{"metrics": [{"type": "\xff"}]}'),
        ("config.json", b'{"x": ' + b"[" * 100_000),
        ("result.json", b'{"id": "1", "stats": {}, "x": ' + b"1" * 5000 + b"}"),
        ("result.json", b'{"id": "1", "stats": {}, "x": ' + b"[" * 100_000),
        ("result.json", b'{"id": "1", "stats": {"n_completed_trials": 1e400}}'),
    ],
)
def test_a_file_of_a_job_that_nobody_can_read_has_a_name(tmp_path, name, raw):
    path = tmp_path / job(tmp_path / "job", PASS)
    (path / name).write_bytes(raw)
    with pytest.raises(InputError, match=rf"job/{name}: not a job's .*; expected a file that Harbor wrote"):
        read_job(str(path))


def test_an_unknown_metric_is_an_error(tmp_path):
    path = str(tmp_path / job(tmp_path / "job", PASS, config={"metrics": [{"type": "maen"}]}))
    with pytest.raises(UnknownName, match=r"job/config\.json: no Harbor metric named 'maen'; did you mean 'mean'"):
        read_job(path)


def test_metrics_that_only_the_dataset_knows_are_not_lost_in_silence(tmp_path):
    stats = {"evals": {"a1__adhoc": {"n_trials": 1, "metrics": [{"f1": 0.5}]}}}
    path = str(tmp_path / job(tmp_path / "job", PASS, stats=stats, n_total_trials=1, started_at="2026-01-01T00:00:00"))
    found = read_job(path)
    assert lost(found, document(found)) == [
        f"{path}: a1__adhoc: f1 is not in the new file: only the dataset defines that metric"
    ]


def test_a_dataset_of_two_parts_keeps_its_metrics():
    """Harbor loses them at the end of a job; `by_last_part` does the same."""
    trials = [made(source="my__bench", rewards={"reward": 1})]
    ours = aggregate(trials, {"my__bench": ["mean"]})
    theirs = aggregate(trials, {"my__bench": ["mean"], "bench": ["sum"]}, by_last_part=True)
    assert ours["evals"]["a1__my__bench"]["metrics"] == [{"mean": 1.0}]
    assert theirs["evals"]["a1__my__bench"]["metrics"] == [{"sum": 1}]


def test_counters_come_from_outside():
    stats = aggregate([made()], {}, EvalCounts(total=5, running=1, retries=2))
    assert (stats["n_pending_trials"], stats["n_running_trials"], stats["n_retries"]) == (3, 1, 2)
    assert stats["evals"]["a1__adhoc"]["metrics"] == []


OLD = {"id": "x", "started_at": "2026-01-02T03:04:05", "n_total_trials": 4, "stats": {"n_trials": 3, "n_errors": 1}}


@pytest.mark.parametrize(
    ("change", "counters"),
    [
        ({}, (3, 1, 0, 1)),
        ({"stats": {}, "status": {"n_completed_trials": 2, "running": 1, "errored": 1}}, (2, 1, 1, 1)),
        ({"stats": {"n_completed_trials": 4}, "status": {"completed": 1}}, (4, 0, 0, 0)),  # the newer place wins
        ({"stats": {"n_trials": 1, "n_pending_trials": 0}}, (1, 0, 0, 0)),  # what is said is not worked out
    ],
)
def test_counters_by_their_old_names(change, counters):
    stats = load_job_result({**OLD, **change})["stats"]
    names = ("n_completed_trials", "n_errored_trials", "n_running_trials", "n_pending_trials")
    assert tuple(stats[name] for name in names) == counters


def test_a_result_without_an_id_has_none():
    assert load_job_result({key: value for key, value in OLD.items() if key != "id"})["id"] is None


def test_values_of_rewards_are_floats_and_equal_ones_are_one():
    rewards = {"reward": {"1": ["a"], "1.0": ["b"], "0": ["c"]}}
    one = load_job_result({**OLD, "stats": {"evals": {"e": {"reward_stats": rewards}}}})["stats"]["evals"]["e"]
    assert one["reward_stats"] == {"reward": {"1.0": ["a", "b"], "0.0": ["c"]}}
    assert (one["n_trials"], one["pass_at_k"], one["metrics"]) == (0, {}, [])


@pytest.mark.parametrize(
    ("finished", "updated", "expected"),
    [
        (None, None, "2026-01-02T03:04:05"),
        ("2026-01-02T03:05:05+00:00", None, "2026-01-02T03:05:05Z"),
        ("2026-01-02T03:05:05", "2026-01-02T03:05:06Z", "2026-01-02T03:05:06Z"),
    ],
)
def test_when_it_was_last_written(finished, updated, expected):
    assert load_job_result({**OLD, "finished_at": finished, "updated_at": updated})["updated_at"] == expected


@pytest.mark.parametrize(
    "wrong",
    [None, [], {}, {"id": 1}, {**OLD, "stats": 3}, {**OLD, "started_at": "noon"}, {**OLD, "n_total_trials": "x"}],
)
def test_what_is_no_result(wrong):
    with pytest.raises(InputError, match=r"^jobs/result\.json: not a job's result"):
        load_job_result(wrong, "jobs/result.json")
