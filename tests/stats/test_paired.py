import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.errors import UnknownName
from calipers.stats.intervals import interval
from calipers.stats.paired import (
    FLOORED_T,
    NO_COMMON,
    NO_RANGE,
    NOT_FINITE,
    STRICT,
    apart,
    judged,
    paired,
    rate_units,
    units_of,
)

SIGNS = [0, 1, 0, 0, 1, 0, 0, 0, -1, 1]
CLUSTERS = np.array([0, 0, 0, 1, 1, 2, 2, 2, 3, 3])
FINE = [0.3, 0.1, -0.2, 0.4, 0.25, 0, 0.15, -0.05]
UNIT = (0.0, 1.0)


def of(values, **options):
    return paired(np.array(values, float), **{"limits": UNIT, **options})


def of_rates(first, second, clusters=None, limits=UNIT, test=FLOORED_T):
    return judged(rate_units(first, second, clusters), limits, 0.95, test)


@pytest.mark.parametrize(
    ("differences", "clusters", "value", "stderr", "p", "ends"),
    [
        (SIGNS, None, 0.2, 0.206155, 0.357324, (-0.266356, 0.666356)),
        (SIGNS, CLUSTERS, 0.2, 0.127932, 0.220727, (-0.219875, 0.619875)),
        (FINE, None, 0.11875, 0.074365, 0.154329, (-0.057095, 0.294595)),
        ([1] * 10 + [-1] * 2 + [0] * 88, None, 0.08, None, 0.021489, (0.012058, 0.147942)),
        ([0] * 30, None, 0, 0, 1, (-0.115703, 0.115703)),  # 1 - 0.025^(1/30): none of 30 pairs differs
    ],
)
def test_worked_examples(differences, clusters, value, stderr, p, ends):
    found = of(differences, clusters=clusters)
    assert (found.value, found.p, found.method) == (pytest.approx(value), pytest.approx(p, abs=1e-6), "floored_t")
    assert found.interval == pytest.approx(ends, abs=1e-6)
    if stderr is not None:
        assert found.stderr == pytest.approx(stderr, abs=1e-6)


def test_degrees_of_freedom_follow_the_weight_of_the_clusters():
    assert of(SIGNS, clusters=CLUSTERS).freedom == pytest.approx(2.846154, abs=1e-6)  # 4 uneven clusters: U is 3.85
    assert of(SIGNS).freedom == pytest.approx(9)


def test_the_anchor_of_the_paired_difference():
    """delta 0.2 with a paired error of 0.2; unpaired it would be larger, as the runs agree on some tasks."""
    first, second = np.array([1, 1, 1, 0, 1, 0, 1, 1, 0, 1.0]), np.array([1, 0, 1, 0, 0, 0, 1, 1, 1, 0.0])
    units = units_of(first - second)
    assert math.sqrt(units.variance) == pytest.approx(0.2)
    assert math.sqrt((first.var(ddof=1) + second.var(ddof=1)) / 10) == pytest.approx(0.226078, abs=1e-6)
    assert float(np.corrcoef(first, second)[0, 1]) == pytest.approx(0.218218, abs=1e-6)
    assert of(first - second).stderr > 0.2  # the floor


@pytest.mark.parametrize(
    ("differences", "options", "why"),
    [
        ([], {}, NO_COMMON),
        ([0.5], {}, "one task says nothing about others"),
        ([0.5, 0.1], {"clusters": np.array([0, 0])}, "one cluster says nothing about others"),
        ([0.5, math.nan], {}, NOT_FINITE),
        ([0.5, math.inf], {}, NOT_FINITE),
        ([1e200, -3e200], {"limits": None}, "the values are too large for their spread to be a number"),
        ([0, 0, 0], {"limits": None}, "no spread and no known range"),
        ([0.5, 0.1], {"limits": None, "test": STRICT}, NO_RANGE),
    ],
)
def test_no_interval_says_why(differences, options, why):
    found = of(differences, **options)
    assert (found.interval, found.why) == (None, why)


def test_a_test_nobody_knows():
    with pytest.raises(UnknownName, match="no test named 'strikt'; did you mean 'strict'"):
        of(FINE, test="strikt")


def test_one_cluster_is_not_certainty():
    """A clustered error of 0 for a single cluster, as elsewhere, would make any difference significant."""
    found = of([1, 1, 1], clusters=np.array([0, 0, 0]))
    assert (found.value, found.stderr, found.p) == (1.0, None, None)


def test_equal_differences_are_not_certainty():
    found = of([0.1] * 5)
    assert found.interval[0] < 0.1 < found.interval[1]  # a plain t would have no width
    assert 0 < found.p < 0.05


def test_rounding_is_no_difference():
    """The same rewards in two orders of adding: a last digit, on every task the same."""
    first, second = np.full(20, 0.1 + 0.2), np.full(20, 0.3)
    assert of(first - second).p < 1e-9
    assert of(apart(first, second)).p == 1
    assert apart(np.array([0.0, 1e-20]), np.array([0.0, 0.0])).tolist() == [0, 1e-20]


def test_rounding_is_no_difference_of_rates_either():
    """Three samples of 0.1 add up to more than three times 0.1: of thirty such tasks that was a sure difference."""
    one = np.array([[0.1 + 0.1 * (t % 3), 1.0] for t in range(30)])
    three = np.array([[math.fsum([0.1 + 0.1 * (t % 3)] * 3), 3.0] for t in range(30)])
    found = of_rates(three, one)
    assert (found.value, found.p) == (0, 1)
    assert found.interval == of([0] * 30).interval


def test_what_cancels_in_every_cluster_is_no_difference():
    """0.1 and 0.2 less 0.3 is 3e-17."""
    found = of([0.1, 0.2, -0.3] * 10, clusters=np.repeat(np.arange(10), 3))
    assert (found.value, found.p) == (0, 1)


@pytest.mark.parametrize("clusters", [None, np.arange(4) // 2])
def test_an_infinite_difference_is_not_taken_for_rounding(clusters):
    assert apart(np.array([math.inf]), np.array([1.0])).tolist() == [math.inf]
    sums = np.array([[math.inf, 1.0], [1, 1], [0, 1], [1, 1]])
    with np.errstate(invalid="ignore"):
        assert of_rates(sums, np.ones((4, 2)), clusters, limits=None).why == NOT_FINITE
        assert paired(sums[:, 0] - 1, clusters=clusters).why == NOT_FINITE


def test_without_a_range_nothing_is_clipped():
    wide = of([30, -10, 20], limits=None)
    assert wide.interval[0] < -1
    assert wide.interval[1] > 30
    assert of([1, 1, -1, 1]).interval[1] == 1.0


def test_units_without_weight_do_not_count():
    assert of([*FINE, 1], weights=np.array([1.0] * 8 + [0.0])) == of(FINE)


def test_weights_are_shares():
    twice = of([0.3, 0.1, -0.2], weights=np.array([2.0, 2.0, 2.0]))
    assert twice == of([0.3, 0.1, -0.2])
    assert of([1, 0], weights=np.array([3.0, 1.0])).value == 0.75


def test_strict_is_the_default_rule_on_differences():
    for differences, clusters in ((SIGNS, None), (FINE, None), (SIGNS, CLUSTERS), ([0] * 30, None)):
        found = of(differences, clusters=clusters, test=STRICT)
        values = np.array(differences, float)
        expected = interval(values, np.ones(len(values)), 0.95, (-1.0, 1.0), clusters)
        assert found.interval == pytest.approx(expected.ends, abs=1e-12)
        assert found.stderr == pytest.approx(expected.stderr, abs=1e-12)


RATES = np.array([[1, 2], [2, 3], [0, 1], [4, 8.0]]), np.array([[0, 1], [3, 4], [1, 4], [1, 2.0]])


def test_pooled_rates_by_hand():
    """c_g = s_1/14 - s_2/11, residual less (n_1/14) (7/14) - (n_2/11) (5/11), share the mean of two."""
    found = of_rates(*RATES)
    pulls = [1 / 14, 2 / 14 - 3 / 11, -1 / 11, 4 / 14 - 1 / 11]
    expected = [2 / 14 * 0.5 - 1 / 11 * 5 / 11, 3 / 14 * 0.5 - 4 / 11 * 5 / 11]
    expected += [1 / 14 * 0.5 - 4 / 11 * 5 / 11, 8 / 14 * 0.5 - 2 / 11 * 5 / 11]
    variance = 4 / 3 * sum((pull - alike) ** 2 for pull, alike in zip(pulls, expected))
    assert found.value == pytest.approx(7 / 14 - 5 / 11)
    assert found.stderr == pytest.approx(math.sqrt(variance + (max(map(abs, pulls)) / 2) ** 2))
    shares = [(2 / 14 + 1 / 11) / 2, (3 / 14 + 4 / 11) / 2, (1 / 14 + 4 / 11) / 2, (8 / 14 + 2 / 11) / 2]
    assert found.freedom == pytest.approx(1 / sum(share**2 for share in shares) - 1)


def test_pooled_rates_over_even_samples_are_means_over_tasks():
    first, second = (np.stack([passes, np.full(4, 5.0)], axis=1) for passes in ([1.0, 5, 2, 0], [2.0, 2, 2, 2]))
    pooled, over_tasks = of_rates(first, second), of((first[:, 0] - second[:, 0]) / 5)
    assert pooled.interval == pytest.approx(over_tasks.interval, abs=1e-12)
    assert pooled.p == pytest.approx(over_tasks.p, abs=1e-12)
    strict = of_rates(first, second, test=STRICT), of((first[:, 0] - second[:, 0]) / 5, test=STRICT)
    assert strict[0].interval == pytest.approx(strict[1].interval, abs=1e-12)


def test_pooled_rates_over_clusters_are_pooled_rates_of_the_clusters():
    whole = of_rates(*RATES, np.array([0, 0, 1, 1]))
    merged = of_rates(*(np.add.reduceat(run, [0, 2], axis=0) for run in RATES))
    assert (whole.value, whole.stderr) == pytest.approx((merged.value, merged.stderr))


def test_no_passes_at_all_is_no_difference():
    zero = np.stack([np.zeros(5), np.array([1.0, 2, 3, 4, 5])], axis=1)
    found = of_rates(zero, zero[::-1])
    assert (found.value, found.p) == (0, 1)
    assert found.interval[1] > 0


@pytest.mark.parametrize(("bound", "p"), [(-0.1, 0.9**30), (-1, 0), (0, 1), (0.1, 1), (1, 1)])
def test_the_chance_that_no_pair_differs(bound, p):
    """Thirty pairs without a difference: were one in ten worse, they would be 0.9^30."""
    found = of([0] * 30)
    assert found.p_at_most(bound) == pytest.approx(p)
    assert found.p_at_least(-bound) == pytest.approx(p)


TASKS = st.lists(st.tuples(st.sampled_from([-1, -0.5, -0.1, 0, 0.25, 1]), st.integers(0, 4)), min_size=2, max_size=25)


def clustered(rows, use):
    differences, clusters = (np.array(column) for column in zip(*rows))
    codes = np.unique(clusters, return_inverse=True)[1]
    return differences.astype(float), codes if use else None


@given(TASKS, st.booleans(), st.sampled_from(["floored_t", "strict"]), st.sampled_from([0.8, 0.9, 0.95, 0.99]))
def test_test_and_interval_agree_and_hold_the_value(rows, use, test, confidence):
    differences, clusters = clustered(rows, use)
    found = of(differences, clusters=clusters, test=test, confidence=confidence)
    if found.interval is None:
        assert found.why == "one cluster says nothing about others"
        return
    low, high = found.interval
    assert -1 <= low < high <= 1
    assert low - 1e-12 <= found.value <= high + 1e-12
    if abs(found.p - (1 - confidence)) > 1e-9:
        assert (found.p < 1 - confidence) == (low > 0 or high < 0)
    for end, p in ((low, found.p_at_most(low)), (high, found.p_at_least(high))):
        if abs(end) < 1:  # an end is where the one-sided test turns
            assert p == pytest.approx((1 - confidence) / 2, abs=1e-9)


@given(TASKS, st.booleans(), st.sampled_from(["floored_t", "strict"]))
def test_swapping_the_runs_mirrors_all(rows, use, test):
    differences, clusters = clustered(rows, use)
    found, swapped = (of(sign * differences, clusters=clusters, test=test) for sign in (1, -1))
    if found.interval is not None:
        assert swapped.interval == pytest.approx((-found.interval[1], -found.interval[0]), abs=1e-12)
        assert swapped.p == pytest.approx(found.p, abs=1e-12)
        assert swapped.p_at_least(-0.1) == pytest.approx(found.p_at_most(0.1), abs=1e-12)


@given(TASKS, st.randoms(use_true_random=False))
def test_the_order_of_tasks_does_not_matter(rows, random):
    shuffled = random.sample(rows, len(rows))
    assert of(clustered(shuffled, False)[0]) == of(clustered(rows, False)[0])


@given(TASKS)
def test_clusters_of_one_task_are_tasks(rows):
    differences, _ = clustered(rows, False)
    alone = of(differences, clusters=np.arange(len(differences)))
    plain = of(differences)
    assert (alone.value, alone.stderr, alone.p) == pytest.approx((plain.value, plain.stderr, plain.p))


@given(TASKS, st.floats(0.1, 50))
def test_the_unit_of_the_rewards_does_not_matter(rows, unit):
    """An effect in units of its own spread, compared with a drop in reward, is neither (Cohen's d)."""
    differences, _ = clustered(rows, False)
    plain, scaled = of(differences), of(unit * differences, limits=(0.0, unit))
    assert scaled.p == pytest.approx(plain.p, abs=1e-9)
    assert scaled.value == pytest.approx(unit * plain.value, abs=1e-9)
    assert scaled.interval == pytest.approx(tuple(unit * end for end in plain.interval), rel=1e-9, abs=1e-9)


def test_differences_that_cancel_add_up_to_nothing():
    """Thirds and their negatives: the means of three samples, whose rounding is no difference."""
    thirds = np.array([1 / 3, 2 / 3] * 4) - np.array([0.0, 1.0] * 4)
    found = paired(thirds, limits=(0.0, 1.0))
    assert (found.value, found.p) == (0.0, 1.0)
    low, high = found.interval
    assert low == -high
