from statistics import NormalDist

import numpy as np
import pytest
from making import GAP, rewards

from calipers.metrics import percentile
from calipers.rollouts.column import Column, Groups
from calipers.stats.intervals import ALL_EQUAL, EXTREME, TOO_FEW, quantile_interval


def of(tasks, q=50, confidence=0.95, clusters=None):
    column, by = rewards(*tasks)
    return quantile_interval(column, by, q, float(percentile(column.kept(), q)), confidence, clusters)


def test_the_median_of_single_samples_is_between_two_order_statistics():
    found = of([[float(n)] for n in range(1, 101)])
    assert found.method == "woodruff"
    assert found.ends == pytest.approx((41, 60), abs=1)  # the binomial interval of 50 in 100, as ranks


@pytest.mark.parametrize(
    ("tasks", "q", "why"),
    [
        ([[1.0], [2.0], [3.0]], 100, EXTREME),
        ([[1.0], [2.0], [3.0]], 0, EXTREME),
        ([[5.0, 5.0]] * 20, 50, ALL_EQUAL),
        ([[1.0, 2.0, 3.0]], 50, "one task says nothing about others"),
        ([[float(n)] for n in range(20)], 99, TOO_FEW),  # the largest of 20 is below it four times in five
        ([[float(n)] for n in range(20)], 2, TOO_FEW),
    ],
)
def test_no_interval_says_why(tasks, q, why):
    assert (of(tasks, q).ends, of(tasks, q).why) == (None, why)


def test_repeats_of_one_task_are_no_more_tasks():
    once = of([[float(n)] for n in range(40)])
    often = of([[float(n)] * 16 for n in range(40)])
    assert often.ends[1] - often.ends[0] == pytest.approx(once.ends[1] - once.ends[0], abs=1.5)


def test_gaps_are_no_values_and_clusters_are_the_units():
    tasks = [[float(n), GAP] for n in range(60)]
    assert of(tasks).ends == of([[float(n)] for n in range(60)]).ends
    wide, plain = of(tasks, clusters=np.arange(60) // 10).ends, of(tasks).ends
    assert wide[1] - wide[0] > plain[1] - plain[0]


@pytest.mark.parametrize(
    ("tasks", "samples", "icc", "q"),
    [(100, 3, 0.5, 50), (100, 3, 0.5, 90), (40, 8, 0.9, 90), (300, 4, 0.5, 99), (20, 1, 0.0, 50)],
)
def test_it_covers_what_it_promises(tasks, samples, icc, q):
    rng = np.random.default_rng(7)
    by = Groups.of(np.repeat(np.arange(tasks), samples), tasks)
    truth, covered, runs = NormalDist().inv_cdf(q / 100), 0, 400
    for _ in range(runs):
        centre = np.repeat(rng.normal(0, np.sqrt(icc), tasks), samples)
        values = centre + rng.normal(0, np.sqrt(1 - icc), tasks * samples)
        at = float(percentile(values, q))
        low, high = quantile_interval(Column.of(values), by, q, at, 0.95, None).ends
        covered += low <= truth <= high
    assert 0.915 <= covered / runs <= 0.99  # nominal 0.95; one standard error of 400 runs is 0.011
