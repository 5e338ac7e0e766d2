"""The report of a run in progress has its progress, and says that its number is not final."""

import fcntl
import json

import numpy as np
import pytest

from calipers.web import report
from calipers.web.report_data import is_running, report_data
from calipers.web.run_page import answer


def run_folder(folder, finished, planned=40, seed=0):
    """A run of ``tasks`` tasks, the first of which have finished; each passes with probability 1/2."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(seed)
    rewards = (rng.random(planned) < 0.5).astype(int).tolist()
    tasks = [{"task": f"t{number}"} for number in range(planned)]
    plan = {"schema": "calipers.plan/1", "dataset": "d", "model": "m", "samples": 1, "tasks": tasks}
    (folder / "plan.json").write_text(json.dumps(plan))
    rows = [{"task": f"t{n}", "sample": 0, "model": "m", "dataset": "d", "reward": rewards[n]} for n in range(finished)]
    (folder / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return float(np.mean(rewards))


@pytest.fixture
def held(tmp_path):
    """A run's folder whose lock is held, as by a running process."""
    folder = tmp_path / "run"
    folder.mkdir()
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def test_a_run_that_nobody_holds_is_not_going(tmp_path):
    run_folder(tmp_path / "run", 20)
    (tmp_path / "run" / ".lock").write_text("")
    assert not is_running(str(tmp_path / "run"))
    assert report_data([str(tmp_path / "run")]).progress is None


def test_the_sentence_of_a_run_that_is_going(held):
    run_folder(held, 20)
    assert is_running(str(held))
    said = answer(report_data([str(held)]))
    assert said.sentence == "m has finished 20 of 40 rollouts of d."
    assert said.detail.startswith("Not final: so far 0.")
    assert said.detail.endswith("with 95\xa0% confidence however often you look")
    assert "has finished 20 of 40" in report(str(held)).title


def test_nothing_is_said_of_a_number_before_the_first_task(held):
    run_folder(held, 1)
    rows = (held / "rollouts.jsonl").read_text().replace("t0", "t7")  # a later task came first
    (held / "rollouts.jsonl").write_text(rows)
    assert answer(report_data([str(held)])).detail == "Not final: no task is complete yet"


def test_a_run_that_has_all_its_rollouts_has_its_final_sentence(held):
    run_folder(held, 40)
    assert report_data([str(held)]).progress is None


def test_the_interval_holds_the_final_number_at_every_look(held):
    """In 25 runs, looked at after 4, 16 and 28 of 40 tasks, at most 5 % of the runs may have a wrong interval.

    Six wrong runs would have a probability of 1 in 800.
    """
    wrong = 0
    for seed in range(25):
        final = run_folder(held, 40, seed=seed)
        intervals = []
        for finished in range(4, 40, 12):
            run_folder(held, finished, seed=seed)
            intervals.append(report_data([str(held)], texts=False).progress.interval)
        wrong += any(not low - 1e-12 <= final <= high + 1e-12 for low, high in intervals)
    assert wrong <= 5


def test_rewards_beyond_one_have_no_such_interval(held):
    run_folder(held, 10)
    rows = [{"task": f"t{n}", "sample": 0, "model": "m", "dataset": "d", "reward": 7} for n in range(10)]
    (held / "rollouts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert answer(report_data([str(held)])).detail == "Not final: so far 7.000"
