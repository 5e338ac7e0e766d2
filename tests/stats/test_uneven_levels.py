"""False warnings of sample counts that depend on results are rare, and the metrics that are recommended are right."""

import sys
from math import sqrt
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2]))

from bench.simulations.uneven import (
    INDEPENDENT,
    after_retries,
    catastrophes,
    warning_rate,
)
from calipers.stats.intervals import interval


def test_false_warnings_are_rare():
    rate = warning_rate(INDEPENDENT["1 to 8 at random"], (10.0, 0.5), 200, 4_000, np.random.default_rng(1))
    assert rate < 0.02 + 4 * sqrt(0.02 * 0.98 / 4_000)


@pytest.mark.parametrize("k", [1, 4])
def test_any_of_first_k_is_right_after_retries_and_all_samples_are_not(k):
    right, wrong = after_retries(100, k, 4_000, np.random.default_rng(2)).values()
    assert abs(right.bias) < 0.003
    assert right.coverage > 0.93
    assert abs(wrong.bias) > 0.1
    assert wrong.coverage < 0.1


def test_rare_catastrophes_are_often_not_seen():
    values = catastrophes(200, 0.01, 2_000, np.random.default_rng(3))
    ends = [interval(row, np.ones(200), 0.95, (0.0, 1.0)).ends for row in values]
    covered = np.mean([low <= 0.99 * 0.92 <= high for low, high in ends])
    assert covered == pytest.approx(0.87, abs=0.03)
