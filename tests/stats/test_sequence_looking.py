"""Looking at runs while they go: a small, seeded part of ``make bench-statistics``, and its twin of the product."""

import sys
from dataclasses import replace
from math import sqrt
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2]))

from bench.simulations.looking import (
    FIRST_FIXED,
    KINDS,
    MISSES,
    SEQUENCES,
    SHOWN_KINDS,
    Looked,
    Looking,
    drawn,
    half_widths,
    mean_widths,
    normal_mixture,
    seen_of,
    tuned_to,
)
from bench.simulations.looking_report import looking_text, missed_too_often
from calipers.stats.intervals import interval
from calipers.stats.sequence import finite, population

PLANNED = 40


def rng():
    return np.random.default_rng(7)


def rules(values):
    """The ends that the product gives after each task of one run, by sequence."""
    found = {name: [] for name in SEQUENCES}
    for t in range(1, len(values) + 1):
        some = values[:t]
        total = min(float(np.cumsum(values)[t - 1]), t)
        found["finite"].append(finite(total, t, len(values), 0.95))
        found["population"].append(population(total, t, 0.95))
        half = normal_mixture(t, 0.5, 0.95, tuned_to(len(values) // 2, 0.95))
        found["robbins"].append((total / t - half, total / t + half))
        wide = 2 * half * some.std(ddof=1) if t >= FIRST_FIXED else np.inf
        found["learnt"].append((total / t - wide, total / t + wide))
        one = interval(some, np.ones(t), 0.95, (0.0, 1.0)).ends if t >= FIRST_FIXED else (0.0, 1.0)
        found["fixed"].append(one)
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mean", [0.1, 0.5])
def test_the_twin_equals_the_product(kind, mean):
    values = drawn(kind, (12, PLANNED), mean, rng())
    found = {truth: {name: miss(seen_of(values), at) for name, miss in MISSES.items()} for truth, at in truths(values)}
    for row, run in enumerate(values):
        for name, ends in rules(run).items():
            for truth, at in truths(values):
                if name == "finite" and truth != "own":
                    continue
                low, high = np.array(ends).T
                outside = (low - 1e-9 > at[row, 0]) | (high + 1e-9 < at[row, 0])
                assert found[truth][name][row].tolist() == outside.tolist(), name
    assert {truth: sorted(some) for truth, some in found.items()} == dict.fromkeys(found, sorted(SEQUENCES))


def truths(values):
    """The run's own number, and others that the sequences throw out sooner or later, [R, 1] each."""
    return [
        ("own", values.mean(axis=1, keepdims=True)),
        *((share, np.full((len(values), 1), share)) for share in (0.05, 0.4, 0.9)),
    ]


def test_the_beginning_and_the_end_of_a_run():
    """What a whole run has is no candidate any more but the number; what the rest cannot bring is ruled out at once."""
    seen = seen_of(np.array([[1.0, 1.0, 0.0, 0.0]]))
    assert MISSES["finite"](seen, np.array([[0.5]])).tolist() == [[False] * 4]
    assert MISSES["finite"](seen, np.array([[0.25]])).tolist() == [[False, True, True, True]]
    assert MISSES["finite"](seen, np.array([[0.75]])).tolist() == [[False, False, False, True]]


@pytest.mark.parametrize(
    ("name", "truth", "expected"),
    [
        ("finite", "own", 0.036),
        ("population", "law", 0.033),
        ("robbins", "law", 0.026),
        ("fixed", "law", 0.353),  # what must not be shown while a run is going
    ],
)
def test_a_world_of_200_tasks(name, truth, expected):
    runs = 2_000
    values = drawn("0 and 1", (runs, 200), 0.5, rng())
    at = values.mean(axis=1, keepdims=True) if truth == "own" else np.full((runs, 1), 0.5)
    missed = float(MISSES[name](seen_of(values), at).any(axis=1).mean())
    assert missed == pytest.approx(expected, abs=4 * sqrt(expected * (1 - expected) / runs))


def test_a_learnt_deviation_is_none_near_0():
    """Ten failures in a row have no spread: the interval closes on 0, and most runs begin so."""
    values = drawn("0 and 1", (500, 50), 0.02, rng())
    assert MISSES["learnt"](seen_of(values), np.full((500, 1), 0.02)).any(axis=1).mean() > 0.7


def test_widths_are_those_of_the_product():
    values = drawn("0 and 1", (3, PLANNED), 0.5, rng())
    found = mean_widths(values)
    ends = [rules(run) for run in values]
    for name, widths in found.items():
        for t, width in zip((4, 10, 20, 36), widths):
            if name in ("learnt", "fixed") and t < FIRST_FIXED:
                continue
            each = [np.clip(run[name][t - 1], 0, 1) for run in ends]
            assert width == pytest.approx(np.mean([high - low for low, high in each]), abs=1e-9), (name, t)
    assert half_widths(PLANNED).argmin() == PLANNED - 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("finite", [0.394, 0.247, 0.152, 0.055]),
        ("population", [0.412, 0.281, 0.208, 0.160]),
        ("robbins", [0.473, 0.275, 0.192, 0.144]),
    ],
)
def test_widths_found_elsewhere(name, expected):
    """500 tasks of 0 and 1, mean 1/2, after 10, 25, 50 and 90 %."""
    assert mean_widths(drawn("0 and 1", (60, 500), 0.5, rng()))[name] == pytest.approx(expected, abs=0.004)


def looking():
    own = dict(zip(SEQUENCES, (0.01, 0.01, 0.0, 0.2, 0.3)))
    law = {name: share for name, share in own.items() if name != "finite"}
    widths = {name: {kind: [0.4, 0.3, 0.2, 0.1] for kind in SHOWN_KINDS} for name in SEQUENCES}
    return Looking([Looked("0 and 1", 50, 0.5, own, law)], widths, 100, 0)


def test_the_page_says_what_was_found_and_what_was_not_kept():
    found = looking()
    page = looking_text(found)
    assert "(the run's own number) | 1.0 / 1.0 | - | .400 .300 .200 .100 | .400 .300 .200 .100 |" in page
    assert all(len(line) <= 120 or line.startswith("|") for line in page.splitlines())
    assert missed_too_often(found) == []  # a learnt deviation promises nothing
    (cell,) = found.cells
    broken = replace(found, cells=[replace(cell, law={**cell.law, "population": 0.06})])
    assert missed_too_often(broken) == [
        "0 and 1, mean 0.5, N = 50: population misses tasks like these in 6.0 % of runs"
    ]
