"""Published and computed anchors of the estimators, where they are facts about the estimator itself."""

import math
from math import comb

import numpy as np
import pytest
from making import rewards

from calipers.metrics import percentile
from calipers.metrics.rewards import _all_fail, any_of_first_k, pass_at_k, posterior, posterior_mean, posterior_variance
from calipers.stats.intervals import interval


def binomial(n, p):
    return [comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]


def test_the_first_k_have_the_right_mean_and_six_times_the_variance():
    """n = 16, k = 4, p = 0.3: why extra samples are not thrown away."""
    n, k, p = 16, 4, 0.3
    truth = 1 - (1 - p) ** k
    values = [pass_at_k(*rewards([1] * c + [0] * (n - c)), k=k, threshold=1.0).values[0] for c in range(n + 1)]
    chances = binomial(n, p)
    mean = math.fsum(w * v for w, v in zip(chances, values))
    variance = math.fsum(w * (v - mean) ** 2 for w, v in zip(chances, values))
    plug_in = math.fsum(w * (1 - (1 - c / n) ** k) for c, w in enumerate(chances))
    assert mean == pytest.approx(truth, abs=1e-12)  # unbiased
    assert truth * (1 - truth) / variance == pytest.approx(6.5, abs=0.05)  # any of the first k is one draw of 0 or 1
    assert plug_in - truth == pytest.approx(-0.03817, abs=5e-6)  # 1 - (1 - c/n)^k is not
    assert any_of_first_k(*rewards([0] * 12 + [1] * 4), k=k, threshold=1.0).values[0] == 0  # and depends on order


def test_trials_known_beforehand_are_samples_like_any_other():
    """Prior rows of a posterior (Hariri et al. 2026): levels 0, 1/2, 1."""
    tasks = [[0, 0.5, 1, 1, 0.5, *(0, 1)], [0.5, 0.5, 0, 1, 1, *(0.5, 1)]]
    moments = posterior_mean(*rewards(*tasks)).values
    assert float(posterior(moments)) == pytest.approx(0.575, abs=1e-9)
    assert math.sqrt(posterior_variance(moments)) == pytest.approx(0.084275, abs=1e-6)


def test_ten_passes_of_ten_are_not_five_more_for_certain():
    assert float(_all_fail(10, 0, 5)) == 0.6875  # mirrored: ten failures of ten, five more failures


@pytest.mark.parametrize(("tasks", "coverage"), [(10, 0.930), (30, 0.974), (100, 0.936), (300, 0.958), (1000, 0.949)])
def test_exact_coverage_at_nine_in_ten(tasks, coverage):
    """Wilson's interval, which ours is on 0/1 values; Wald's covers 0.650 and 0.809 on 10 and 30 tasks."""
    p, covered = 0.9, []
    chances = np.exp(
        [
            math.lgamma(tasks + 1)
            - math.lgamma(c + 1)
            - math.lgamma(tasks - c + 1)
            + c * math.log(p)
            + (tasks - c) * math.log(1 - p)
            for c in range(tasks + 1)
        ]
    )
    for c, chance in enumerate(chances):
        if chance > 1e-12:
            low, high = interval(np.array([1.0] * c + [0.0] * (tasks - c)), np.ones(tasks), 0.95, (0.0, 1.0)).ends
            covered.append(chance * (low <= p <= high))
    assert math.fsum(covered) == pytest.approx(coverage, abs=6e-4)


SCORES = [1, 1, 0, 0, 0, 1, 1, 1, 0, 1]
CLUSTERS = [0, 0, 0, 1, 1, 2, 2, 2, 3, 3]


def test_clustered_standard_errors():
    """With the finite-cluster correction, and what it corrects; the intervals that others make of it."""
    found = interval(np.array(SCORES, float), np.ones(10), 0.95, None, np.array(CLUSTERS))
    assert found.stderr == pytest.approx(0.198662, abs=1e-6)
    assert found.stderr * math.sqrt(3 / 4) == pytest.approx(0.172047, abs=1e-6)  # without the correction
    by_z = (0.6 - 1.959964 * found.stderr, 0.6 + 1.959964 * found.stderr)
    assert by_z == pytest.approx((0.2106, 0.9894), abs=1e-4)
    by_t = (0.6 - 3.182446 * found.stderr, 0.6 + 3.182446 * found.stderr)  # 3 degrees of freedom
    assert by_t == pytest.approx((-0.0322, 1.2322), abs=1e-4)
    assert found.ends[0] < by_t[0]  # ours has U - 1 = 2.85: uneven clusters carry less
    assert found.ends[1] > by_t[1]


@pytest.mark.parametrize(
    ("passes", "tasks", "by_z", "by_t"),
    [
        (8, 10, (0.5521, 1.0479), (0.4984, 1.1016)),
        (24, 30, (0.656864, 0.943136), (0.648084, 0.951916)),
        (144, 164, (0.827967, 0.928130), (0.827438, 0.928660)),
        (450, 500, (0.873704, 0.926296), (0.873614, 0.926386)),
    ],
)
def test_what_wald_and_t_would_say_and_where_they_leave_the_range(passes, tasks, by_z, by_t):
    values = np.array([1.0] * passes + [0.0] * (tasks - passes))
    rate = passes / tasks
    half = 1.959964 * math.sqrt(rate * (1 - rate) / tasks)
    assert (rate - half, rate + half) == pytest.approx(by_z, abs=1e-4)
    assert interval(values, np.ones(tasks), 0.95, None).ends == pytest.approx(by_t, abs=1e-4)
    low, high = interval(values, np.ones(tasks), 0.95, (0.0, 1.0)).ends
    assert 0 < low < rate < high < 1


@pytest.mark.parametrize(("q", "linear", "higher"), [(50, 10.5, 11), (90, 18.1, 19), (95, 19.05, 20), (99, 19.81, 20)])
def test_a_percentile_is_a_matter_of_its_rule(q, linear, higher):
    values = np.arange(1.0, 21.0)
    assert float(percentile(values, q=q)) == pytest.approx(linear)  # ours, and the card says so
    assert float(np.percentile(values, q, method="higher")) == higher


def test_the_standard_error_of_a_share_two_ways():
    found = interval(np.array(SCORES, float), np.ones(10), 0.95, (0.0, 1.0))
    assert found.stderr == pytest.approx(0.163299, abs=1e-6)  # n - 1
    assert found.stderr * math.sqrt(9 / 10) == pytest.approx(0.154919, abs=1e-6)  # sqrt(p (1 - p) / n)
