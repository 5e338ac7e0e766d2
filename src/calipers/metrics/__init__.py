"""The `Metric` class, parsing of metric requests, and functions that several metrics share.

A metric is a name, the columns that it reads, and two pure functions. ``reduce`` turns the samples of each task into
one value or a few counts. ``aggregate`` turns those into one number: it maps ``[..., N]`` to ``[...]``. An aggregation
never gets an empty array, because a metric over no tasks is undefined without being aggregated.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import comb
from typing import Any, Literal, TypeVar, overload

import numpy as np

from calipers.errors import InputError, UnknownName
from calipers.names import METRICS
from calipers.rollouts.column import Bools, Column, Floats, Groups, Ints, total


def task_mean(column: Column, by: Groups) -> Column:
    """The mean of the values of each task, [T]; a gap for a task without values."""
    n = by.count(column.given)
    return Column(by.sum(column) / np.maximum(n, 1), n > 0)


def task_sum_and_count(column: Column, by: Groups) -> Column:
    """The sum and the number of the values of each task, [T, 2]; for metrics that are pooled over samples."""
    n = by.count(column.given)
    return Column(np.stack([by.sum(column), n.astype(float)], axis=1), n > 0)


def each(column: Column, by: Groups) -> Column:
    """The samples unchanged, [R]; for statistics that cannot be computed from one value per task."""
    return column


def pass_counts(rewards: Column, by: Groups, threshold: float) -> tuple[Ints, Ints]:
    """The number of samples and of passes of each task, [T] both. NaN is not a pass; a gap is not a sample."""
    return by.count(rewards.given), by.count(passed(rewards, threshold))


def passed(rewards: Column, threshold: float) -> Bools:
    """Whether each sample has a reward that reaches the threshold, [R]."""
    with np.errstate(invalid="ignore"):
        return rewards.given & (rewards.values >= threshold)


def by_counts(n: Ints, c: Ints, chance: Callable[[int, int], float], at_least: int) -> Column:
    """``chance(n, c)`` of each task, [T], computed once for each distinct pair.

    A gap for a task with fewer than ``at_least`` samples.
    """
    width = int(n.max(initial=0)) + 1
    pair = n * width + c
    if width * width <= 2 * len(pair) + 1000:  # a table of all possible pairs is faster than sorting the tasks
        distinct, code = np.flatnonzero(np.bincount(pair, minlength=width * width)), pair
        table = np.zeros(width * width)
    else:
        distinct, code = np.unique(pair, return_inverse=True)
        table = np.zeros(len(distinct))
    for index, (samples, passes) in enumerate(divmod(p, width) for p in distinct.tolist()):
        if samples >= at_least:
            table[distinct[index] if code is pair else index] = chance(samples, passes)
    return Column(table[code], n >= at_least)


def share_without(total: int, chosen: int, k: int) -> float:
    """The chance that k draws without replacement miss all the chosen: C(total - chosen, k) / C(total, k).

    It is rounded once.

    >>> share_without(10, 3, 5)
    0.08333333333333333
    """
    return comb(total - chosen, k) / comb(total, k)


WORTH_A_SAMPLE = 1 << 16  # values from which on a sample is taken; fewer values are partitioned directly
_SAMPLE = 1 << 13  # size of the sample
_MARGIN = 4 * math.isqrt(_SAMPLE) // 2  # four times the largest standard deviation of a rank in the sample


def ranked(values: Floats, ranks: Sequence[int]) -> Floats:
    """The order statistics of the values, [N], at these ranks, [K], counted from 0; all NaN if any value is NaN.

    Of many values, a small sample gives bounds for the wanted order statistics; the values below the bounds are
    counted, and only those between the bounds are partitioned. The counts show whether the bounds were right; if not,
    all values are partitioned. So the sample affects the speed, but never the result.

    >>> ranked(np.array([30.0, 10.0, 20.0]), [0, 1]).tolist()
    [10.0, 20.0]
    """
    wanted = np.asarray(ranks, dtype=np.int64)
    if np.isnan(values.max()):
        return np.full(len(wanted), np.nan)
    quick = _between_bounds(values, wanted) if len(values) >= WORTH_A_SAMPLE else None
    return np.partition(values, wanted)[wanted] if quick is None else quick


def percentiles(values: Floats, levels: Sequence[float]) -> Floats:
    """The percentiles of the values, [N], at these levels, [K], by linear interpolation between two ranks.

    >>> percentiles(np.arange(1.0, 21.0), [0, 90]).tolist()
    [1.0, 18.1]
    """
    at = np.asarray(levels, dtype=np.float64) / 100 * (len(values) - 1)
    first = np.floor(at).astype(np.int64)
    last = np.minimum(first + 1, len(values) - 1)
    low, high = ranked(values, [*first.tolist(), *last.tolist()]).reshape(2, -1)
    share = at - first
    nearer = np.isfinite(high) & ((share >= 0.5) | np.isinf(low))  # so that both ends are exact
    with np.errstate(invalid="ignore"):
        step = high - low
        between = np.where(nearer, high - step * (1 - share), low + step * share)
    return np.where((share == 0) | (low == high), low, between)  # an infinite value with a share of 0 has no effect


def _between_bounds(values: Floats, ranks: Ints) -> Floats | None:
    """The order statistics at these ranks, if a sample bounds them closely enough; else None."""
    sample = np.sort(values[:: len(values) // _SAMPLE])
    scale = len(sample) / len(values)
    first, last = int(ranks.min() * scale) - _MARGIN, int(ranks.max() * scale) + _MARGIN
    if last - first > len(sample) // 2:
        return None
    low = sample[first] if first >= 0 else -np.inf
    high = sample[last] if last < len(sample) else np.inf
    inside = values >= low
    inner_ranks = ranks - (len(values) - np.count_nonzero(inside))
    inside &= values <= high
    if inner_ranks.min() < 0 or inner_ranks.max() >= np.count_nonzero(inside):
        return None
    if low == high:
        return np.full(len(ranks), low)
    statistics: Floats = np.partition(values[inside], inner_ranks)[inner_ranks]
    return statistics


TINY = 1e-130  # the square of a smaller difference may underflow


def mean(values: Floats) -> Floats:
    """The mean over tasks, ``[..., T] -> [...]``."""
    return np.asarray(total(values) / values.shape[-1])


def pooled(counts: Floats) -> Floats:
    """The sum of the sums divided by the sum of the counts, ``[..., T, 2] -> [...]``."""
    return total(counts[..., 0]) / total(counts[..., 1])


def largest(values: Floats) -> Floats:
    """The largest value; NaN if any value is NaN."""
    return np.asarray(values.max(axis=-1))


def smallest(values: Floats) -> Floats:
    """The smallest value; NaN if any value is NaN."""
    return np.asarray(values.min(axis=-1))


def spread(values: Floats) -> Floats:
    """The sample standard deviation (n - 1), computed from the exact mean; NaN for a single value."""
    count = values.shape[-1]
    if count < 2:
        return np.full(values.shape[:-1], np.nan)
    deviations = values - mean(values)[..., None]
    farthest = float(np.maximum(deviations.max(initial=0.0), -deviations.min(initial=0.0)))
    power = 0
    if math.isfinite(farthest) and not TINY < farthest < 1 / TINY:
        power = -math.frexp(farthest)[1]  # its square would under- or overflow; scaling by a power of two is exact
        np.ldexp(deviations, power, out=deviations)
    deviations *= deviations
    return np.asarray(np.ldexp(np.sqrt(total(deviations) / (count - 1)), -power))


def percentile(values: Floats, q: float) -> Floats:
    """The q-th percentile by linear interpolation between order statistics (numpy's "linear").

    >>> float(percentile(np.arange(1.0, 21.0), q=90))
    18.1
    """
    if values.ndim == 1:
        return np.asarray(percentiles(values, [q])[0])
    return np.asarray(np.percentile(values, q, axis=-1))


def median(values: Floats) -> Floats:
    """The middle value, or the mean of the two middle values."""
    if values.ndim == 1:
        return np.asarray(ranked(values, sorted({(len(values) - 1) // 2, len(values) // 2})).mean())
    return np.asarray(np.median(values, axis=-1))


Reduce = Callable[..., Column]
"""``reduce(*columns, by, **params)``: columns [R] to task values [T], or [T, S] counts per task."""

Aggregate = Callable[..., Floats]
"""``aggregate(values, **params)``: task values ``[..., T]`` to numbers ``[...]``; the same function computes
the value and all bootstrap draws."""

PASS_THRESHOLD = 1.0
"""A sample passes when its reward is at least this."""

UNIT = (0.0, 1.0)

IntervalKind = Literal["mean", "pooled", "posterior", "quantile", "bootstrap", "none"]
"""The kind of interval of a metric.

"mean" is for a mean of task values, "pooled" for a rate pooled over samples, "posterior" for a mean of posteriors,
"quantile" for a percentile.
"""

SHORT = ("undefined", "judged")
"""The values of the parameter ``short``: how a task with fewer than k samples is treated."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: how one number is computed from the rollouts of a benchmark.

    Task values are in ``range`` if that is known; with ``of_rewards``, they are in [0, 1] if the rewards are. With
    ``rows``, the aggregate gets rollouts, not tasks.
    """

    name: str
    reduce: Reduce
    aggregate: Aggregate
    reads: tuple[str, ...] = ("reward",)  # "reward", "column" (the requested column), or a column's name
    params: Mapping[str, Any] = field(default_factory=dict)  # name -> default, or its type if there is no default
    uses: Callable[[Column, Any, int], Column] | None = None  # (column, by, k) -> the samples it uses; None: all
    extremes: Callable[..., tuple[Column, Column]] | None = None  # see `metrics.rewards`; None: gaps are filled
    aggregated: tuple[str, ...] = ()  # the parameters that `aggregate` takes; `reduce` takes the others
    range: tuple[float, float] | None = None
    of_rewards: bool = False
    rows: bool = False
    higher_is_better: bool | None = True
    quantile: float | str | None = None  # the percentile that it computes, or the name of the parameter with it
    no_interval: str = ""  # the reason why the metric has no interval; "" if it has one
    interval: IntervalKind | None = None  # None: derived from the fields above and the aggregate in `__post_init__`
    breaks: frozenset[str] = frozenset()  # the laws of tests/laws that do not hold for it
    across_tasks: bool = False  # a task's value depends on other tasks, so all tasks are reduced together

    def __post_init__(self) -> None:
        """Derive the kind of interval: means, pooled rates and percentiles have their own, others the bootstrap.

        InputError for a metric that reads nothing.
        """
        if not self.reads:
            raise InputError(f"metric {self.name!r} reads nothing; expected 'reward', or the name of a column")
        if self.interval is None:
            kind: IntervalKind = "bootstrap"
            if self.no_interval:
                kind = "none"
            elif self.quantile is not None:
                kind = "quantile"
            elif self.aggregate is mean or self.aggregate is pooled:
                kind = "mean" if self.aggregate is mean else "pooled"
            object.__setattr__(self, "interval", kind)

    @property
    def is_mean(self) -> bool:
        """Whether it is a mean of task values, weighted equally or by samples."""
        return self.interval in ("mean", "pooled")

    def check_values(self, column: Column, by: Groups) -> None:
        """Raise ValueError unless ``column``, which ``reduce`` returned, has a value for each task, within the range.

        Otherwise a user's metric with too few values, or with values outside its declared range, would get a wrong
        number or a wrong interval.
        """
        if not self.rows and len(column.values) != by.size:
            raise ValueError(f"it gives {len(column.values)} values; expected one for each of {by.size} tasks")
        if self.range is not None and self.interval == "mean":
            (low, high), kept = self.range, column.kept()
            tolerance = 1e-9 * (high - low)  # for rounding
            if ((kept < low - tolerance) | (kept > high + tolerance)).any():
                raise ValueError(
                    f"its values are {kept.min():g} to {kept.max():g}; expected its range, {low:g} to {high:g}"
                )

    def reach(self, ends: tuple[float, float]) -> tuple[float, float]:
        """The range of the metric for rewards between these limits; it includes 0 for votes, as no vote counts 0."""
        low, high = ends
        return (min(low, 0.0), max(high, 0.0)) if "answer" in self.reads else ends


@dataclass(frozen=True, slots=True)
class Opaque:
    """A plugin's function of all rewards, ``compute(list of tasks of rewards) -> float``."""

    name: str
    # not compared: each plan makes a new function object for the same metric
    compute: Callable[[Sequence[Sequence[float]]], float] = field(compare=False)
    reads: tuple[str, ...] = ("reward",)


def own_name(thing: Any) -> str:
    """The name of a user's metric: its attribute ``name``, else the name of the function or class; "" for neither."""
    kind = thing if isinstance(thing, type) or hasattr(thing, "__name__") else type(thing)
    name = getattr(thing, "name", None)
    if isinstance(name, str) and name:
        return name
    is_metric = callable(thing) or callable(getattr(thing, "compute", None))
    return str(kind.__name__) if is_metric else ""


Registered = TypeVar("Registered", bound=Callable[..., Any])  # a function or a class, returned unchanged


@overload
def metric(name: str | None = None) -> Callable[[Registered], Registered]: ...
@overload
def metric(name: Registered) -> Registered: ...
def metric(name: Any = None) -> Any:
    """Register your own metric under a name, for ``--plugin``: ``@metric`` or ``@metric("NAME")``.

    It decorates a function ``rewards -> float`` or a class with ``compute``, and returns it unchanged.

    >>> @metric
    ... def worst(rewards):
    ...     return min(min(task) for task in rewards)
    >>> METRICS.plugin("worst") is worst, METRICS.discard("worst")
    (True, None)
    """
    if not isinstance(name, str) and name is not None:
        _add(own_name(name), name)
        return name

    def decorate(thing: Any) -> Any:
        _add(name or own_name(thing), thing)
        return thing

    return decorate


def _add(name: str, thing: Any) -> None:
    if METRICS.match(name):
        raise InputError(f"metric {name!r} is built in; give the new one another name")
    METRICS.define(name, thing)


_SHAPE = re.compile(r"\s*(?P<name>[^\s()=,]+)\s*(?:\((?P<params>(?:[^()]|\([^()]*\))*)\))?\s*")


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """A parsed metric request: its text, which is the key of the result, the metric's name, and the parameters."""

    text: str
    name: str
    params: Mapping[str, str | float] = field(default_factory=dict)

    @classmethod
    def of(cls, written: str | Mapping[str, Any]) -> MetricSpec:
        """Read a metric string or a mapping ``{metric: pass@3, threshold: 0.5}``.

        >>> MetricSpec.of("pass@3(threshold=0.5)").params
        {'threshold': 0.5}
        """
        if isinstance(written, Mapping):
            params = {str(key): value for key, value in written.items() if key != "metric"}
            if not isinstance(written.get("metric"), str):
                raise InputError(f"a metric has no name; expected {{metric: NAME, ...}}, not {written}")
            inner = ", ".join(f"{key}={value}" for key, value in params.items())
            return cls(f"{written['metric']}({inner})" if inner else written["metric"], written["metric"], params)
        match = _SHAPE.fullmatch(written)
        if match is None:
            raise InputError(f"metric {written!r} cannot be read; expected a name such as pass@3 or mean(column=f1)")
        return cls(written, match["name"], _params(written, match["params"] or ""))


def _params(written: str, text: str) -> dict[str, str | float]:
    params: dict[str, str | float] = {}
    for pair in filter(None, (piece.strip() for piece in text.split(","))):
        key, equals, value = (side.strip() for side in pair.partition("="))
        if not (key and equals and value):
            raise InputError(f"metric {written!r}: {pair!r} cannot be read; expected key=value")
        if key in params:
            raise InputError(f"metric {written!r}: {key} is given twice; expected it once")
        params[key] = _value(value)
    return params


def _value(text: str) -> str | float:
    """The value of a parameter: a number if ``%g`` writes it the same way, else the text (007 may name a column)."""
    number = _number(text)
    return text if number is None or f"{number:g}" != text else number


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def settle(request: MetricSpec, metric: Metric, k: int | None) -> dict[str, Any]:
    """The parameters of a metric: its defaults, overridden by the requested parameters, which are checked.

    Every metric that reads rewards accepts ``reward``, the reward key.
    """
    given = dict(request.params)
    known = dict(metric.params)
    if "reward" in metric.reads:
        known["reward"] = ""
    settled: dict[str, Any] = {}
    for key in given:
        if key not in known or key == "k":
            raise UnknownName.of(f"parameter of {request.name}", key, [name for name in known if name != "k"])
    for key, default in known.items():
        if key == "k":
            if not k:
                raise InputError(f"metric {request.text!r}: k is {k}; expected a positive integer")
            settled[key] = k
        elif key in given:
            settled[key] = _typed(request, key, given[key], default if isinstance(default, type) else type(default))
        elif isinstance(default, type):
            needed = ", ".join(f"{name}=..." for name, kind in known.items() if isinstance(kind, type) and name != "k")
            raise InputError(f"metric {request.text!r} needs {key}; expected {request.name}({needed})")
        else:
            settled[key] = default
    return settled


def _typed(request: MetricSpec, key: str, value: str | float, kind: type) -> str | float:
    if key == "short" and value not in SHORT:
        raise InputError(f"metric {request.text!r}: short is {value!r}; expected {' or '.join(SHORT)}")
    if kind is str:  # a column may be called 1
        return f"{value:g}" if isinstance(value, float) else str(value)
    if isinstance(value, str):
        value = value if (number := _number(value)) is None else number
    if not isinstance(value, (int, float)) or value != value or abs(value) == float("inf"):
        raise InputError(f"metric {request.text!r}: {key} is {value!r}; expected a number")
    if key == "tau" and not 0 < value <= 1:
        raise InputError(f"metric {request.text!r}: tau is {value:g}; expected a share above 0, at most 1")
    if key == "q" and not 0 <= value <= 100:
        raise InputError(f"metric {request.text!r}: q is {value:g}; expected 0 to 100")
    return float(value)
