import math

import pytest
from making import rewards

import calipers
from calipers.metrics.bayes import posterior, posterior_mean, posterior_pass_at_k, posterior_variance


@pytest.mark.parametrize(
    ("tasks", "mean", "sd"),
    [
        ([[0, 0.5, 1, 1, 0.5], [0.5, 0.5, 0, 1, 1]], 0.5625, 0.0919975),
        ([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]], 0.642857, 0.118451),  # the plain mean is 0.7
    ],
)
def test_published_posteriors(tasks, mean, sd):
    moments = posterior_mean(*rewards(*tasks)).values
    assert float(posterior(moments)) == pytest.approx(mean, abs=1e-6)
    assert math.sqrt(posterior_variance(moments)) == pytest.approx(sd, abs=1e-6)


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [
        (10, 3, 5, 0.818681),
        (10, 0, 5, 0.3125),  # no pass yet is not never
        (10, 3, 100, 0.999945),  # beyond the samples: the model extrapolates
    ],
)
def test_posterior_pass_at_k(n, c, k, expected):
    moments = posterior_pass_at_k(*rewards([1] * c + [0] * (n - c)), k=k, threshold=1.0).values
    assert moments[0, 0] == pytest.approx(expected, abs=1e-6)


def test_a_sure_thing_is_never_certain():
    found = calipers.score([[1] * 10] * 3, "bayes_mean")["bayes_mean"]
    assert found.value == pytest.approx(11 / 12)
    assert found.method == "posterior"
    low, high = found.interval
    assert 0 < low < found.value < high < 1


@pytest.mark.parametrize("tasks", [[[2, 0]], [[-0.5]], [[math.nan, 1]], [[n / 100 for n in range(101)]]])
def test_rewards_that_are_no_rubric_have_no_posterior(tasks):
    found = calipers.score(tasks, "bayes_mean")["bayes_mean"]
    assert (found.value, found.why) == (None, "no task has a value")
