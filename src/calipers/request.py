"""What the user asked for, read once and checked before anything is opened."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, get_args

from calipers.dialect import Asked, Dialect, resolve
from calipers.errors import CalipersError, InputError, UnknownName
from calipers.names import DIALECTS
from calipers.reports.result import Result
from calipers.rollouts.ledger import Missing
from calipers.rollouts.table import Rollouts
from calipers.stats.cards import DEFAULT, canonical

Afterwards = Callable[[Result, Rollouts], Result]
"""A last step over a result and the rollouts it was made of, such as others' metric scripts."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A scoring, fully decided: every name resolved, every number in its range."""

    asked: Sequence[Asked]
    dialect: Dialect
    missing: Missing
    by: tuple[str, ...] = ()
    cluster: str | None = None
    reward: str | None = None
    confidence: float = 0.95
    seed: int = 0
    interval: str = DEFAULT
    range: tuple[float, float] | None = None  # of rewards, where it is not [0, 1]
    afterwards: Afterwards | None = None

    @property
    def labels(self) -> tuple[str, ...]:
        """The label paths the readers must keep."""
        read = {"answer"} if any("answer" in one.metric.reads for one in self.asked) else set[str]()
        keys = {*self.by, *([self.cluster] if self.cluster else [])}
        inside = {key.removeprefix("metadata.") for key in keys}  # its full path leads there, too
        return tuple(sorted({*keys, *inside, *read, *self.dialect.labels}))


def make_plan(
    metrics: str | Sequence[str | Mapping[str, Any]] | None = None,
    *,
    by: str | Sequence[str] = (),
    cluster: str | None = None,
    dialect: str | None = None,
    missing: str | None = None,
    reward: str | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    interval: str | None = None,
    range: tuple[float, float] | None = None,
    afterwards: Afterwards | None = None,
    source: Any = None,
) -> Plan:
    """Resolve and check everything a scoring is asked to do; InputError for what cannot be done.

    ``source`` is what will be read: a dialect may find in it what to ask for.
    """
    speech = _dialect(dialect or "native")
    if missing is not None and missing not in get_args(Missing):
        raise UnknownName.of("policy for missing rollouts", missing, get_args(Missing))
    if not 0 < confidence < 1:
        raise InputError(f"confidence is {confidence}; expected a number between 0 and 1, such as 0.95")
    if seed < 0:
        raise InputError(f"seed is {seed}; expected an integer >= 0")
    method = canonical(DEFAULT if interval is None else interval)
    unasked = (speech.asks(source) if speech.asks and not metrics else None) or speech.default
    wanted = [metrics] if isinstance(metrics, (str, Mapping)) else list(metrics or unasked)
    asked = {found.text: found for found in _resolved(wanted, speech)}
    return Plan(
        asked=list(asked.values()),
        dialect=speech,
        missing=cast(Missing, missing or speech.missing),
        by=(by,) if isinstance(by, str) else tuple(dict.fromkeys(by)),
        cluster=cluster,
        reward=reward,
        confidence=confidence,
        seed=seed,
        interval=method,
        range=_range(range),
        afterwards=afterwards,
    )


def _range(ends: tuple[float, float] | None) -> tuple[float, float] | None:
    if ends is None:
        return None
    try:
        low, high = map(float, ends)
    except (TypeError, ValueError):
        raise InputError(f"range is {ends!r}; expected the lowest and the highest reward, such as (-1, 1)") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(f"range is {low:g},{high:g}; expected two numbers, the lower one first, such as -1,1")
    return low, high


def _resolved(wanted: Sequence[str | Mapping[str, Any]], dialect: Dialect) -> Iterator[Asked]:
    for metric in wanted:
        try:
            yield resolve(metric, dialect)
        except CalipersError as error:
            if not dialect.skips:
                raise
            warnings.warn(f"metric {metric!r} is left out: {error}", stacklevel=4)


def _dialect(name: str) -> Dialect:
    if name not in DIALECTS.entries:
        raise DIALECTS.unknown(name)
    found: Dialect = DIALECTS.added.get(name) or DIALECTS.load(name)
    return found
