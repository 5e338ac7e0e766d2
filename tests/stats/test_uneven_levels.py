"""What the bench simulates is what ships: its rules over counts, and the product's over rollouts, agree."""

import sys
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
from making import rewards

sys.path.append(str(Path(__file__).parents[2]))

from bench.simulations.uneven import (
    DEPENDENT,
    INDEPENDENT,
    after_retries,
    catastrophes,
    warning_rate,
)
from bench.simulations.uneven_rule import retried, scores, warned
from calipers.stats.intervals import interval
from calipers.stats.variance import Retries, Samples, dependence_of, score_test


def listed(n, c, last):
    """Rewards with so many samples and passes, of which the last is one or not."""
    ends = [1] if last else [0]
    return ([1] * (c - last) + [0] * (n - c - (not last)) + ends) if n else []


@pytest.mark.parametrize("name", [*INDEPENDENT, *DEPENDENT])
@pytest.mark.parametrize("tasks", [12, 40])
def test_the_rules_of_the_bench_are_those_of_the_product(name, tasks):
    rng = np.random.default_rng(5)
    drawn = {**INDEPENDENT, **DEPENDENT}[name](rng.beta(0.5, 0.8, (60, tasks)), rng)
    hits, patterns, z = warned(*drawn), retried(*drawn), scores(*drawn[:2])
    for run in range(60):
        column, by = rewards(*(listed(*each) for each in zip(*(part[run].tolist() for part in drawn), strict=True)))
        found = dependence_of(Samples.of(column, by, 1.0))
        assert (found is not None) == hits[run]
        assert isinstance(found, Retries) == patterns[run]
        if (tested := score_test(Samples.of(column, by, 1.0))) is not None:
            assert tested.z == pytest.approx(z[run])


def test_false_warnings_are_rare():
    rate = warning_rate(INDEPENDENT["1 to 8 at random"], (10.0, 0.5), 200, 4_000, np.random.default_rng(1))
    assert rate < 0.01 + 4 * sqrt(0.01 * 0.99 / 4_000)


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
