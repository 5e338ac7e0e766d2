"""One conclusion, the same in every verb: 200 random pairs of runs are asked of all of them."""

from __future__ import annotations

import random

import pytest

import calipers
from calipers.analyses.leaderboard import leaderboard
from calipers.analyses.matrix import matrix
from calipers.web.report_data import report_data

PAIRS = 200
KINDS = ("plain", "missing", "retried", "graded", "clustered", "wide", "shorter")
LOST = ("client_failed", "cancelled", "verifier_failed", "not_run")


def runs_of(seed):
    """Two runs on the same tasks, and the settings that they need; the seed decides what is odd about them."""
    dice = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    tasks, samples = dice.choice([12, 30, 60]), dice.choice([1, 2, 4])
    gain = dice.choice([0.0, 0.1, 0.3])
    sides = []
    for run in ("a", "b"):
        rows = []
        for task in range(tasks):
            chance = min(1.0, dice.betavariate(0.8, 0.8) * 0.8 + (gain if run == "b" else 0.0))
            for sample in range(samples):
                reward = _reward(kind, run, chance, dice)
                row = {"task": task, "sample": sample, "model": run, "dataset": "d", "reward": reward}
                row["book"] = task // 3
                if kind == "missing" and dice.random() < dice.choice([0.02, 0.3]):
                    row |= {"reward": None, "outcome": dice.choice(LOST)}
                rows.append(row)
                if kind == "retried" and run == "b" and reward == 1:
                    break
            if kind == "shorter" and run == "b" and task == tasks // 2:
                break
        sides.append(rows)
    settings = {"cluster": "book"} if kind == "clustered" else {}
    return sides[0], sides[1], settings


def _reward(kind, run, chance, dice):
    if kind == "graded":
        return round(chance, 3) if run == "a" else float(dice.random() < chance)
    passed = dice.random() < chance
    return 7.5 * passed if kind == "wide" else float(passed)


def word_of_gate(first, second, settings):
    """What a gate says of two rules, that B is better and that it is worse: passed, failed or undefined."""
    rules = ("lower(delta(mean_reward)) > 0", "upper(delta(mean_reward)) < 0")
    return [calipers.gate(second, baseline=first, require=rule, **settings).word for rule in rules]


@pytest.mark.parametrize("seed", range(PAIRS))
def test_every_verb_has_the_same_word_and_the_same_reason(seed):
    first, second, settings = runs_of(seed)
    found = calipers.compare(first, second, metric="mean_reward", **settings)["mean_reward"]
    said = (found.verdict, found.undecided_by)

    board = leaderboard(first, second, metric="mean_reward", **settings).boards[0]
    if board.pairs:
        (pair,) = board.pairs
        opposite = {"better": "worse", "worse": "better"}
        word = pair.verdict if pair.first == "b" else opposite.get(pair.verdict, pair.verdict)
        assert (word, pair.undecided_by) == said

    row = matrix([*first, *second], metric="mean_reward", **settings).benchmarks[0]
    (pair,) = row.pairs
    assert (pair.verdict, pair.undecided_by) == said

    data = report_data([first, second], by=(), texts=False, **settings)
    assert (data.comparison["mean_reward"].verdict, data.comparison["mean_reward"].undecided_by) == said

    better, worse = word_of_gate(first, second, settings)
    assert (better == "passed") == (found.verdict == "better")
    assert (worse == "passed") == (found.verdict == "worse")
    if found.undecided_by in ("missing", "counts"):
        assert "undefined" in (better, worse)
    if found.undecided_by in ("unseen_loss", "data"):
        assert (better, worse) == ("failed", "failed")


def test_the_pairs_meet_every_word_and_every_reason():
    """A law about reasons that never occur would be empty."""
    met = set()
    for seed in range(PAIRS):
        first, second, settings = runs_of(seed)
        found = calipers.compare(first, second, metric="mean_reward", **settings)["mean_reward"]
        met.add((found.verdict, found.undecided_by))
    assert {("better", None), ("undecided", "missing"), ("undecided", "counts"), ("undecided", "data")} <= met
    assert ("undecided", "unseen_loss") in met


@pytest.mark.parametrize("seed", range(0, PAIRS, 5))
def test_a_leaderboard_of_three_never_orders_a_pair_that_compare_leaves_open(seed):
    first, second, settings = runs_of(seed)
    third = [{**row, "model": "c"} for row in runs_of(seed + 7 * 31)[1]]
    models = {"a": first, "b": second, "c": third}
    board = leaderboard(first, second, third, metric="mean_reward", **settings).boards[0]
    for pair in board.pairs:
        found = calipers.compare(models[pair.second], models[pair.first], metric="mean_reward", **settings)
        if pair.verdict == "better":
            assert found["mean_reward"].verdict == "better"
        elif pair.undecided_by == "family":
            assert found["mean_reward"].verdict in ("better", "worse")
        else:
            assert pair.undecided_by == found["mean_reward"].undecided_by
