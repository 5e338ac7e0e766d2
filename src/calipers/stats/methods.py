"""Intervals on request, each under its name, for any weighted mean of task values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from calipers.rollouts.column import Floats, Ints
from calipers.rollouts.sums import sum_by, total
from calipers.stats.bootstrap import Draws, bca_ends, draw, percentile_ends
from calipers.stats.intervals import Interval, Spread, alone, binomial_size, interval, spread_of, t_half_width
from calipers.stats.sequence import population

Ends = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Weighted:
    """A weighted mean of task values, and how sure one wants to be of it."""

    values: Floats  # [T]
    weights: Floats  # [T]
    limits: Ends | None = None  # the range the values cannot leave
    clusters: Ints | None = None  # [T] the unit each task belongs to
    confidence: float = 0.95
    seed: int = 0

    @property
    def scale(self) -> Ends:
        """The range; [0, 1] stands for the values' own scale where none is known."""
        return self.limits or (0.0, 1.0)


Method = Callable[[str, Weighted, Spread], Interval]
"""``method(name, weighted, spread)``: called only where there are two units or more."""


def named_interval(name: str, weighted: Weighted) -> Interval:
    """The interval called ``name``, or why there is none; "default" is the default rule.

    One task, or one cluster, gives none, whatever the method.
    """
    if name == "default":
        return _default(weighted)
    spread = spread_of(weighted.values, weighted.weights, weighted.limits, weighted.clusters)
    if spread.units < 2:
        return alone(len(weighted.values), weighted.clusters)
    return METHODS[name](name, weighted, spread)


def _default(weighted: Weighted) -> Interval:
    return interval(weighted.values, weighted.weights, weighted.confidence, weighted.limits, weighted.clusters)


def _wilson(name: str, weighted: Weighted, spread: Spread) -> Interval:
    """The closed form of the default rule, and nothing in its place where there is no range."""
    return _no_range(name, weighted, spread) if weighted.limits is None else _default(weighted)


def _t(name: str, weighted: Weighted, spread: Spread) -> Interval:
    """``m +- t(U - 1) se``, clipped to the range where one is known."""
    half = t_half_width(spread, weighted.confidence)
    low, high = spread.mean - half, spread.mean + half
    if spread.variance == 0 or low >= high:
        return _no_spread(name, weighted)
    if weighted.limits is not None:
        low, high = max(low, 0.0), min(high, 1.0)
    return _scaled(name, weighted, spread, (low, high))


def _beta(name: str, weighted: Weighted, spread: Spread, prior: float, opposite_prior: float) -> Interval:
    """Quantiles of two beta distributions on x = m n' passes of n' tasks.

    The lower end is that of ``Beta(x + prior, n' - x + opposite_prior)``, the upper end its mirror image.
    """
    if weighted.limits is None:
        return _no_range(name, weighted, spread)
    tasks, m, tail = binomial_size(spread, weighted.confidence), spread.mean, (1 - weighted.confidence) / 2
    passes, fails = max(m, 0.0) * tasks, max(1 - m, 0.0) * tasks
    low = _beta_quantile(passes + prior, fails + opposite_prior, tail)
    high = 1 - _beta_quantile(fails + prior, passes + opposite_prior, tail)
    if name != "beta":  # the posterior of a uniform prior leaves out 0 and 1, and is to be read so
        low, high = min(low, m), max(high, m)
    return _scaled(name, weighted, spread, (low, high))


def _bootstrap(name: str, weighted: Weighted, spread: Spread, ends: Callable[[Draws, float], Ends | None]) -> Interval:
    """The mean again on tasks, or clusters, drawn with replacement; the error is the spread of the draws."""
    if spread.variance == 0:
        return _no_spread(name, weighted)
    weights, sums = weighted.weights, weighted.weights * weighted.values
    value = float(total(sums) / total(weights))
    if weighted.clusters is not None:
        size = int(weighted.clusters.max()) + 1
        weights, sums = (sum_by(weighted.clusters, column, size) for column in (weights, sums))
    draws = draw(sums[weights > 0], weights[weights > 0], weighted.seed)
    reach = ends(draws, weighted.confidence)
    if reach is None:
        return Interval(draws.stderr, None, None, f"the draws are too skewed for {name}")
    least, most = float(weighted.values.min()), float(weighted.values.max())
    low, high = min(max(reach[0], least), value), max(min(reach[1], most), value)
    if low >= high:
        return Interval(draws.stderr, None, None, "the draws agree at this confidence")
    return Interval(draws.stderr, (low, high), name)


def _sequence(name: str, weighted: Weighted, spread: Spread) -> Interval:
    """The beta mixture of tasks that count alike: valid whatever made their number, a stopping rule included."""
    if weighted.limits is None:
        return _no_range(name, weighted, spread)
    if weighted.clusters is not None or weighted.weights.min() != weighted.weights.max():
        return Interval(_stderr(weighted, spread), None, None, f"{name} needs tasks that count alike, and no clusters")
    low, high = weighted.limits
    amount, tasks = float(total((weighted.values - low) / (high - low))), len(weighted.values)
    return _scaled(name, weighted, spread, population(min(max(amount, 0.0), float(tasks)), tasks, weighted.confidence))


def _beta_quantile(a: float, b: float, tail: float) -> float:
    from scipy.special import betaincinv

    return float(betaincinv(a, b, tail)) if a > 0 else 0.0


def _stderr(weighted: Weighted, spread: Spread) -> float:
    low, high = weighted.scale
    return (high - low) * math.sqrt(spread.variance)


def _scaled(name: str, weighted: Weighted, spread: Spread, ends: Ends) -> Interval:
    """Ends found where the range is [0, 1], mapped back."""
    low, high = weighted.scale
    return Interval(_stderr(weighted, spread), (low + (high - low) * ends[0], low + (high - low) * ends[1]), name)


def needs_range(name: str) -> str:
    """Why a method has no interval for values whose range is not known."""
    return f"{name} needs a known range; t, bootstrap and bca do not"


def _no_range(name: str, weighted: Weighted, spread: Spread) -> Interval:
    return Interval(_stderr(weighted, spread), None, None, needs_range(name))


def _no_spread(name: str, weighted: Weighted) -> Interval:
    units = "task values" if weighted.clusters is None else "clusters"
    return Interval(0.0, None, None, f"all {units} agree, and {name} has no width without spread")


METHODS: Final[Mapping[str, Method]] = {
    "wilson": _wilson,
    "t": _t,
    "clopper-pearson": partial(_beta, prior=0.0, opposite_prior=1.0),
    "jeffreys": partial(_beta, prior=0.5, opposite_prior=0.5),
    "beta": partial(_beta, prior=1.0, opposite_prior=1.0),
    "bootstrap": partial(_bootstrap, ends=percentile_ends),
    "bca": partial(_bootstrap, ends=bca_ends),
    "beta_mixture": _sequence,
}
"""Every method that can be asked for; `stats.cards` says what each is."""
