"""Tipping points against brute force: every placement of every number of adverse outcomes, tried one by one."""

from itertools import combinations, product

import numpy as np
import pytest

from calipers.stats.missing import MOST_EXACT, Fillings, TippingPoint, tipping_point, worst_placements
from calipers.stats.paired import paired

SHAPES = {
    "mean": lambda passes, n: passes / n,
    "any": lambda passes, n: float(passes > 0),  # pass@n: the last of a task's passes costs all
    "all": lambda passes, n: float(passes == n),  # pass^n: the first failure costs all
}


def case(rng, shape, tasks, most_gaps):
    """Two runs on so many tasks; the second is better and lacks some of its two samples a task."""
    n = 1 if shape == "mean" and rng.random() < 0.5 else 2
    chances = rng.uniform(0.1, 0.5, tasks)
    first = rng.binomial(n, chances)
    gaps = np.minimum(rng.binomial(n, most_gaps / (n * tasks), tasks), n)
    seen = rng.binomial(n - gaps, np.minimum(chances + 0.45, 1))
    worth = SHAPES[shape]
    own = np.array([[worth(c + g - min(j, g), n) for c, g in zip(seen, gaps)] for j in range(gaps.max() + 1)])
    return own, np.array([worth(c, n) for c in first]), gaps


def holds(own, other, counts):
    found = paired(own[counts, np.arange(len(counts))] - other)
    return found.value > 0 and found.p <= 0.05


def brute(own, other, gaps):
    """The largest x for which no placement of x adverse outcomes, or of fewer, undoes the verdict."""
    spots = np.repeat(np.arange(len(gaps)), gaps)
    most = -1
    for x in range(len(spots) + 1):
        every = {tuple(np.bincount(list(some), minlength=len(gaps))) for some in combinations(spots.tolist(), x)}
        if not all(holds(own, other, np.array(counts)) for counts in every):
            break
        most = x
    return most


def filling(own, other, gaps, *, alike=True):
    size = len(gaps)
    kinds = np.unique(np.concatenate([own, other[None]]), axis=1, return_inverse=True)[1].reshape(-1)
    share = np.full(size, 1 / size)
    return Fillings(own / size, other / size, (share, share), gaps, kinds if alike else None)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_tipping_point_is_that_of_every_placement(shape):
    rng = np.random.default_rng(5)
    inside = 0
    for _ in range(60):
        own, other, gaps = case(rng, shape, int(rng.integers(8, 16)), 5)
        if not gaps.any():
            continue
        found = tipping_point(filling(own, other, gaps), lambda counts, o=own, f=other: holds(o, f, counts))
        assert found == TippingPoint(brute(own, other, gaps), int(gaps.sum()), True)
        inside += 0 <= found.most < found.missing
    assert inside > 5  # and not only cases that none of the missing rollouts can turn


def test_without_trying_placements_it_is_right_or_one_too_many():
    rng = np.random.default_rng(6)
    off = []
    for _ in range(120):
        own, other, gaps = case(rng, "mean", int(rng.integers(8, 16)), 5)
        if gaps.any():
            greedy = tipping_point(
                filling(own, other, gaps, alike=False), lambda counts, o=own, f=other: holds(o, f, counts)
            )
            off.append(greedy.most - brute(own, other, gaps))
            assert not greedy.exact or gaps.sum() == 1
    assert set(off) <= {0, 1}
    assert np.mean(off) < 0.05


@pytest.mark.parametrize("shape", SHAPES)
def test_no_placement_takes_more_than_the_worst_one(shape):
    rng = np.random.default_rng(7)
    for _ in range(30):
        own, other, gaps = case(rng, shape, 8, 5)
        if not gaps.any():
            continue
        made = filling(own, other, gaps)
        place = worst_placements(made)
        every = np.array(list(product(*(range(gap + 1) for gap in gaps))))
        effects = made.effects[every, np.arange(len(gaps))].sum(axis=1)
        for x in range(int(gaps.sum()) + 1):
            counts = place(x)
            assert counts.sum() == x
            assert (counts <= gaps).all()
            taken = made.effects[counts, np.arange(len(gaps))].sum()
            assert taken == pytest.approx(effects[every.sum(axis=1) == x].max(), abs=1e-12)


def test_many_missing_rollouts_are_placed_by_whole_tasks():
    """Above MOST_EXACT of them: the task that is dearest per outcome first, and never more than there are."""
    gaps = np.array([1001, 500, 1000])
    assert gaps.sum() > MOST_EXACT
    j = np.arange(1002)[:, None]
    # the first task is lost with its last sample, the others bit by bit
    own = np.where(j < gaps, [1.0, 1.0, 0.5], 0.0) - np.where(j < gaps, [0.0, 1 / 500, 0.5 / 1000] * j, 0.0)
    place = worst_placements(filling(own, np.zeros(3), gaps))
    for x, counts in ((0, [0, 0, 0]), (500, [0, 500, 0]), (501, [1, 500, 0]), (1501, [1001, 500, 0])):
        assert place(x).tolist() == counts
    assert place(2501).tolist() == gaps.tolist()


def test_a_verdict_that_no_filling_keeps_and_one_that_all_keep():
    own, gaps = np.array([np.ones(6), [0.0, 0, 1, 1, 1, 1]]), np.array([1, 1, 0, 0, 0, 0])
    made = filling(own, np.zeros(6), gaps)
    assert tipping_point(made, lambda counts: False).most == -1
    assert tipping_point(made, lambda counts: True).most == 2
    assert tipping_point(made, lambda counts: counts.sum() < 2).most == 1


def test_an_end_that_comes_and_goes_is_found_one_by_one():
    """A statistic that does not fall with every outcome: the verdict must hold for each number up to the point."""
    own = np.array([[0.5, 0.5, 0.5, 3.0], [0.5, 0.5, 0.5, 0.5]])  # without its outlier the t is larger
    made = filling(own, np.zeros(4), np.array([0, 0, 0, 1]))
    assert np.diff(made.statistic(np.array([[0, 0, 0, 0], [0, 0, 0, 1]])))[0] > 0
    assert tipping_point(made, lambda counts: bool(counts[3])).most == -1


def test_the_statistic_is_the_floored_t():
    rng = np.random.default_rng(8)
    own, other, gaps = case(rng, "mean", 12, 6)
    made = filling(own, other, gaps)
    found = paired(own[np.zeros(12, dtype=int), np.arange(12)] - other)
    assert made.statistic(np.zeros((1, 12), dtype=int))[0] == pytest.approx(found.value / found.stderr, rel=1e-12)
