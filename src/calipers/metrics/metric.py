"""A metric: two pure functions, a name, and what it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from calipers.metrics.aggregate import mean, pooled
from calipers.rollouts.column import Column, Floats

Reduce = Callable[..., Column]
"""``reduce(*columns, by, **params)``: columns [R] to task values [T], or [T, S] counts per task."""

Aggregate = Callable[..., Floats]
"""``aggregate(values, **params)``: task values ``[..., T]`` to numbers ``[...]``; one call serves
the value and any number of bootstrap draws."""

PASS_THRESHOLD = 1.0
"""A sample passes when its reward is at least this."""

UNIT = (0.0, 1.0)

IntervalKind = Literal["mean", "pooled", "posterior", "quantile", "bootstrap", "none"]
"""How sure a metric is: as a mean of task values, a rate pooled over samples, a mean of posteriors, a percentile; by
drawing tasks again; or not at all."""

SHORT = ("undefined", "judged")
"""What becomes of a task with fewer than k samples, for a metric with the parameter ``short``."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One number for a benchmark, and how it comes about.

    Its values lie in ``range`` where that is known; ``of_rewards`` says that rewards in [0, 1] keep
    them there too. ``rows`` says that the aggregate sees rollouts, not tasks.
    """

    name: str
    reduce: Reduce
    aggregate: Aggregate
    reads: tuple[str, ...] = ("reward",)  # "reward", "column" (the one asked for), or a column's name
    params: Mapping[str, Any] = field(default_factory=dict)  # name -> default, or its type where there is none
    uses: Callable[[Column, Any, int], Column] | None = None  # (column, by, k) -> what it looks at, if not at all
    extremes: Callable[..., tuple[Column, Column]] | None = None  # see `metrics.extremes`; None: gaps are filled
    aggregated: tuple[str, ...] = ()  # the parameters that `aggregate` takes; `reduce` takes the others
    range: tuple[float, float] | None = None
    of_rewards: bool = False
    rows: bool = False
    higher_is_better: bool | None = True
    quantile: float | str | None = None  # which percentile it is, or the parameter that says so
    no_interval: str = ""  # why there is no interval, for a metric that can have none
    interval: IntervalKind | None = None  # None: as the fields above and the aggregate say, see `__post_init__`
    breaks: frozenset[str] = frozenset()  # the laws of tests/laws that do not hold for it

    def __post_init__(self) -> None:
        """A mean and a pooled rate have their own interval, a percentile has its order statistics, all else draws."""
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
        """Whether it is a weighted mean of task values: each task alike, or by its samples."""
        return self.interval in ("mean", "pooled")

    def reach(self, ends: tuple[float, float]) -> tuple[float, float]:
        """The range of its values where rewards lie between these ends; a vote in which nobody votes counts 0."""
        low, high = ends
        return (min(low, 0.0), max(high, 0.0)) if "answer" in self.reads else ends


@dataclass(frozen=True, slots=True)
class Opaque:
    """Somebody's own function of all rewards, ``compute(list of tasks of rewards) -> float``."""

    name: str
    compute: Callable[[Sequence[Sequence[float]]], float]
    reads: tuple[str, ...] = ("reward",)
