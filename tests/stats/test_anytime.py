from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.stats.anytime import CONTRADICTED, NO_RANGE, Bets, anytime, bets_of
from calipers.stats.claims import Evidence, decide
from calipers.stats.intervals import ONE_TASK
from calipers.stats.margins import equivalence, non_inferiority
from calipers.stats.paired import NO_COMMON, NOT_FINITE

UNIT = (0.0, 1.0)
SEQUENCES = [
    ([1, 0, 1, 0, 0, 1], 1.465628, None),
    ([0.5] * 10, 4.377229, None),
    ([1] * 20, 257.929975, (0.568018, 1)),
    ([1, -1] * 10, 0.616421, (-0.875723, 0.849627)),
    ([1, 0, 0, 0, 1, 0, 0, -1, 0, 0] * 10, 1.640074, (-0.070061, 0.272146)),
    ([0.5, 0.25, 0, 0.25] * 15, 22737.720339, (0.143979, 0.332242)),
    ([1] * 12 + [0] * 30, 17.601727, None),
]


def last(held, mean):
    """E_t(mean) after all tasks."""
    return float(np.exp(held.against(mean)[-1]))


@pytest.mark.parametrize(("moved", "evidence_of_a_difference", "ends"), SEQUENCES)
def test_reference(moved, evidence_of_a_difference, ends):
    held = bets_of(np.array(moved, dtype=float))
    assert last(held, 0.0) == pytest.approx(evidence_of_a_difference, rel=1e-6)
    for end in ends or ():  # what a single look at the last task leaves reaches up to evidence of 20
        if abs(end) < 1:
            assert last(held, end) == pytest.approx(20, rel=1e-3)
        else:
            assert last(held, end) < 20


@pytest.mark.parametrize(("moved", "_", "ends"), SEQUENCES)
def test_the_interval_is_that_of_all_looks_together(moved, _, ends):
    """No wider than what the last look alone leaves, and the same where the evidence only grew."""
    found = anytime(np.array(moved, dtype=float), limits=UNIT)
    low, high = found.interval
    if ends:
        assert ends[0] - 1e-6 <= low <= found.value <= high <= ends[1] + 1e-6
    for end, outside in ((low, low - 1e-4), (high, high + 1e-4)):
        if abs(end) < 1:
            assert found.sequence.against(end).max() == pytest.approx(np.log(20), abs=1e-4)
            assert found.sequence.against(outside).max() > np.log(20)


def test_what_was_shown_stays_shown():
    """p falls only, and the interval shrinks only, as tasks come in."""
    rng = np.random.default_rng(5)
    moved = rng.choice([1.0, -1.0, 0.0], size=400, p=[0.2, 0.1, 0.7])
    found = [anytime(moved[:count], limits=UNIT) for count in range(20, 401, 20)]
    assert all(later.p <= sooner.p for sooner, later in pairwise(found))
    lows, highs = zip(*(one.interval for one in found), strict=True)
    assert all(later >= sooner - 1e-8 for sooner, later in pairwise(lows))
    assert all(later <= sooner + 1e-8 for sooner, later in pairwise(highs))
    assert found[-1].p <= 0.05


def test_each_look_is_a_prefix_of_the_last():
    rng = np.random.default_rng(6)
    moved = rng.uniform(-1, 1, size=200)
    clusters = np.repeat(np.arange(50), 4)
    for those in (None, clusters):
        whole = bets_of(moved, those)
        for count in range(20, 200, 20):
            some = bets_of(moved[:count], None if those is None else those[:count])
            for mean in (0.0, 0.1, -0.3):
                np.testing.assert_allclose(some.against(mean), whole.against(mean)[: len(some.sums)], rtol=1e-12)


@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.25, 1.0]), min_size=2, max_size=60), st.sampled_from([0.9, 0.95]))
def test_test_and_interval_agree(moved, confidence):
    found = anytime(np.array(moved), limits=UNIT, confidence=confidence)
    if found.interval is None:
        assert found.why == CONTRADICTED
        return
    low, high = found.interval
    assert low <= found.value <= high
    assert (low < 0 < high or low == found.value == 0 or found.value == high == 0) == (found.p > 1 - confidence)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=40))
def test_the_other_run_first_is_the_mirror_image(moved):
    one, two = anytime(np.array(moved), limits=UNIT), anytime(-np.array(moved), limits=UNIT)
    if one.p is None:
        assert two.p is None
        return
    assert one.p == pytest.approx(two.p)
    assert one.interval == pytest.approx((-two.interval[1], -two.interval[0]), abs=1e-8)


def test_rewards_on_another_range():
    """Differences count in widths of the range; the interval is in the metric's own unit."""
    rng = np.random.default_rng(1)
    moved = rng.choice([1.0, 0.0], size=60)
    one, ten = anytime(moved, limits=UNIT), anytime(10 * moved, limits=(-5.0, 5.0))
    assert (ten.p, ten.width) == (pytest.approx(one.p), 10.0)
    assert ten.interval == pytest.approx(tuple(10 * end for end in one.interval))


@pytest.mark.parametrize(
    ("moved", "limits", "why"),
    [
        ([], UNIT, NO_COMMON),
        ([0.5], UNIT, ONE_TASK),
        ([0.5, np.inf], UNIT, NOT_FINITE),
        ([3.0, -1.0, 2.0, 0.5], None, NO_RANGE),
        ([1.0] * 20 + [-1.0] * 200, UNIT, CONTRADICTED),  # shown to be above 0, and then below: no claim is made
    ],
)
def test_no_interval(moved, limits, why):
    found = anytime(np.array(moved), limits=limits)
    assert (found.interval, found.p, found.why, found.method) == (None, None, why, "betting")


def test_where_no_task_differs():
    found = anytime(np.zeros(50), limits=UNIT)
    assert (found.value, found.p) == (0.0, 1.0)
    low, high = found.interval
    assert -1 < low < 0 < high < 1
    assert low == pytest.approx(-high)


def test_a_cluster_is_one_bet():
    """Twenty tasks of one cluster that all moved are one piece of evidence, and four clusters of them are four."""
    moved = np.ones(80)
    alone, together = bets_of(moved), bets_of(moved, np.repeat(np.arange(4), 20))
    assert len(together.sums) == 4
    assert together.against(0.0)[-1] == pytest.approx(bets_of(np.ones(4)).against(0.0)[-1])
    assert together.against(0.0)[-1] < alone.against(0.0)[-1]


def test_clusters_of_several_sizes():
    """A cluster's sum is bet on in units of the largest so far; written out for two clusters, of 1 and of 3 tasks."""
    held = Bets(np.array([1.0, -2.0]), np.array([1.0, 3.0]))
    deltas = 0.05 * 8 ** (np.arange(6) / 5)
    first = np.minimum(deltas / np.sqrt(1 / 4), 0.98)
    second = np.minimum(deltas / np.sqrt((1 + 1 / 9) / 5), 0.98)
    up, down = (1 + first) * (1 - second * 2 / 3), (1 - first) * (1 + second * 2 / 3)
    assert np.exp(held.against(0.0)) == pytest.approx([1.0, (up + down).mean() / 2])
    found = anytime(np.array([1.0, -1, -1, 0]), np.array([7, 3, 3, 3]), limits=UNIT)
    assert (found.value, found.units) == (-0.25, 2)
    assert found.p == pytest.approx(held.p(0.0))


def test_clusters_come_in_the_order_of_their_first_tasks():
    held = bets_of(np.array([1.0, 0.5, -1.0, 0.25]), np.array([9, 2, 9, 5]))
    assert held.sums.tolist() == [0.0, 0.5, 0.25]
    assert held.sizes.tolist() == [2, 1, 1]


def test_margins():
    """Equivalent and not worse are shown by one-sided bets against the margin, valid at any look."""
    small = anytime(np.tile([0.05, -0.05], 400), limits=UNIT)
    assert equivalence(small, 0.1).shown
    assert equivalence(small, 0.1).p == pytest.approx(
        max(small.sequence.p_at_most(-0.1), small.sequence.p_at_least(0.1))
    )
    assert not equivalence(small, 0.001).shown
    assert decide(Evidence(small, small), margin=0.1).word == "equivalent"
    lost = anytime(np.tile([-1.0, 0, 0, 0], 50), limits=UNIT)
    assert not non_inferiority(lost, 0.1).shown
    assert non_inferiority(lost, 0.1, higher_is_better=False).shown
    assert non_inferiority(lost, 1.0).shown  # nothing is lost beyond the range


def test_one_hundred_thousand_tasks():
    """All of them at once, over the grid of bets: a loop over tasks in Python would take minutes."""
    rng = np.random.default_rng(2)
    moved = rng.choice([1.0, -1.0, 0.0], size=100_000, p=[0.101, 0.1, 0.799])
    found = anytime(moved, limits=UNIT)
    assert found.interval[0] < 0.001 < found.interval[1]
    assert found.interval[1] - found.interval[0] < 0.02
