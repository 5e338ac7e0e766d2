from math import comb

import numpy as np
import pytest

from calipers.stats.paired import below


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.8, 1.0])
def test_it_is_the_sum_of_the_chances_of_as_few_passes(rate):
    passes, samples = np.array([0, 1, 3, 8, 5]), np.array([1, 4, 8, 8, 20])
    sums = [sum(comb(n, i) * rate**i * (1 - rate) ** (n - i) for i in range(c + 1)) for c, n in zip(passes, samples)]
    assert below(passes, samples, rate) == pytest.approx(sums, abs=1e-14)


def test_rates_that_all_reach_or_nobody_does():
    passes, samples = np.array([0, 4]), np.array([4, 4])
    assert below(passes, samples, 0.0).tolist() == [1.0, 1.0]
    assert below(passes, samples, 1.5).tolist() == [0.0, 0.0]
