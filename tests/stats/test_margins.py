"""Margins: Tango's exact p, and the score with the variance of the likeliest law at the margin."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calipers.stats.intervals import upper_tail
from calipers.stats.margins import (
    likeliest_variance,
    margin_ends,
    margin_method,
    margin_score,
    non_inferiority,
    p_at_margin,
    tango_p,
    tango_score,
    too_few,
    unseen_loss,
)
from calipers.stats.paired import judged, paired, rate_units
from examples import examples

UNIT = (0.0, 1.0)


def table(tasks, fixed, broken, **options):
    """A comparison of one pass or fail a task."""
    moved = np.repeat([1.0, -1.0, 0.0], [fixed, broken, tasks - fixed - broken])
    return paired(moved, limits=UNIT, **options)


@pytest.mark.parametrize(
    ("tasks", "fixed", "broken", "margin", "score", "plain", "exact"),
    [
        (100, 0, 0, 0.05, 2.294157, 0.010891, 0.013783),
        (100, 0, 1, 0.05, 1.835326, 0.033229, 0.037081),
        (100, 0, 0, 0.034, 1.876078, 0.030322, 0.032736),
        (100, 3, 5, 0.1, 2.260581, 0.011893, 0.012145),
        (50, 0, 1, 0.1, 1.885618, 0.029673, 0.033786),
        (200, 10, 8, 0.05, 2.542625, 0.005501, 0.006621),
        (30, 0, 0, 0.1, 1.825742, 0.033945, 0.042391),
        (20, 2, 1, 0.2, 2.231016, 0.012840, 0.021029),
    ],
)
def test_one_pass_or_fail_a_task(tasks, fixed, broken, margin, score, plain, exact):
    found = float(tango_score(tasks, np.array(float(fixed)), np.array(float(broken)), margin))
    assert found == pytest.approx(score, abs=1e-6)
    assert upper_tail(found, math.inf) == pytest.approx(plain, abs=1e-6)
    assert tango_p(tasks, fixed, broken, margin) == pytest.approx(exact, abs=1e-6)
    difference = table(tasks, fixed, broken)
    assert margin_method(difference) == "tango"
    assert p_at_margin(difference, margin) == pytest.approx(exact, abs=1e-6)
    assert p_at_margin(table(tasks, broken, fixed), margin, below=False) == pytest.approx(exact, abs=1e-6)


def test_the_exact_p_is_the_chance_that_it_says():
    """Every table of eight tasks added up, trinomial, over the same chances of a fix."""
    tasks, margin = 8, 0.2
    tables = [(b, c) for b in range(tasks + 1) for c in range(tasks + 1 - b)]
    fixed, broken = np.array(tables, float).T
    scores = tango_score(tasks, fixed, broken, margin)
    same = math.factorial(tasks) / np.array(
        [math.factorial(b) * math.factorial(c) * math.factorial(tasks - b - c) for b, c in tables]
    )
    for place, (b, c) in enumerate(tables):
        if b - c + tasks * margin <= 0:
            assert tango_p(tasks, b, c, margin) == 1
            continue
        chances = []
        for step in range(201):
            fix = (1 - margin) / 2 * (step / 200) ** 2
            rest = max(1 - 2 * fix - margin, 0.0)
            weight = same * fix**fixed * (fix + margin) ** broken * rest ** (tasks - fixed - broken)
            chances.append(weight[scores >= scores[place] - 1e-9].sum())
        assert tango_p(tasks, b, c, margin) == pytest.approx(max(chances), abs=1e-9)


@pytest.mark.parametrize(
    ("means", "margin", "variance", "score"),
    [
        ([0.3, 0.1, -0.2, 0.4, 0.25, 0, 0.15, -0.05], 0.1, 0.196875, 1.394433),
        ([0.3, 0.1, -0.2, 0.4, 0.25, 0, 0.15, -0.05], 0.3, 0.293125, 2.187628),
        ([0.25] * 20 + [0] * 60 + [-0.25] * 20, 0.02, 0.025186, 1.260225),  # lambda inside
        ([0.25] * 20 + [0] * 60 + [-0.25] * 20, 0.05, 0.047500, 2.294157),
    ],
)
def test_the_score_under_the_margin(means, margin, variance, score):
    means = np.array(means, float)
    shares = np.full(len(means), 1 / len(means))
    assert likeliest_variance(means, shares, margin, 1.0) == pytest.approx(variance, abs=1e-6)
    assert margin_score(means, shares, margin) == pytest.approx(score, abs=1e-6)


def test_the_score_of_uneven_weights():
    means, shares = np.array([0, -0.5, 0.1, 0.2, 0]), np.array([0.1, 0.2, 0.3, 0.2, 0.2])
    assert likeliest_variance(means, shares, 0.3, 1.0) == pytest.approx(0.189)
    assert margin_score(means, shares, 0.3) == pytest.approx(1.335456, abs=1e-6)


@given(st.integers(2, 200), st.data(), st.floats(0.01, 0.5))
def test_on_passes_and_failures_the_score_is_tangos(tasks, data, margin):
    """Where wins are not far ahead; there the variance seen is larger, and is taken."""
    fixed = data.draw(st.integers(0, tasks // 4))
    broken = data.draw(st.integers(fixed, max(fixed, tasks // 2)))
    means = np.repeat([1.0, -1.0, 0.0], [fixed, broken, tasks - fixed - broken])
    theirs = float(tango_score(tasks, np.array(float(fixed)), np.array(float(broken)), margin))
    if fixed - broken + tasks * margin > 0:
        assert margin_score(means, np.full(tasks, 1 / tasks), margin) <= theirs + 1e-6


MARGINS = st.sampled_from([0.01, 0.02, 0.034, 0.05, 0.1, 0.2])


@given(st.integers(2, 120), st.data(), MARGINS, st.sampled_from([0.9, 0.95]))
def test_breaking_one_more_task_never_turns_a_fail_into_a_pass(tasks, data, margin, confidence):
    fixed = data.draw(st.integers(0, tasks))
    broken = data.draw(st.integers(0, tasks - fixed))

    def passes(b, c):
        return non_inferiority(table(tasks, b, c), margin, confidence=confidence).shown

    seen = passes(fixed, broken)
    if fixed + broken < tasks:
        assert passes(fixed, broken + 1) <= seen
    if fixed:
        assert passes(fixed - 1, broken) <= seen


def test_a_baseline_that_is_all_right_is_no_trap():
    """It passed with one task broken and failed with none: the spread was learnt from the break."""
    shown = [non_inferiority(table(100, 0, broken), 0.034).shown for broken in range(4)]
    assert shown == [False, False, False, False]
    assert [non_inferiority(table(100, 0, broken), 0.1).shown for broken in range(6)] == [True] * 4 + [False] * 2


GRADED = st.lists(st.sampled_from([-1, -0.5, -0.25, 0, 0, 0, 0.25, 0.5, 0.75]), min_size=3, max_size=60)


@given(GRADED, st.floats(0.02, 0.4), st.data())
def test_a_lower_graded_difference_never_passes_where_a_higher_one_fails(differences, margin, data):
    values = np.array(differences, float)
    place = data.draw(st.integers(0, len(values) - 1))
    lowered = values.copy()
    lowered[place] = data.draw(st.sampled_from([-1, -0.5, -0.25, 0.0]))
    if lowered[place] < values[place]:
        before, after = (non_inferiority(paired(one, limits=UNIT), margin) for one in (values, lowered))
        assert after.shown <= before.shown


@given(GRADED, st.floats(0.001, 0.5), st.sampled_from(["floored_t", "strict"]))
def test_better_is_no_worse(differences, margin, test):
    found = paired(np.array(differences, float), limits=UNIT, test=test)
    if found.p <= 0.05 and found.value > 0:
        assert non_inferiority(found, margin).shown
    if found.p <= 0.05 and found.value < 0:
        assert non_inferiority(found, margin, higher_is_better=False).shown


@examples(50)
@given(GRADED)
def test_ends_are_where_the_margin_is_ruled_out(differences):
    found = paired(np.array(differences, float), limits=UNIT)
    low, high = margin_ends(found)
    assert low <= found.value <= high
    if low < 0 and -low < 1:
        assert p_at_margin(found, -low) <= 0.025
    if low < -1e-5:
        assert p_at_margin(found, -low - 2e-6) > 0.025 - 1e-9 or margin_method(found) == "tango"
    assert low >= 0 or found.interval[0] < 0


@pytest.mark.parametrize(
    ("tasks", "fixed", "broken", "plain"),
    [(100, 0, 0, -0.036993), (100, 0, 1, -0.054486), (100, 3, 5, -0.086812), (50, 1, 2, -0.118228)],
)
def test_exact_ends_lie_beyond_those_of_the_plain_score(tasks, fixed, broken, plain):
    low, _ = margin_ends(table(tasks, fixed, broken))
    assert plain - 0.006 < low < plain


def test_without_a_range_only_the_losses_seen_count():
    found = paired(np.array([0.1, 0.0, -0.1, 0.05, 0.0, -0.05]), limits=None)
    assert margin_method(found) == "floored_t"
    assert p_at_margin(found, 0.2) == found.p_at_most(-0.2)
    assert margin_ends(found) is None
    assert too_few(found, 0.1, 0.975) is None


def test_another_range_is_another_scale():
    moved = np.array([1.0, 0, 0, -1, 0, 0.5, 0, 0] * 8)
    wide, unit = paired(10 * moved, limits=(0, 10)), paired(moved, limits=UNIT)
    assert p_at_margin(wide, 1.5) == pytest.approx(p_at_margin(unit, 0.15))
    assert margin_ends(wide)[0] == pytest.approx(10 * margin_ends(unit)[0])


def test_pooled_rates_take_the_score():
    first = np.array([[1.0, 2], [3, 3], [0, 1], [4, 4], [1, 1]] * 20)
    second = np.array([[1.0, 2], [3, 3], [0, 1], [3, 4], [1, 1]] * 20)
    found = judged(rate_units(second, first), UNIT, 0.95)
    assert margin_method(found) == "margin_score"
    assert p_at_margin(found, 0.2) < 0.025 < p_at_margin(found, 0.12)


def test_clusters_are_the_units():
    moved = np.zeros(100)
    alone, grouped = paired(moved, limits=UNIT), paired(moved, None, np.repeat(np.arange(10), 10), limits=UNIT)
    assert (margin_method(alone), margin_method(grouped)) == ("tango", "margin_score")
    assert p_at_margin(alone, 0.05) < 0.025 < p_at_margin(grouped, 0.05)


def test_how_many_tasks_alike_would_do():
    assert unseen_loss(50, 0.05, 0.975) == 73
    assert unseen_loss(80, 0.05, 0.975) is None
    assert [unseen_loss(80, margin, 0.975) for margin in (1e-300, 0.0)] == [
        10**15,
        10**15,
    ]  # a margin over a huge range
    few = too_few(table(50, 0, 0), 0.05, 0.975)
    assert few >= 73
    assert non_inferiority(table(few, 0, 0), 0.05).shown
    assert not non_inferiority(table(few - 1, 0, 0), 0.05).shown
    assert too_few(table(few, 0, 0), 0.05, 0.975) is None


# the level, by enumeration: every table of counts, with its chance


def passing(tasks, margin, alpha):
    """The tables that pass, [b, c]: where the exact p is small, or the first run is better by the default test."""
    b, c = np.meshgrid(np.arange(tasks + 1), np.arange(tasks + 1), indexing="ij")
    inside = b + c <= tasks
    score = np.where(inside, tango_score(tasks, b.astype(float), c.astype(float), margin), -np.inf)
    distinct = np.unique(np.round(score[inside & (b - c + tasks * margin > 0)], 9))
    low, high = 0, len(distinct)  # the p falls with the score: the first score that passes, by bisection
    where = {round(float(score[i, j]), 9): (i, j) for i, j in zip(*np.nonzero(inside), strict=True)}
    while low < high:
        middle = (low + high) // 2
        i, j = where[float(distinct[middle])]
        low, high = (low, middle) if tango_p(tasks, int(i), int(j), margin) <= alpha else (middle + 1, high)
    exact = score >= (distinct[low] - 1e-8 if low < len(distinct) else np.inf)
    value = (b - c) / tasks
    variance = np.maximum((b + c) / tasks - value**2, 0) / (tasks - 1)
    floored = np.sqrt(variance + (0.5 / tasks) ** 2)
    from scipy.special import stdtr

    better = (value > 0) & (stdtr(max(1.0, tasks - 1), -value / floored) <= alpha)
    return inside & (exact | better)


@pytest.mark.parametrize("tasks", [20, 30, 50, 100, 200])
@pytest.mark.parametrize("margin", [0.01, 0.02, 0.05, 0.1])
@pytest.mark.parametrize(("alpha", "most"), [(0.025, 0.025), (0.05, 0.05)])
def test_the_level_is_kept_exactly(tasks, margin, alpha, most):
    from scipy.special import gammaln, xlogy

    passes = passing(tasks, margin, alpha)
    b, c = np.nonzero(passes)
    ways = gammaln(tasks + 1) - gammaln(b + 1) - gammaln(c + 1) - gammaln(tasks - b - c + 1)
    for share in (0, 0.01, 0.05, 0.1):
        chance = np.exp(
            ways + xlogy(b, share) + xlogy(c, share + margin) + xlogy(tasks - b - c, 1 - 2 * share - margin)
        )
        assert chance.sum() <= most
