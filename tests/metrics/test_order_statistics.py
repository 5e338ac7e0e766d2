import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import calipers
from calipers.metrics import WORTH_A_SAMPLE, percentiles, ranked

MANY = 2 * WORTH_A_SAMPLE + 1
DRAW = np.random.default_rng(3)


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=30), st.data())
def test_few_values_stand_where_sorting_puts_them(values, data):
    ranks = data.draw(st.lists(st.integers(0, len(values) - 1), min_size=1))
    assert ranked(np.array(values), ranks).tolist() == [sorted(values)[rank] for rank in ranks]


@pytest.mark.parametrize(
    "values",
    [
        DRAW.lognormal(3, 1, MANY),
        DRAW.integers(0, 50, MANY).astype(float),
        (DRAW.random(MANY) < 0.7).astype(float),  # both bounds are the same value, 1
        DRAW.integers(0, 2, MANY).astype(float),  # the median is between 0 and 1
        np.arange(float(MANY)),
        np.where(np.arange(MANY) % (MANY // (1 << 13)) == 0, 1e9, DRAW.random(MANY)),  # the sample has only 1e9
        np.where(DRAW.random(MANY) < 0.4, np.where(DRAW.random(MANY) < 0.5, -np.inf, np.inf), DRAW.random(MANY)),
        np.zeros(MANY),
    ],
    ids=["skewed", "ties", "mostly ones", "bits", "sorted", "deceived", "infinite", "constant"],
)
@pytest.mark.parametrize("share", [0, 0.001, 0.5, 0.9, 0.999, 1])
def test_many_values_stand_where_sorting_puts_them(values, share):
    ranks = [int(share * (MANY - 2)), int(share * (MANY - 2)) + 1]
    assert ranked(values, ranks).tolist() == np.sort(values)[ranks].tolist()


def test_ranks_far_apart():
    values = DRAW.random(MANY)
    assert ranked(values, [0, MANY - 1]).tolist() == [values.min(), values.max()]


@pytest.mark.parametrize("size", [5, MANY])
def test_no_rank_is_known_where_a_value_is_no_number(size):
    values = np.arange(float(size))
    values[3] = math.nan
    assert np.isnan(ranked(values, [0, 1])).all()
    assert np.isnan(percentiles(values, [0, 50])).all()


@pytest.mark.parametrize("size", [1, 2, 7, 1000, MANY])
def test_percentiles_are_those_of_numpy_to_the_last_bit(size):
    values, levels = DRAW.lognormal(0, 3, size), [0, 0.1, 12.5, 49.9, 50, 50.1, 100]
    assert percentiles(values, levels).tolist() == np.percentile(values, levels).tolist()
    for level in levels:  # one level at a time, because a sample bounds one level closely, but not all levels together
        assert percentiles(values, [level]).tolist() == [np.percentile(values, level)]


def test_the_values_are_left_as_they_were():
    values = DRAW.random(MANY)
    before = values.copy()
    ranked(values, [5, MANY // 2])
    assert (values == before).all()


def test_an_infinite_neighbour_has_no_say():
    """Infinity times 0 is NaN, and the median of 1, 2 and infinity is 2."""
    inf = np.inf
    assert percentiles(np.array([1.0, 2.0, inf]), [0, 25, 50, 60, 90, 100]).tolist() == [1, 1.5, 2, inf, inf, inf]
    assert percentiles(np.array([-inf, 2.0, inf]), [20, 50, 70]).tolist() == [-inf, 2, inf]
    records = [[float(reward)] for reward in range(30)] + [[inf]] * 10
    found = calipers.score(records, ["median(column=reward)", "percentile(column=reward,q=70)"])
    assert found["median(column=reward)"].value == 19.5
    assert found["median(column=reward)"].interval is not None
    percentile = found["percentile(column=reward,q=70)"]
    assert (percentile.interval, percentile.why) == (None, "the values around the percentile are not all finite")
    assert found.to_dict()["digest"]
