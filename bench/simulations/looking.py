"""Looks at a run in progress: how often an interval that is read after every task ever misses, and how wide it is.

A run has N planned tasks whose values come from one law, in a random order. It is looked at after every task. The truth
is the final number of the run, or the mean of the law (tasks like these).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf, log, log1p, sqrt

import numpy as np
from scipy.special import gammaln, ndtri, xlog1py, xlogy

from bench.simulations.grid import Bools
from bench.simulations.paired_worlds import beta
from bench.simulations.rule import CONFIDENCE, Floats, Ints, Spreads, default_ends
from calipers.stats.sequence import finite, population

PLANNED = (50, 200, 1000)
MEANS = (0.02, 0.1, 0.5, 0.9)
KINDS = ("0 and 1", "n = 4, alike", "n = 4, a + b = 4", "n = 4, a + b = 0.5", "real, a + b = 4")
SEQUENCES = ("finite", "population", "robbins", "learnt", "fixed")
FIRST_FIXED = 10  # the first look at the interval that estimates its spread from the values
# widths are measured after these shares of the tasks, in runs of this many tasks, at a mean of 1/2
SHOWN_AT, SHOWN_OF = (0.1, 0.25, 0.5, 0.9), 500
SHOWN_KINDS = (KINDS[0], KINDS[2])
BATCH = 1_000_000  # values of runs that are computed together
DEVIATION = 0.5  # maximum standard deviation of a value on [0, 1]


@dataclass(frozen=True, slots=True)
class Seen:
    """The statistics of whole runs after every task, [R, N] each."""

    totals: Floats
    spreads: Spreads
    needed: Floats  # the log-likelihood that a candidate of the beta mixture must exceed to be inside

    @property
    def tasks(self) -> Ints:
        """The numbers of tasks at the looks, 1 to N."""
        return np.arange(1, self.totals.shape[1] + 1)

    @property
    def deviations(self) -> Floats:
        """The sample standard deviations (n - 1) of the values so far."""
        return np.sqrt(self.spreads.variance * self.tasks)


@dataclass(frozen=True, slots=True)
class Looked:
    """The share of runs in which each sequence ever missed, in one world."""

    kind: str
    planned: int
    mean: float
    own: dict[str, float]  # for the final number of the run
    law: dict[str, float]  # for the mean of the law; the finite mixture does not apply to it


@dataclass(frozen=True, slots=True)
class Looking:
    """The results of all looks."""

    cells: Sequence[Looked]
    widths: dict[str, dict[str, Sequence[float]]]  # mean width at SHOWN_AT, by sequence and kind
    runs: int
    seed: int


def looked(runs: int, seed: int) -> Looking:
    """Simulate all worlds; widths come from a tenth of the runs."""
    rng = np.random.default_rng([seed, 18])
    cells = list(looking_cells(runs, rng))
    widths = {kind: mean_widths(drawn(kind, (runs // 10, SHOWN_OF), 0.5, rng)) for kind in SHOWN_KINDS}
    return Looking(cells, {name: {kind: widths[kind][name] for kind in SHOWN_KINDS} for name in SEQUENCES}, runs, seed)


def looking_cells(runs: int, rng: np.random.Generator) -> Iterator[Looked]:
    """A cell for every kind of values, mean and number of planned tasks."""
    for kind in KINDS:
        for planned in PLANNED:
            for mean in MEANS:
                step = max(1, BATCH // planned)
                own, law = dict.fromkeys(SEQUENCES, 0), dict.fromkeys(SEQUENCES[1:], 0)
                for first in range(0, runs, step):
                    values = drawn(kind, (min(step, runs - first), planned), mean, rng)
                    seen = seen_of(values)
                    for truth, missed in ((values.mean(axis=1), own), (np.full(len(values), mean), law)):
                        for name in missed:
                            missed[name] += int(MISSES[name](seen, truth[:, None]).any(axis=1).sum())
                shares = ({name: count / runs for name, count in missed.items()} for missed in (own, law))
                yield Looked(kind, planned, mean, *shares)


def drawn(kind: str, size: tuple[int, int], mean: float, rng: np.random.Generator) -> Floats:
    """Task values of whole runs, [R, N]."""
    if kind == "0 and 1":
        return (rng.random(size) < mean).astype(np.float64)
    means = np.full(size, mean)
    if kind.startswith("real"):
        return beta(means, 4.0, rng)
    chances = means if kind.endswith("alike") else beta(means, float(kind.rpartition(" ")[2]), rng)
    return np.asarray(rng.binomial(4, chances) / 4)


def seen_of(values: Floats) -> Seen:
    """The looks at runs with these task values, [R, N]."""
    t, totals = np.arange(1, values.shape[1] + 1), np.cumsum(values, axis=1)
    needed = gammaln(1 + totals) + gammaln(1 + t - totals) - gammaln(t + 2) + log(1 - CONFIDENCE)
    mean = totals / t
    pulls = np.maximum(np.cumsum(values**2, axis=1) - t * mean**2, 0.0)
    units = np.broadcast_to(t.astype(np.float64), mean.shape)
    return Seen(totals, Spreads(mean, pulls / np.maximum(t - 1, 1) / t, units, 1.0), needed)


def finite_misses(seen: Seen, truth: Floats) -> Bools:
    """Whether the finite mixture excludes the truth [R, 1] after every task, [R, N]."""
    t, total = seen.tasks, seen.totals
    planned = len(t)
    ones = planned * truth
    left, rest = ones - total, (planned - ones) - (t - total)  # what the remaining tasks would have to contribute
    fits = gammaln(ones + 1) - gammaln(np.maximum(left, 0) + 1)
    fits = fits + gammaln(planned - ones + 1) - gammaln(np.maximum(rest, 0) + 1)
    outside = fits <= seen.needed + gammaln(planned + 1) - gammaln(planned - t + 1)
    outside[:, -1] = np.abs(left[:, -1]) > 1e-6  # no task remains: the interval is the value itself
    return np.asarray(outside | (left < -1e-6) | (rest < -1e-6))


def population_misses(seen: Seen, truth: Floats) -> Bools:
    """Whether the beta mixture excludes the truth, likewise."""
    return np.asarray(xlogy(seen.totals, truth) + xlog1py(seen.tasks - seen.totals, -truth) <= seen.needed)


def robbins_misses(seen: Seen, truth: Floats) -> Bools:
    """Whether Robbins' mixture for any values on [0, 1] excludes the truth, likewise."""
    return np.abs(seen.spreads.mean - truth) > DEVIATION * half_widths(len(seen.tasks))


def learnt_misses(seen: Seen, truth: Floats) -> Bools:
    """The same with the standard deviation of the values so far, which is not a valid bound."""
    far = np.abs(seen.spreads.mean - truth) > seen.deviations * half_widths(len(seen.tasks)) + 1e-12
    return far & (seen.tasks >= FIRST_FIXED)


def fixed_misses(seen: Seen, truth: Floats) -> Bools:
    """Whether the default interval, which is made for one look, excludes the truth.

    It contains the interval with the normal quantile, so it is computed (which is slow) only where that one misses.
    """
    m, variance, units = seen.spreads.mean, seen.spreads.variance, seen.spreads.effective_units
    n = (m * (1 - m) + variance + 1 / (4 * units)) / (variance + 1 / (4 * units**2))
    z = float(ndtri((1 + CONFIDENCE) / 2))
    far = (m - truth) ** 2 * np.maximum(n, 1.0) > (z * (1 - 1e-9)) ** 2 * truth * (1 - truth)
    far &= seen.tasks >= FIRST_FIXED
    low, high = default_ends(Spreads(m[far], variance[far], units[far], seen.spreads.doubt))
    asked = np.broadcast_to(truth, m.shape)[far]
    outside = np.zeros(m.shape, dtype=np.bool_)
    outside[far] = (asked < low - 1e-12) | (asked > high + 1e-12)
    return outside


MISSES: dict[str, Callable[[Seen, Floats], Bools]] = {
    "finite": finite_misses,
    "population": population_misses,
    "robbins": robbins_misses,
    "learnt": learnt_misses,
    "fixed": fixed_misses,
}


def normal_mixture(settled: int, deviation: float, confidence: float, r: float) -> float:
    """Half the width of Robbins' normal mixture: the interval is the mean of t values plus and minus this.

    ``sd sqrt(2 (t r^2 + 1) / (t^2 r^2) ln(sqrt(t r^2 + 1) / alpha))`` (Robbins 1970). For values without
    a range whose standard deviation is known or bounded: 1/2 is valid for all values on [0, 1] (Hoeffding's
    lemma). A standard deviation that is estimated from the same values is not a bound; near 0 and 1, the interval
    then misses the truth in most runs. Infinite before the first value.

    >>> round(normal_mixture(100, 0.5, 0.95, r=1.0), 6)
    0.163651
    """
    if not (settled >= 0 and 0 < confidence < 1 and 0 < r < inf and 0 <= deviation < inf):
        given = f"{settled} values of deviation {deviation} at {confidence}, r = {r}"
        raise ValueError(f"{given}; expected counts and deviations from 0, a confidence between 0 and 1, r above 0")
    spread = settled * r * r
    if spread == 0:
        return inf
    return deviation * sqrt((1 + 1 / spread) / settled * (log1p(spread) - 2 * log(1 - confidence)))


def tuned_to(settled: int, confidence: float) -> float:
    """The r with which `normal_mixture` is nearly narrowest after a number of values, t*.

    ``r^2 = (L + ln(1 + L)) / t*`` with ``L = 2 ln(1/alpha)``. The narrowest solves x = L + ln(1 + x) for
    x = t* r^2; this is the first step of the fixed-point iteration from x = L, whose interval is wider by less
    than 1 in 10,000 for confidence levels from 90 % on.

    >>> round(tuned_to(500, 0.95), 6)
    0.125985
    """
    if not (settled >= 1 and 0 < confidence < 1):
        raise ValueError(f"{settled} values at {confidence}; expected one or more, and a confidence between 0 and 1")
    least = -2 * log(1 - confidence)
    return sqrt((least + log1p(least)) / settled)


def half_widths(planned: int) -> Floats:
    """The half-widths of Robbins' mixture for a deviation of 1 at every look, tuned to half of the run, [N]."""
    r = tuned_to(planned // 2, CONFIDENCE)
    return np.array([normal_mixture(t, 1.0, CONFIDENCE, r) for t in range(1, planned + 1)])


def mean_widths(values: Floats) -> dict[str, Sequence[float]]:
    """The mean width of every sequence at SHOWN_AT, over runs [R, N]."""
    planned = values.shape[1]
    at = np.array([round(share * planned) for share in SHOWN_AT])
    seen, half = seen_of(values), half_widths(planned)[at - 1]
    totals, means, deviations = (whole[:, at - 1] for whole in (seen.totals, seen.spreads.mean, seen.deviations))
    low, high = default_ends(Spreads(means, seen.spreads.variance[:, at - 1], np.tile(at, (len(values), 1)), 1.0))
    rules: dict[str, Callable[[float, int], tuple[float, float]]] = {
        "finite": lambda total, t: finite(total, t, planned, CONFIDENCE),
        "population": lambda total, t: population(total, t, CONFIDENCE),
    }
    ends = {
        name: np.array([[rule(total, t) for total, t in zip(row, at.tolist(), strict=True)] for row in totals.tolist()])
        for name, rule in rules.items()
    }
    widths = {name: found[..., 1] - found[..., 0] for name, found in ends.items()}
    widths["robbins"], widths["learnt"] = (
        np.minimum(means + by * half, 1.0) - np.maximum(means - by * half, 0.0) for by in (DEVIATION, deviations)
    )
    widths["fixed"] = high - low
    return {name: width.mean(axis=0).tolist() for name, width in widths.items()}
