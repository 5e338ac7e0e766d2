"""Runs whose numbers of samples follow their results, as the comparison reads them from rollouts."""

from __future__ import annotations

from making import rollouts

from calipers.analyses.compare.evidence import followed_run
from calipers.stats.counts import Follows

TRIES = [[1], [0, 1], [0, 0, 0], [1], [0, 0, 1]]


def rows(tasks, padding=None):
    """Records of tasks with these rewards, padded to three samples with an outcome that has none."""
    records = []
    for task, rewards in enumerate(tasks):
        padded = [*rewards, *[None] * ((3 - len(rewards)) if padding else 0)]
        for sample, reward in enumerate(padded):
            known = {"outcome": padding} if reward is None else {"reward": reward}
            records.append({"task": str(task), "sample": sample, **known})
    return rollouts(*records)


def test_a_run_that_stops_at_its_first_pass_is_found():
    assert followed_run(rows(TRIES), "reward") == Follows("stops_at_pass", 3, 5, 3, None)


def test_rollouts_that_were_not_run_do_not_hide_it():
    """Padded with rollouts that were not run, every task seemed to have the same plan, and retries went unseen."""
    assert followed_run(rows(TRIES, "not_run"), "reward") == Follows("stops_at_pass", 3, 5, 3, None)


def test_rollouts_that_failed_were_planned():
    assert followed_run(rows(TRIES, "client_failed"), "reward") is None


def test_graded_rewards_are_compared_with_their_numbers():
    tasks = [[0.8, 0.8]] * 15 + [[0.3, 0.3, 0.3]] * 15
    assert followed_run(rows(tasks), None).rule == "more_is_lower"
