import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.stats.intervals import MANY, _t_quantile, interval, spread_of, strength_of

CLUSTERS = [0, 0, 0, 1, 1, 2, 2, 2, 3, 3]
SCORES = [1, 1, 0, 0, 0, 1, 1, 1, 0, 1]


def of(values, weights=None, limits=(0.0, 1.0), clusters=None, confidence=0.95):
    weights = np.ones(len(values)) if weights is None else np.array(weights, dtype=float)
    units = None if clusters is None else np.array(clusters)
    return interval(np.array(values, dtype=float), weights, confidence, limits, units)


@pytest.mark.parametrize(
    ("values", "options", "stderr", "ends"),
    [
        ([1] * 8 + [0] * 2, {}, 0.133333, (0.490162, 0.943318)),
        ([1] * 30, {}, 0, (0.886487, 1)),
        ([0] * 5, {}, 0, (0, 0.434482)),
        ([0.5] * 30, {}, 0, (0.466589, 0.533411)),
        ([0.25, 0.5, 0.5, 0.75, 1], {}, 0.127475, (0.286875, 0.848327)),
        ([0.25, 0.5, 0.5, 0.75, 1], {"confidence": 0.9}, 0.127475, (0.337683, 0.815262)),
        ([0.25, 0.5, 0.5, 0.75, 1], {"confidence": 0.99}, 0.127475, (0.194483, 0.903093)),
        ([0.5, 0.75], {}, 0.125, (0.062984, 0.976373)),
        ([0, 0.25, 0.25, 0.5, 0.75, 1, 1, 1], {}, 0.141244, (0.316716, 0.821696)),
        ([1, 0.5, 0, 1, 0.625, 1], {"weights": [3, 2, 4, 2, 8, 1]}, 0.155692, (0.238751, 0.877662)),
        ([1, 0.5, 0, 1, 0.625, 1], {}, None, (0.342647, 0.902774)),
        (SCORES, {"clusters": CLUSTERS}, 0.198662, (0.218941, 0.889218)),
        (SCORES, {}, 0.163299, (0.312674, 0.831820)),
        ([1] * 20, {"clusters": np.repeat(range(4), 5)}, 0, (0.550521, 1)),
        ([-1, -0.5, 0, 0.5, 0.5, 1, 1, 1], {"limits": (-1, 1)}, 0.266215, (-0.255545, 0.720153)),
        ([1, 0, 0.5, 1], {"weights": [4, 1, 2, 1]}, 0.197642, (0.242207, 0.965705)),
        ([3, 5.5, 4, 7.5, -1], {"limits": None}, None, (-0.141183, 7.741183)),
    ],
)
def test_worked_examples(values, options, stderr, ends):
    found = of(values, **options)
    assert found.ends == pytest.approx(ends, abs=1e-6)
    if stderr is not None:
        assert found.stderr == pytest.approx(stderr, abs=1e-6)


@pytest.mark.parametrize(
    ("passes", "tasks", "ends"),
    [
        (24, 30, (0.626943, 0.904949)),
        (144, 164, (0.819141, 0.919652)),
        (450, 500, (0.870578, 0.923322)),
        (0, 30, (0, 0.113513)),
    ],
)
def test_zeros_and_ones_get_wilsons_interval(passes, tasks, ends):
    found = of([1] * passes + [0] * (tasks - passes))
    assert found.method == "wilson"
    assert found.ends == pytest.approx(ends, abs=1e-6)


@pytest.mark.parametrize(
    ("values", "options", "why"),
    [
        ([1], {}, "one task says nothing about others"),
        ([1, 0, 1], {"clusters": [0, 0, 0]}, "one cluster says nothing about others"),
        ([2, 2, 2], {"limits": None}, "no spread and no known range"),
    ],
)
def test_no_interval_says_why(values, options, why):
    found = of(values, **options)
    assert (found.ends, found.why) == (None, why)


def test_effective_tasks_of_the_examples():
    def tasks(values, clusters=None):
        return strength_of(spread_of(np.array(values, float), np.ones(len(values)), clusters=clusters))[0]

    assert tasks([0.5] * 30) == pytest.approx(930)
    assert tasks([0.25, 0.5, 0.5, 0.75, 1]) == pytest.approx(11.666667)
    assert tasks(SCORES, np.array(CLUSTERS)) == pytest.approx(6.7322, abs=1e-4)


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0.01, 10), st.integers(0, 5)), min_size=2, max_size=40),
    st.booleans(),
    st.floats(0.5, 0.999),
)
def test_never_empty_never_outside_always_holding_the_value(rows, clustered, confidence):
    values, weights, clusters = (np.array(column) for column in zip(*rows))
    found = of(
        values,
        weights,
        clusters=np.unique(clusters, return_inverse=True)[1] if clustered else None,
        confidence=confidence,
    )
    if found.ends is None:
        assert found.why == "one cluster says nothing about others"
        return
    low, high = found.ends
    assert 0 <= low < high <= 1
    assert low <= math.fsum(values * weights) / math.fsum(weights) <= high


@given(st.lists(st.sampled_from([0, 0.25, 0.5, 1]), min_size=2, max_size=30))
def test_swapping_pass_and_fail_mirrors_the_interval(values):
    low, high = of(values).ends
    mirrored = of([1 - value for value in values]).ends
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-12)


@pytest.mark.parametrize("tasks", [3, 7, 30, 49, 1000])
def test_all_passes_end_exactly_at_one(tasks):
    assert of([1] * tasks).ends[1] == 1.0
    assert of([0] * tasks).ends[0] == 0.0


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.95, 0.99, 0.999])
@pytest.mark.parametrize("freedom", [MANY, 5_000.5, 62_499, 1e7, 1e12])
def test_the_expansion_of_the_t_quantile_has_all_its_digits(confidence, freedom):
    from scipy.special import stdtrit

    assert _t_quantile(confidence, freedom) == pytest.approx(stdtrit(freedom, (1 + confidence) / 2), rel=2e-14)


def test_without_a_range_it_is_the_t_interval_over_tasks():
    found = of([3, 5.5, 4, 7.5, -1], limits=None)
    assert (found.method, found.why) == ("t", None)
    assert found.stderr == pytest.approx(1.419507, abs=1e-6)
    two = of([1.0, 2.0], limits=None)
    assert two.ends == pytest.approx((1.5 - 12.706205 * 0.5, 1.5 + 12.706205 * 0.5), abs=1e-5)
    assert of([2, 2, 2], limits=None).stderr == 0.0


@pytest.mark.parametrize(("value", "tasks"), [(0.1, 3), (1.1, 7), (7.3, 10), (1e-9, 6)])
def test_equal_values_whose_mean_is_rounded_have_no_spread(value, tasks):
    found = of([value] * tasks, limits=None)
    assert (found.stderr, found.ends, found.why) == (0.0, None, "no spread and no known range")


def test_the_rounding_of_a_mean_is_no_standard_error():
    found = of([0.1] * 3)
    assert found.stderr == 0.0  # not 1e-17
    assert found.ends == pytest.approx(of([0.125] * 3).ends, abs=0.05)
