import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.errors import UnknownName
from calipers.stats.judges import INTERVAL, NOBODY, confusion, krippendorff_alpha, pairwise_agreement


def table(*units):
    """Ratings by unit, "-" where a rater gave none."""
    width = max(map(len, units))
    cells = [unit.ljust(width, "-") for unit in units]
    given = np.array([[cell != "-" for cell in unit] for unit in cells])
    return np.array([[float(cell) if cell != "-" else 9.0 for cell in unit] for unit in cells]), given


@pytest.mark.parametrize(
    ("units", "alpha"),
    [
        (("111", "110", "000", "100", "111", "00"), 0.555556),
        (("11", "00", "22"), 1),
        (("10", "01"), -0.5),  # worse than chance
        (("11", "00", "1"), 1),  # a unit with one rating says nothing
        (("111", "11"), None),  # all the same: no disagreement to expect
        (("1", "0"), None),
    ],
)
def test_krippendorffs_alpha(units, alpha):
    found = krippendorff_alpha(*table(*units))
    assert found == (None if alpha is None else pytest.approx(alpha, abs=1e-6))


def test_a_level_nobody_knows():
    with pytest.raises(UnknownName, match="did you mean 'nominal'"):
        krippendorff_alpha(*table("11", "00"), level="nominall")


@given(
    st.lists(st.lists(st.sampled_from("0123-"), min_size=3, max_size=3).map("".join), min_size=2, max_size=8),
    st.sampled_from(["nominal", INTERVAL]),
)
def test_alpha_by_all_pairs(units, level):
    """Pairs of ratings within a unit, weighted by 1/(m - 1), against pairs of all ratings."""
    ratings = [[int(cell) for cell in unit if cell != "-"] for unit in units]
    ratings = [unit for unit in ratings if len(unit) > 1]

    def apart(a, b):
        return (a - b) ** 2 if level == INTERVAL else float(a != b)

    pool = [rating for unit in ratings for rating in unit]
    within = sum(apart(a, b) / (len(unit) - 1) for unit in ratings for a, b in itertools.permutations(unit, 2))
    expected = sum(apart(a, b) for a, b in itertools.permutations(pool, 2))
    found = krippendorff_alpha(*table(*units), level)
    if not expected:
        assert found is None
    else:
        assert found == pytest.approx(1 - (within / len(pool)) / (expected / (len(pool) * (len(pool) - 1))), abs=1e-9)


def test_judges_that_err_together_agree_too_much():
    found = pairwise_agreement(*table("110", "110", "011", "00-"))
    assert found.values.reshape(3, 3)[0].tolist() == pytest.approx([1, 3 / 4, 0])
    assert found.values.reshape(3, 3)[2, 1] == pytest.approx(1 / 3)
    assert not pairwise_agreement(*table("1-", "-1")).given.reshape(2, 2)[0, 1]


LABELS = np.repeat([True, True, False, False], [60, 8, 12, 20])
JUDGED = np.repeat([True, False, True, False], [60, 8, 12, 20])


def test_a_judge_against_labels():
    found = confusion(LABELS, JUDGED)
    counts = (found.true_positives, found.false_negatives, found.false_positives, found.true_negatives)
    assert counts == (60, 8, 12, 20)
    assert (found.sensitivity.value, found.specificity.value) == pytest.approx((0.882353, 0.625), abs=1e-6)
    assert (found.accuracy.value, found.accuracy.of, found.sensitivity.of) == (0.8, 100, 68)
    assert found.specificity.interval == pytest.approx((0.452544, 0.770661), abs=1e-6)  # Wilson's of 20 in 32
    assert found.accuracy.interval[0] < 0.8 < found.accuracy.interval[1]


def test_labels_of_one_kind_leave_the_other_open():
    found = confusion(np.ones(3, bool), np.array([True, False, True]))
    assert (found.specificity.value, found.specificity.why) == (None, NOBODY)
    assert found.sensitivity.value == pytest.approx(2 / 3)


def test_labels_of_one_task_count_together():
    tasks = np.repeat(np.arange(10), 10)
    right = np.repeat(np.arange(10) < 7, 10)
    alone, whole = (confusion(np.ones(100, bool), right, clusters).sensitivity for clusters in (None, tasks))
    assert whole.interval[1] - whole.interval[0] > 2 * (alone.interval[1] - alone.interval[0])


@pytest.mark.parametrize("units", range(2, 12))
def test_equal_ratings_have_no_alpha_whatever_the_rounding_of_their_mean(units):
    for rating in (0.1, 0.3, 0.7, 1 / 3):
        ratings = np.full((units, 2), rating)
        assert krippendorff_alpha(ratings, np.ones((units, 2), dtype=bool), INTERVAL) is None
