"""The rules of ``make bench-statistics`` for margins, warnings and families are those of the product."""

from __future__ import annotations

import numpy as np
import pytest

from bench.simulations.families import floored, holm_rejects
from bench.simulations.few import TRUE, claims
from bench.simulations.margins import CLUSTERS, WORLDS, Drawn, most_broken, passed, passed_before, tallied
from calipers.stats.margins import non_inferiority
from calipers.stats.paired import Units, judged, paired, undone_by_one
from calipers.stats.ranks import holm

UNIT = (0.0, 1.0)


def units_of_replicate(drawn: Drawn, row: int) -> Units:
    means = np.broadcast_to(drawn.means, drawn.shares.shape)[row]
    count = np.rint(drawn.shares[row] ** 2 / np.where(drawn.squares[row] > 0, drawn.squares[row], 1)).astype(int)
    each = np.where(count > 0, drawn.shares[row] / np.maximum(count, 1), 0.0)
    x, w = np.repeat(means, count), np.repeat(each, count)
    if drawn.pulls is not None:
        pulls = drawn.pulls[row]
        return Units(pulls, w * (x - float(pulls.sum())), w, 1 / float((w * w).sum()), True)
    return Units(w * x, w * (x - float((w * x).sum())), w, 1 / float((w * w).sum()), True)


@pytest.mark.parametrize("name", [*WORLDS, *CLUSTERS])
@pytest.mark.parametrize("level", [0.025, 0.05])
def test_a_margin(name, level):
    rng = np.random.default_rng(3)
    world = {**WORLDS, **CLUSTERS}[name]
    drawn = world(40, 0.05, 60, rng)
    for margin in (0.05, 0.12, 0.25):
        rule = passed(drawn, margin, level)
        for row in range(60):
            found = judged(units_of_replicate(drawn, row), UNIT, 0.95)
            assert rule[row] == non_inferiority(found, margin, confidence=1 - 2 * level).shown


def test_what_decided_before():
    rng = np.random.default_rng(4)
    drawn = WORLDS["losses of 0.5"](40, 0.05, 200, rng)
    before = passed_before(drawn, 0.1, 0.025)
    for row in range(200):
        low = judged(units_of_replicate(drawn, row), UNIT, 0.95).interval[0]
        assert before[row] == (low >= -0.1)


@pytest.mark.parametrize(("tasks", "margin", "level"), [(30, 0.1, 0.025), (40, 0.1, 0.05), (60, 0.05, 0.025)])
def test_tables(tasks, margin, level):
    most = most_broken(tasks, margin, level)
    for fixed in range(0, tasks + 1, 3):
        shown = [
            non_inferiority(
                paired(np.repeat([1.0, -1.0, 0.0], [fixed, broken, tasks - fixed - broken]), limits=UNIT),
                margin,
                confidence=1 - 2 * level,
            ).shown
            for broken in range(tasks - fixed + 1)
        ]
        assert shown == [broken <= most[fixed] for broken in range(tasks - fixed + 1)]


def test_the_warning():
    drawn = tallied(*TRUE, 20, 300, np.random.default_rng(5))
    claimed, marked = claims(drawn)
    for row in range(300):
        counts = np.rint(drawn.shares[row] * 20).astype(int)
        found = paired(np.repeat(TRUE[0], counts), limits=UNIT)
        assert claimed[row] == (found.p <= 0.05 and found.value != 0)
        if claimed[row]:
            assert marked[row] == undone_by_one(found, 0.95)


def test_families():
    wins, losses = np.array([5.0, 0, 9]), np.array([1.0, 0, 2])
    for b, c, p in zip(wins, losses, floored(wins, losses, 40)):
        moved = np.repeat([1.0, -1.0, 0.0], [int(b), int(c), 40 - int(b + c)])
        assert p == pytest.approx(paired(moved, limits=UNIT).p)
    p = np.random.default_rng(6).random((50, 6)) ** 3
    assert (holm_rejects(p) == np.array([holm(row) <= 0.05 for row in p])).all()
