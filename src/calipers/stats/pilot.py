"""What a pilot knows of the variance of a task's difference: an interval for any number of samples per task.

With k samples a task's difference varies by ``V(k) = w^2 + s/k``, s of one sample in both runs together. Each unit of
the pilot, a task or a cluster, says ``psi = square - noise + s/k`` of it, whose mean is unbiased for every k,
infinity included. The interval is the hull of two, since each covers too rarely alone: Student's t over psi, and the
chi-squared interval of the pilot's own variance joined with that of the sampling term (MOVER: Zou and Donner 2008).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from calipers.rollouts.column import Bools, Column, Floats, Ints
from calipers.rollouts.groups import Groups
from calipers.rollouts.sums import sum_by, total
from calipers.stats.variance import moments
from calipers.stats.wilson import t_quantile

Ends = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Pilot:
    """What each of U units says, [U] each; the means over units are per task."""

    squares: Floats  # of deviations: their mean is the variance of task differences with the pilot's samples
    noise: Floats  # what sampling adds to that, the samples' variances over their numbers
    single: Floats  # what one sample would add
    freedom: float

    def variance(self, samples: float) -> float:
        """V(k), unbiased, and so not always above 0; k may be infinite."""
        return float(total(self.squares + self.single / samples - self.noise)) / len(self.squares)

    def interval(self, samples: float, confidence: float = 0.95) -> Ends:
        """The interval of V(k); a lower end of 0 or less says that no smallest variance is known."""
        low, high = variance_ends(self.squares, self.single / samples - self.noise, self.freedom, confidence)
        return float(low), float(high)


def variance_ends(squares: Floats, sampling: Floats, freedom: float, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """The ends of V(k) from what units say, ``[..., U] -> [...]``: ``sampling`` is ``s/k`` less the noise.

    The hull of ``V +- t sd(psi) / sqrt(U)`` and of ``V - sqrt(l^2 + r^2), V + sqrt(h^2 + r^2)``: l and h are how far
    the chi-squared interval of the mean square reaches, r how far t reaches for the mean of ``sampling``.
    """
    from scipy.special import chdtri

    units = squares.shape[-1]
    tail = (1 - confidence) / 2
    t = t_quantile(1 - tail, units - 1)
    middle = (squares + sampling).mean(axis=-1)
    reach = t * (squares + sampling).std(axis=-1, ddof=1) / math.sqrt(units)
    own = squares.mean(axis=-1)
    below, above = (own * abs(1 - freedom / float(chdtri(freedom, level))) for level in (tail, 1 - tail))
    noise = t * sampling.std(axis=-1, ddof=1) / math.sqrt(units)
    low = np.minimum(middle - reach, middle - np.hypot(below, noise))
    high = np.maximum(middle + reach, middle + np.hypot(above, noise))
    return low, high


def pilot_of_pair(
    first: Column,
    second: Column,
    by_first: Groups,
    by_second: Groups,
    clusters: Ints | None = None,
    *,
    paired: bool = True,
) -> Pilot | None:
    """What two runs' rewards, [R] each, say over the tasks that both have; None for fewer than two units.

    Where runs are not ``paired``, of a comparison whose runs have tasks of their own.
    """
    runs = [_Run.of(column, by) for column, by in ((first, by_first), (second, by_second))]
    there = (runs[0].n > 0) & (runs[1].n > 0)
    one, two = (run.kept(there) for run in runs)
    values = [one.means - two.means] if paired else [one.means, two.means]
    kept = None if clusters is None else clusters[there]
    return _pilot(values, one.noise + two.noise, one.single + two.single, kept)


def pilot_of_run(column: Column, by: Groups, correlation: float, clusters: Ints | None = None) -> Pilot | None:
    """What one run's rewards, [R], say of two runs like it whose true task means correlate so.

    The correlation is taken as given: what is not known of it is not in the interval. None for fewer than two units.
    """
    run = _Run.of(column, by)
    there = run.n > 0
    run = run.kept(there)
    alike = 2 * (1 - correlation)
    kept = None if clusters is None else clusters[there]
    return _pilot([math.sqrt(alike) * run.means], alike * run.noise, 2 * run.single, kept)


@dataclass(frozen=True, slots=True)
class _Run:
    """The tasks of one run, [T] each."""

    n: Ints
    means: Floats
    single: Floats  # variance of one sample; 0 where the run has no repeats: all of the variance is then in the means

    @classmethod
    def of(cls, column: Column, by: Groups) -> _Run:
        n, means, within = moments(column, by)
        repeated = n > 1
        usual = float(total(within[repeated])) / int(repeated.sum()) if repeated.any() else 0.0
        return cls(n, means, np.where(repeated, within, usual))

    def kept(self, there: Bools) -> _Run:
        return _Run(self.n[there], self.means[there], self.single[there])

    @property
    def noise(self) -> Floats:
        return self.single / self.n


def _pilot(values: list[Floats], noise: Floats, single: Floats, clusters: Ints | None) -> Pilot | None:
    tasks = len(noise)
    code = np.arange(tasks) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    units = int(code.max(initial=-1)) + 1
    if units < 2:
        return None
    each = units / tasks  # sums over the tasks of a unit become shares of what a task has
    squares = np.zeros(units)
    for some in values:
        pull = sum_by(code, some - total(some) / tasks, units)
        squares += each * pull * pull * units / (units - 1)
    sizes = np.bincount(code, minlength=units)
    worth = tasks**2 / float(sizes @ sizes)
    sums = [each * sum_by(code, part, units) for part in (noise, single)]
    return Pilot(squares, sums[0], sums[1], max(1.0, worth - 1.0))
