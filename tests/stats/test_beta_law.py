"""The zero-inflated beta-binomial: its likelihood, its best fit, and grids of it."""

import math

import numpy as np
import pytest
from scipy.special import betaln
from scipy.stats import betabinom

from calipers.stats.extrapolation import (
    WHOLE,
    Grid,
    PassCounts,
    exact_profile,
    likeliest,
    log_beta_binomial,
    zoomed,
)


def even(seen):
    """Tasks with 0 to n passes of n samples each."""
    n = len(seen) - 1
    return PassCounts(np.full(n + 1, n), np.arange(n + 1)), np.array(seen, dtype=float)


def log_likelihood(counts, table, a, b, never):
    """The plain sum over tasks, without any grid."""
    chances = (1 - never) * betabinom.pmf(counts.c, counts.n, a, b) + never * (counts.c == 0)
    return math.fsum(times * math.log(chance) for times, chance in zip(table, chances, strict=True) if times)


def fitted(counts, table):
    return likeliest(zoomed(counts, table), table)


@pytest.mark.parametrize(
    ("seen", "k", "law", "largest", "value"),
    [
        ([40, 12, 10, 13, 25], 16, (0.479712, 0.430046, 0.189912), -146.343241, 0.700337),
        ([45, 5, 4, 4, 5, 5, 6, 8, 18], 64, (0.707097, 0.425078, 0.388180), -174.634155, 0.597304),
        ([2, 10, 25, 38, 25], 16, None, -136.956573, 0.996718),  # a and b are flat there
    ],
)
def test_the_likeliest_law(seen, k, law, largest, value):
    found = fitted(*even(seen))
    if law:
        assert (found.a, found.b, found.never_solved) == pytest.approx(law, abs=1e-5)
    assert found.log_likelihood == pytest.approx(largest, abs=1e-6)
    solved = -math.expm1(betaln(found.a, found.b + k) - betaln(found.a, found.b))
    assert (1 - found.never_solved) * solved == pytest.approx(value, abs=1e-6)


def test_no_law_nearby_is_likelier():
    """Also where tasks have different numbers of samples."""
    rng = np.random.default_rng(3)
    n = rng.integers(2, 9, 120)
    c = rng.binomial(n, rng.beta(0.6, 1.1, 120) * (rng.random(120) < 0.8))
    pairs, table = np.unique(np.stack([n, c]), axis=1, return_counts=True)
    counts = PassCounts(pairs[0], pairs[1])
    found = fitted(counts, table.astype(float))
    best = log_likelihood(counts, table, found.a, found.b, found.never_solved)
    assert found.log_likelihood == pytest.approx(best, abs=1e-9)
    for a, b, never in rng.uniform(0.9, 1.1, (200, 3)) * (found.a, found.b, found.never_solved):
        assert log_likelihood(counts, table, a, b, never) <= best + 1e-9


@pytest.mark.parametrize("n", [8, 300])  # by sums of logarithms, and by gamma functions
def test_the_chances_are_those_of_the_beta_binomial(n):
    counts = PassCounts(np.array([n, n, n, 3]), np.array([0, 2, n, 1]))
    a, b = np.array([0.3, 2.0, 40.0]), np.array([0.7, 2.0, 9.0])
    expected = betabinom.logpmf(counts.c[:, None], counts.n[:, None], a, b)
    assert log_beta_binomial(counts, a, b) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("unsolved", [0, 7, 25])
def test_the_best_share_of_a_law_is_its_best_share(unsolved):
    """One kind of n: as many tasks without a pass as there are, or 0; several: the best of those tried."""
    counts, table = even([unsolved, 6, 5, 9, 12])
    grid = Grid(counts)
    likelihood, shares = grid.profile(table)
    exact, best = exact_profile(grid, table)
    assert likelihood == pytest.approx(exact, abs=1e-9)
    assert shares == pytest.approx(best, abs=1e-6)
    for at in (0, 400, 900, 1500):
        tried = [log_likelihood(counts, table, grid.a[at], grid.b[at], never) for never in np.linspace(0, 0.99, 100)]
        assert max(tried) <= exact[at] + 1e-9
    mixed = PassCounts(np.append(counts.n, 6), np.append(counts.c, 0))
    coarse, _ = Grid(mixed).profile(np.append(table, 2.0))
    fine, _ = exact_profile(Grid(mixed), np.append(table, 2.0))
    assert (coarse <= fine + 1e-9).all()
    assert coarse.max() == pytest.approx(fine.max(), abs=0.1)


def test_many_tables_at_once_are_the_same_as_one_by_one():
    counts, _ = even([1] * 6)
    tables = np.random.default_rng(5).multinomial(60, [0.3, 0.1, 0.1, 0.1, 0.1, 0.3], 40).astype(float)
    grid = Grid(counts)
    best, shares = grid.likeliest(tables)
    for table, at, share in zip(tables, best, shares, strict=True):
        likelihood, each = grid.profile(table)
        assert (int(np.argmax(likelihood)), each[at]) == (at, pytest.approx(share))


@pytest.mark.parametrize("seen", [[50, 0, 0, 0, 0], [0, 0, 0, 0, 50], [25, 0, 0, 0, 25]])
def test_draws_without_a_pass_or_a_failure_have_numbers(seen):
    counts, table = even(seen)
    likelihood, shares = Grid(counts).profile(table)
    assert np.isfinite(likelihood).all()
    assert ((shares >= 0) & (shares < 1)).all()


@pytest.mark.parametrize("tasks", [50, 5_000, 500_000])
def test_the_grid_is_as_fine_as_the_counts_are_many(tasks):
    """However many tasks there are, several points of the grid are as likely as the best."""
    counts, table = even(np.array([0.4, 0.12, 0.1, 0.13, 0.25]) * tasks)
    likelihood, _ = zoomed(counts, table).profile(table)
    assert (likelihood >= likelihood.max() - 1.92).sum() >= 8


def test_the_search_stays_where_laws_are():
    """Chances that are all alike: the likeliest a + b has no end, and the search stops at its own."""
    counts, table = even([1, 4, 6, 4, 1])
    found = fitted(counts, table)
    assert math.log(found.a + found.b) == pytest.approx(WHOLE.size[1])
    assert np.exp(log_beta_binomial(counts, np.array([found.a]), np.array([found.b]))).sum() == pytest.approx(1)
