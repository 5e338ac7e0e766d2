import pytest
from making import rewards

import calipers
from calipers.metrics.rewards import gpass_at_k, mgpass_at_k, needed, pass_at_k, pass_hat_k


def counted(n, c):
    return rewards([1] * c + [0] * (n - c))


@pytest.mark.parametrize(
    ("n", "c", "k", "by_tau", "mean"),
    [
        (10, 7, 4, (1, 0.966667, 0.666667, 0.166667), 0.416667),
        (16, 8, 8, (0.994949, 0.690365, 0.065967, 0.0000777), 0.095183),
        (48, 24, 16, (0.997505, 0.619945, 0.015238, 3.3e-7), 0.079964),
    ],
)
def test_generalised_passes(n, c, k, by_tau, mean):
    for tau, expected in zip((0.25, 0.5, 0.75, 1.0), by_tau):
        found = gpass_at_k(*counted(n, c), k=k, tau=tau, threshold=1.0).values[0]
        assert found == pytest.approx(expected, abs=1e-6)
    assert mgpass_at_k(*counted(n, c), k=k, threshold=1.0).values[0] == pytest.approx(mean, abs=1e-6)


@pytest.mark.parametrize(
    ("tau", "k", "passes"),
    [(0.55, 100, 55), (0.14, 50, 7), (0.28, 25, 7), (0.5, 3, 2), (1.0, 7, 7), (0.01, 3, 1), (1 / 3, 3, 1)],
)
def test_no_float_decides_how_many_must_pass(tau, k, passes):
    assert needed(tau, k) == passes


def test_the_ends_of_tau_are_pass_at_k_and_pass_hat_k():
    for n, c, k in [(5, 2, 3), (6, 6, 4), (4, 0, 2)]:
        tasks = counted(n, c)
        any_pass, all_pass = (gpass_at_k(*tasks, k=k, tau=tau, threshold=1.0).values[0] for tau in (1e-9, 1.0))
        assert any_pass == pass_at_k(*tasks, k=k, threshold=1.0).values[0]
        assert all_pass == pass_hat_k(*tasks, k=k, threshold=1.0).values[0]


@pytest.mark.parametrize("tau", [0, 1.5, -1])
def test_tau_is_a_share(tau):
    with pytest.raises(calipers.InputError, match="expected a share above 0, at most 1"):
        calipers.score([[1, 1]], f"gpass@2(tau={tau})")
