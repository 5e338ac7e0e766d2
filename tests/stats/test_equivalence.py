import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.stats.margins import equivalence, margin_ends, margin_method, non_inferiority
from calipers.stats.paired import Difference, paired
from examples import examples


def known(value, stderr, **options):
    """A difference whose error is known: the normal distribution."""
    return Difference(value, stderr, None, 1.0, "z", 1000, 1000, **options)


def test_the_anchor():
    """delta -0.004 with an error of 0.006: no worse than 0.015, p 0.033."""
    found = non_inferiority(known(-0.004, 0.006), 0.015, confidence=0.9)
    assert (found.p, found.shown) == (pytest.approx(0.033377, abs=1e-6), True)
    assert not non_inferiority(known(-0.004, 0.006), 0.015).shown  # at 95 % it takes 2.5 %, as an end of the interval
    assert equivalence(known(-0.004, 0.006), 0.015).p == found.p  # the nearer side decides


def test_not_significant_is_not_the_same():
    """Ten tasks without a significant difference have shown nothing; a thousand without any have."""
    few = paired(np.array([1.0, -1, 0, 0, 0, 0, 0, 0, 0, 0]), limits=(0, 1))
    assert few.p == 1
    assert not equivalence(few, 0.05).shown
    assert equivalence(paired(np.zeros(1000), limits=(0, 1)), 0.05).shown
    assert not equivalence(paired(np.zeros(10), limits=(0, 1)), 0.05).shown


def test_lower_may_be_better():
    slower = known(0.02, 0.006)
    assert non_inferiority(slower, 0.015).shown  # of a reward: better is no worse
    assert not non_inferiority(slower, 0.015, higher_is_better=False).shown


def test_no_test_shows_nothing():
    found = equivalence(paired(np.array([0.5]), limits=(0, 1)), 0.1)
    assert (found.p, found.shown) == (None, False)


@pytest.mark.parametrize("margin", [0, -0.1, float("nan")])
def test_a_margin_is_above_0(margin):
    for ask in (equivalence, non_inferiority):
        with pytest.raises(ValueError, match="above 0"):
            ask(known(0.0, 0.1), margin)


DIFFERENCES = st.lists(st.sampled_from([-1, -0.3, 0, 0, 0, 0.2, 1]), min_size=2, max_size=30)


@examples(50)
@given(DIFFERENCES, st.floats(0.05, 0.95), st.sampled_from(["floored_t", "strict"]))
def test_equivalent_is_within_the_ends_of_margins_at_twice_the_doubt(differences, margin, test):
    found = paired(np.array(differences, float), limits=(0, 1), confidence=0.9, test=test)
    low, high = margin_ends(found, 0.9)
    shown = equivalence(found, margin)
    if min(abs(margin + low), abs(margin - high)) > 1e-5 and margin_method(found) != "tango":
        assert shown.shown == (-margin < low and high < margin)
