import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import stdtr

from calipers.stats.paired import FEW, sign_flip, units_of

FINE = np.array([0.3, 0.1, -0.2, 0.4, 0.25, 0, 0.15, -0.05])


def test_the_anchor():
    found = sign_flip(FINE)
    assert found.p == 0.15625
    assert (found.exact, found.units, found.patterns) == (True, 7, 128)  # the 0 has no sign


def test_what_the_t_test_would_say():
    units = units_of(FINE)
    t = units.pulls.sum() / np.sqrt(units.variance)
    assert 2 * stdtr(7, -t) == pytest.approx(0.133793, abs=1e-6)


def test_no_difference_at_all():
    assert (sign_flip(np.zeros(30)).p, sign_flip(np.zeros(0)).p) == (1, 1)


def test_ties_are_ties_though_sums_are_rounded():
    """0.1 + 0.2 - 0.3 is not 0 in floating point; ten patterns of these six are as large as the one seen."""
    pulls = np.array([0.1, 0.2, -0.3, 0.1, 0.2, 0.3])
    seen = round(pulls.sum(), 9)
    sums = [round(float(np.dot(signs, np.abs(pulls))), 9) for signs in itertools.product([1, -1], repeat=6)]
    assert sign_flip(pulls).p == sum(abs(value) >= seen for value in sums) / 64


def test_rounding_does_not_choose_other_patterns():
    """A mean and a rate of the same tasks are one test: pulls of one size may change places by their last bit."""
    rng = np.random.default_rng(0)
    pulls = rng.integers(-3, 5, 60) / 4 / 60
    shaken = np.nextafter(pulls, rng.choice([-1.0, 1.0], 60)) * (pulls != 0)
    assert sign_flip(pulls).units > FEW
    assert sign_flip(pulls).p == sign_flip(shaken).p == sign_flip(-pulls).p


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=9))
def test_exact_is_the_count_over_all_patterns(pulls):
    size = [abs(pull) for pull in pulls if pull]
    sums = [sum(s * x for s, x in zip(signs, size)) for signs in itertools.product([1, -1], repeat=len(size))]
    found = sign_flip(np.array(pulls) / 7)
    assert found.p == sum(abs(value) >= abs(sum(pulls)) for value in sums) / len(sums)


@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_a_sample_of_patterns_is_near_the_truth(seed):
    """21 units are one too many to look at all; doubling the exact answer's data by zeros changes nothing."""
    pulls = np.random.default_rng(seed).normal(0.3, 1, FEW)
    exact = sign_flip(pulls)
    sampled = sign_flip(np.concatenate([pulls, [1e-9]]), seed=seed)
    assert (exact.exact, sampled.exact) == (True, False)
    assert sampled.p == pytest.approx(exact.p, abs=6 * np.sqrt(exact.p * (1 - exact.p) / 10_000) + 2e-4)


def test_one_seed_one_answer_whatever_the_order():
    pulls = np.random.default_rng(1).normal(size=500)
    found = sign_flip(pulls, seed=4)
    assert sign_flip(pulls[::-1].copy(), seed=4) == found
    assert sign_flip(pulls, seed=5) != found
    assert found.p * 10_001 == pytest.approx(round(found.p * 10_001))  # hits + 1 of draws + 1


def test_a_sure_difference_has_the_smallest_p_that_can_be_had():
    assert sign_flip(np.ones(100), draws=999).p == 1 / 1000  # never 0: what was seen is one of the patterns
    assert sign_flip(np.ones(10)).p == 2 / 1024


def test_clusters_are_flipped_as_one():
    differences, clusters = np.array([0.5, 0.5, 0.5, 0.5, -0.1]), np.array([0, 0, 0, 0, 1])
    assert sign_flip(units_of(differences).pulls).p == 0.125  # five tasks look like evidence
    assert sign_flip(units_of(differences, clusters=clusters).pulls).p == 1  # two clusters are none


def test_what_is_no_number_has_no_sign():
    with pytest.raises(ValueError, match="not a finite number"):
        sign_flip(np.array([1.0, np.nan]))
