import math

import pytest
from making import rewards

import calipers
from calipers.metrics.rewards import posterior, posterior_mean, posterior_pass_at_k, posterior_variance


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
        (10, 0, 5, 0.3125),  # a rate without passes yet is not 0
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


@pytest.mark.parametrize("k", [1500, 100_000])  # 1 minus the chance, or its variance, would not be representable
def test_a_chance_that_rounds_to_one_has_no_interval_and_says_so(k):
    found = calipers.score([[1] * 500 + [0] * 500] * 3, f"bayes_pass@{k}")[f"bayes_pass@{k}"]
    assert found.value == 1.0
    assert (found.interval, found.why) == (None, "the posterior is narrower than the rounding of its mean")


@pytest.mark.parametrize("tasks", [[[2, 0]], [[-0.5]], [[math.nan, 1]], [[n / 100 for n in range(101)]]])
def test_rewards_that_are_no_rubric_have_no_posterior(tasks):
    found = calipers.score(tasks, "bayes_mean")["bayes_mean"]
    assert (found.value, found.why) == (None, "no task has a value")


@pytest.mark.parametrize(("n", "c", "k"), [(10, 3, 5), (1, 0, 1), (1, 1, 2), (4, 4, 3), (7, 2, 20)])
def test_the_variance_of_a_posterior_is_its_integral(n, c, k):
    from scipy.integrate import quad
    from scipy.special import beta

    def moment(power):
        return quad(lambda p: (1 - (1 - p) ** k) ** power * p**c * (1 - p) ** (n - c) / beta(c + 1, n - c + 1), 0, 1)[0]

    column = posterior_pass_at_k(*rewards([1] * c + [0] * (n - c), []), k=k, threshold=1.0)
    assert column.given.tolist() == [True, False]
    assert column.values[0] == pytest.approx([moment(1), moment(2) - moment(1) ** 2], abs=1e-10)


def test_the_credible_interval_is_that_of_a_beta_with_the_same_moments():
    from scipy.special import betaincinv

    found = calipers.score([[0, 1, 1, 0, 1]], "bayes_mean")["bayes_mean"]  # one task: Beta(4, 3) itself
    assert found.stderr == pytest.approx(math.sqrt(4 * 3 / (49 * 8)))
    assert found.interval == pytest.approx(tuple(betaincinv(4, 3, [0.025, 0.975])), abs=1e-9)
    narrower = calipers.score([[0, 1, 1, 0, 1]], "bayes_mean", confidence=0.5)["bayes_mean"].interval
    assert found.interval[0] < narrower[0] < narrower[1] < found.interval[1]
