import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betainc, chdtrc

from calipers.stats.paired import flips, mcnemar


@pytest.mark.parametrize(
    ("b", "c", "exact", "mid"),
    [(10, 2, 0.038574, 0.022461), (25, 10, 0.016674, 0.011331), (3, 1, 0.625, 0.375), (5, 5, 1, 1), (0, 0, 1, 1)],
)
def test_anchors(b, c, exact, mid):
    found = mcnemar(b, c)
    assert (found.exact, found.mid_p) == pytest.approx((exact, mid), abs=1e-6)


def test_a_small_p_keeps_its_digits():
    assert mcnemar(121, 59).exact == pytest.approx(4.434e-6, abs=1e-9)


def test_an_improvement_can_be_significant_too():
    """A test that asks only whether the second run is worse can never praise it."""
    found, turned = mcnemar(3, 1), mcnemar(1, 3)
    assert (found.first_better, turned.second_better) == (pytest.approx(0.3125), pytest.approx(0.3125))
    assert (found.second_better, found.exact) == (pytest.approx(0.9375), turned.exact)


def test_what_the_chi_square_would_say():
    chi, corrected = 8**2 / 12, 7**2 / 12
    assert (chi, corrected) == pytest.approx((5.333, 4.0833), abs=1e-3)
    assert (chdtrc(1, chi), chdtrc(1, corrected)) == pytest.approx((0.020921, 0.043308), abs=1e-6)
    assert chdtrc(1, chi) < mcnemar(10, 2).mid_p < mcnemar(10, 2).exact < chdtrc(1, corrected)


def test_the_posterior_chance_knows_the_pairs():
    """65 of 100 against 50 of 100: paired, 25 against 10 flips, is surer than two independent rates."""
    found = mcnemar(25, 10).chance_first
    assert found == pytest.approx(0.994335, abs=1e-6)
    x = (np.arange(20_000) + 0.5) / 20_000
    law = np.exp(65 * np.log(x) + 35 * np.log1p(-x) - (math.lgamma(66) + math.lgamma(36) - math.lgamma(102)))
    apart = float((law * betainc(51, 51, x)).sum() / 20_000)
    assert apart == pytest.approx(0.984, abs=5e-4)
    assert found > apart


def test_flips_are_counted_by_task():
    first, second = np.array([1, 1, 1, 0, 1, 0, 1, 1, 0, 1], bool), np.array([1, 0, 1, 0, 0, 0, 1, 1, 1, 0], bool)
    assert flips(first, second) == mcnemar(3, 1)


def test_no_such_count():
    with pytest.raises(ValueError, match="expected counts"):
        mcnemar(-1, 3)


@given(st.integers(0, 60), st.integers(0, 60))
def test_by_counting_all_outcomes(b, c):
    n = b + c
    ways = [math.comb(n, k) for k in range(n + 1)]
    tail = sum(ways[: min(b, c) + 1]) / 2**n
    found = mcnemar(b, c)
    assert found.exact == pytest.approx(min(1, 2 * tail), rel=1e-10)
    assert found.mid_p == pytest.approx(2 * tail - ways[b] / 2**n, rel=1e-9)
    assert found.first_better == pytest.approx(sum(ways[: c + 1]) / 2**n, rel=1e-10)
    assert found.chance_first + mcnemar(c, b).chance_first == pytest.approx(1)
