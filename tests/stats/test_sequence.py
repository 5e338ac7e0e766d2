from functools import cache
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.stats.intervals import interval
from calipers.stats.sequence import finite, population


def prefixes(most=2_000):
    """Some (total, settled, planned) that a run can have counted."""
    return st.integers(1, most).flatmap(
        lambda planned: st.integers(0, planned).flatmap(
            lambda settled: st.tuples(st.floats(0, settled), st.just(settled), st.just(planned))
        )
    )


@pytest.mark.parametrize(
    ("total", "settled", "planned", "expected"),
    [
        (40, 50, None, (0.590947, 0.934622)),
        (40, 50, 500, (0.600688, 0.928924)),
        (31.25, 50, 200, (0.433847, 0.790174)),
        (30, 30, 164, (0.824805, 1)),
        (0, 20, 100, (0, 0.234777)),
    ],
)
def test_worked_examples(total, settled, planned, expected):
    found = population(total, settled, 0.95) if planned is None else finite(total, settled, planned, 0.95)
    assert found == pytest.approx(expected, abs=5e-7)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (finite(0, 0, 10, 0.95), (0, 1)),  # nothing has settled, nothing is ruled out
        (population(0, 0, 0.95), (0, 1)),
        (finite(7.5, 10, 10, 0.95), (0.75, 0.75)),  # nothing is left to come: the value itself
        (finite(0, 10, 10, 0.95), (0, 0)),
        (finite(0, 0, 0, 0.95), (0, 1)),  # a run of no tasks
        (finite(99, 99, 100, 0.95), (0.99, 1)),  # what the one task left can still do
        (finite(0.5, 1, 2, 0.95), (0.25, 0.75)),
        (population(1, 1, 0.95), (0.025, 1)),  # m^1 > B(2, 1) alpha
    ],
)
def test_edges(found, expected):
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("ends", [finite(0, 30, 100, 0.9), population(0, 30, 0.9)])
def test_the_ends_of_the_range_are_met_exactly(ends):
    assert ends[0] == 0.0
    assert 0 < ends[1] < 1


@given(prefixes(), st.sampled_from([0.8, 0.95, 0.999]))
def test_it_holds_the_value_and_stays_where_the_rest_can_bring_it(counts, confidence):
    total, settled, planned = counts
    low, high = finite(total, settled, planned, confidence)
    rest = planned - settled
    assert total / planned * (1 - 1e-12) <= low <= high <= (total + rest) / planned * (1 + 1e-12)
    if settled:
        wide, wider = population(total, settled, confidence)
        assert 0 <= low <= total / settled <= high <= 1
        assert 0 <= wide <= total / settled <= wider <= 1


@given(prefixes())
def test_more_confidence_is_wider_and_so_are_more_planned_tasks(counts):
    total, settled, planned = counts
    low, high = finite(total, settled, planned, 0.99)
    sure, surer = finite(total, settled, planned, 0.9)
    assert low <= sure <= surer <= high
    wide, wider = population(total, settled, 0.99)  # to within a task: a sum is no likelihood between two tasks
    assert wide <= low + 1 / planned
    assert wider >= high - 1 / planned


@given(prefixes(300))
def test_swapping_pass_and_fail_mirrors_it(counts):
    total, settled, planned = counts
    low, high = finite(settled - total, settled, planned, 0.95)
    assert finite(total, settled, planned, 0.95) == pytest.approx((1 - high, 1 - low), abs=1e-9)


def test_it_moves_with_the_total():
    ends = [finite(total / 4, 25, 60, 0.95) for total in range(101)]
    assert ends == sorted(ends)
    assert [high for _, high in ends] == sorted(high for _, high in ends)


@pytest.mark.parametrize("settled", [1, 1_000, 500_000, 999_999])
def test_a_million_tasks(settled):
    """Log gammas near 1e7 leave nine digits of their difference; the ends must not jitter by more."""
    planned, total = 1_000_000, settled * 0.3
    low, high = finite(total, settled, planned, 0.95)
    assert low < 0.3 < high
    wider = population(total, settled, 0.95)
    assert wider[0] <= low + 1e-6
    assert high <= wider[1] + 1e-6
    assert finite(total, settled, planned + 1, 0.95) == pytest.approx((low, high), abs=1e-6)


def test_no_end_in_sight_is_the_limit_of_many_tasks():
    assert finite(40, 50, 10**9, 0.95) == pytest.approx(population(40, 50, 0.95), abs=1e-6)


@pytest.mark.parametrize(
    "counts", [(-0.1, 1, 2, 0.95), (1.1, 1, 2, 0.95), (1, 3, 2, 0.95), (1, 1, 2, 1.0), (float("nan"), 1, 2, 0.95)]
)
def test_what_no_run_can_have_counted_is_refused(counts):
    with pytest.raises(ValueError, match="expected 0 <= total <= settled <= planned"):
        finite(*counts)


@pytest.mark.parametrize("passes", [0, 1, 3, 10, 20])
def test_the_chance_of_ever_missing_the_runs_number_by_counting_every_order(passes):
    """Exactly, over all orders of 40 tasks: walks that were ever outside have no more than alpha of the weight."""
    planned, alpha = 40, 0.05
    inside = {0: 1}  # passes so far -> orders that were never outside
    for settled in range(1, planned + 1):
        after: dict[int, int] = {}
        for total, ways in inside.items():
            for passed in (0, 1):
                after[total + passed] = after.get(total + passed, 0) + ways
        inside = {
            total: ways
            for total, ways in after.items()
            if 0 <= passes - total <= planned - settled and _holds(finite, passes / planned, total, settled, planned)
        }
    assert 1 - inside.get(passes, 0) / comb(planned, passes) <= alpha


def _holds(rule, truth, total, settled, planned):
    low, high = rule(total, settled, planned, 0.95)
    return low - 1e-12 <= truth <= high + 1e-12


RUNS, PLANNED = 4_000, 60
quarters = np.random.default_rng(11).binomial(4, np.random.default_rng(12).beta(2, 2, PLANNED)) / 4
KINDS = {
    "rare passes": (np.arange(PLANNED) < 2).astype(float),
    "half": (np.arange(PLANNED) < 30).astype(float),
    "four samples a task": quarters,
    "all alike": np.full(PLANNED, 0.25),
}


def tabled(rule):
    """The ends for every number of settled tasks and every total in quarters, [PLANNED + 1, 4 PLANNED + 1, 2]."""
    return np.array([[rule(min(n / 4, t), t) for n in range(4 * PLANNED + 1)] for t in range(PLANNED + 1)])


@cache
def table(name):
    return tabled(
        {
            "run": lambda total, settled: finite(total, settled, PLANNED, 0.95),
            "population": lambda total, settled: population(total, settled, 0.95),
            "fixed": fixed,
        }[name]
    )


def fixed(total, settled):
    """The default interval, made for one look, of 0/1 values (from the tenth task on)."""
    if settled < 10:
        return 0.0, 1.0
    passes = round(total)
    values = (np.arange(settled) < passes).astype(float)
    return interval(values, np.ones(settled), 0.95, (0.0, 1.0)).ends


def ever_missed(ends, values, truth):
    """The share of runs [RUNS, t] whose interval left out the truth at any look."""
    totals = np.cumsum(values * 4, axis=1).astype(int)
    found = ends[np.arange(1, values.shape[1] + 1), totals]  # [RUNS, t, 2]
    return float(((found[..., 0] > truth + 1e-9) | (found[..., 1] < truth - 1e-9)).any(axis=1).mean())


@pytest.mark.parametrize("kind", KINDS)
def test_looking_at_every_task_misses_the_runs_number_in_at_most_alpha_of_all_runs(kind):
    rng = np.random.default_rng(5)
    orders = rng.permuted(np.tile(KINDS[kind], (RUNS, 1)), axis=1)
    assert ever_missed(table("run"), orders, KINDS[kind].mean()) <= 0.05


@pytest.mark.parametrize("kind", KINDS)
def test_and_the_mean_of_tasks_like_these_likewise(kind):
    rng = np.random.default_rng(6)
    drawn = rng.choice(KINDS[kind], size=(RUNS, PLANNED))
    assert ever_missed(table("population"), drawn, KINDS[kind].mean()) <= 0.05


def test_an_interval_made_for_one_look_does_not_survive_many():
    """The same simulation condemns what must not be shown while a run is going."""
    drawn = np.random.default_rng(6).choice(KINDS["half"], size=(RUNS, PLANNED))
    assert ever_missed(table("fixed"), drawn, 0.5) > 0.15
