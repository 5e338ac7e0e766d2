"""A metric: two pure functions, a name, and what it reads; and how to request it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from calipers.errors import InputError, UnknownName
from calipers.metrics.reduce import mean, pooled
from calipers.names import METRICS
from calipers.rollouts.column import Column, Floats

Reduce = Callable[..., Column]
"""``reduce(*columns, by, **params)``: columns [R] to task values [T], or [T, S] counts per task."""

Aggregate = Callable[..., Floats]
"""``aggregate(values, **params)``: task values ``[..., T]`` to numbers ``[...]``; the same function computes
the value and all bootstrap draws."""

PASS_THRESHOLD = 1.0
"""A sample passes when its reward is at least this."""

UNIT = (0.0, 1.0)

IntervalKind = Literal["mean", "pooled", "posterior", "quantile", "bootstrap", "none"]
"""The kind of interval: for a mean of task values, a rate pooled over samples, a mean of posteriors, a percentile; by
the bootstrap; or none."""

SHORT = ("undefined", "judged")
"""What happens with a task with fewer than k samples, for a metric with the parameter ``short``."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: how one number is computed from the rollouts of a benchmark.

    Its values are in ``range`` if that is known; with ``of_rewards``, values are in [0, 1] if rewards are. With
    ``rows``, the aggregate receives rollouts, not tasks.
    """

    name: str
    reduce: Reduce
    aggregate: Aggregate
    reads: tuple[str, ...] = ("reward",)  # "reward", "column" (the one asked for), or a column's name
    params: Mapping[str, Any] = field(default_factory=dict)  # name -> default, or its type where there is none
    uses: Callable[[Column, Any, int], Column] | None = None  # (column, by, k) -> what it looks at, if not at all
    extremes: Callable[..., tuple[Column, Column]] | None = None  # see `metrics.rewards`; None: gaps are filled
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
        """Means and pooled rates have their own interval, percentiles use order statistics, others the bootstrap."""
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

    def reach(self, ends: tuple[float, float]) -> tuple[float, float]:
        """The range of its values for rewards between these ends; a vote without votes counts as 0."""
        low, high = ends
        return (min(low, 0.0), max(high, 0.0)) if "answer" in self.reads else ends


@dataclass(frozen=True, slots=True)
class Opaque:
    """A plugin's function of all rewards, ``compute(list of tasks of rewards) -> float``."""

    name: str
    compute: Callable[[Sequence[Sequence[float]]], float] = field(
        compare=False
    )  # made anew for each plan, and the same
    reads: tuple[str, ...] = ("reward",)


def own_name(thing: Any) -> str:
    """What a metric of the user's is called: its own name if it has one, else that of the function or class."""
    kind = thing if isinstance(thing, type) or hasattr(thing, "__name__") else type(thing)
    name = getattr(thing, "name", None)
    if isinstance(name, str) and name:
        return name
    known = callable(thing) or callable(getattr(thing, "compute", None))
    return str(kind.__name__) if known else ""


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
    """A metric request: the text that names the result, the metric's name, its parameters."""

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
    """A number if it reads back exactly as written, else the text: 007 may be the name of a column."""
    number = _number(text)
    return text if number is None or f"{number:g}" != text else number


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def settle(request: MetricSpec, metric: Metric, k: int | None) -> dict[str, Any]:
    """The parameters of a metric: the requested ones, checked, over its defaults.

    Any metric that reads rewards accepts ``reward``, the reward key.
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
            settled[key] = _positive(request, k)
        elif key in given:
            settled[key] = _typed(request, key, given[key], default if isinstance(default, type) else type(default))
        elif isinstance(default, type):
            needed = ", ".join(f"{name}=..." for name, kind in known.items() if isinstance(kind, type) and name != "k")
            raise InputError(f"metric {request.text!r} needs {key}; expected {request.name}({needed})")
        else:
            settled[key] = default
    return settled


def _positive(request: MetricSpec, k: int | None) -> int:
    if not k:
        raise InputError(f"metric {request.text!r}: k is {k}; expected a positive integer")
    return k


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
