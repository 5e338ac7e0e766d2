"""A dialect is data: which names mean what, what is asked for by default, what gaps become."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calipers.errors import InputError, PluginError, UnknownName, nearest
from calipers.metrics.metric import Metric, Opaque
from calipers.metrics.request import Request, settle
from calipers.names import DIALECTS, METRICS, match
from calipers.rollouts.ledger import Missing
from calipers.rollouts.record import label
from calipers.rollouts.table import Rollouts


@dataclass(frozen=True, slots=True)
class Dialect:
    """One system's way to name metrics and to treat what is missing."""

    name: str
    metrics: Mapping[str, str] | None = None  # its names -> ours; None: all of ours
    default: tuple[str, ...] = ("mean_reward", "pass_rate")
    missing: Missing = "gap"
    undefined: float | None = None  # what a metric over no tasks becomes
    label: Callable[[Any], str] = label  # the name of a slice
    skips: bool = False  # leave out, with a warning, a metric that is unknown or fails
    labels: tuple[str, ...] = ()  # what it has to know of a rollout beside its numbers
    over_datasets: bool = True  # the mean over datasets says something, as all have the same reward
    every_reward: bool = False  # of several rewards each is reported, also where one is called reward
    seen: Callable[[Rollouts], Rollouts] | None = None  # the rollouts as it counts them
    own: Callable[[Rollouts, Sequence[str]], Mapping[str, Any]] | None = None  # (group, asked) -> keys of the result
    asks: Callable[[Any], Sequence[str] | None] | None = None  # what the source itself wants, before `default`


NATIVE = Dialect("native")


@dataclass(frozen=True, slots=True)
class Asked:
    """A metric that was asked for, found and settled: ready to be computed."""

    text: str  # the result's key
    metric: Metric | Opaque
    params: Mapping[str, Any]
    foreign: bool = False  # somebody else's code: its exceptions are not ours


def resolve(asked: str | Mapping[str, Any], dialect: Dialect) -> Asked:
    """Find what a metric string means in a dialect: its table first, then plugins."""
    request = _request(asked)
    if dialect.metrics is not None and request.name in dialect.metrics:
        if request.params:
            raise InputError(
                f"metric {request.text!r}: {dialect.name}'s metrics take no parameters; expected {request.name}"
            )
        inner = Request.of(dialect.metrics[request.name])
        return Asked(request.text, *_built_in(inner))
    if dialect.metrics is None and METRICS.match(request.name):
        return Asked(request.text, *_built_in(request))
    plugin = METRICS.plugin(request.name)
    if plugin is None:
        raise _unknown(request.name, dialect)
    metric = as_metric(request.name, plugin)
    if isinstance(metric, Metric):
        found = match(request.name, METRICS.added)
        return Asked(request.text, metric, settle(request, metric, found[1] if found else None), foreign=True)
    if request.params:
        raise InputError(f"metric {request.text!r} takes no parameters; expected {request.name}")
    return Asked(request.text, metric, {}, foreign=True)


def _request(asked: str | Mapping[str, Any]) -> Request:
    """What was asked for; a plugin's name is a free string, which need not look like a metric's."""
    if not isinstance(asked, str):
        if not isinstance(asked, Mapping):
            raise InputError(f"a metric is asked for as {asked!r}; expected a name such as 'pass@3'")
        return Request.of(asked)
    if asked in METRICS.added:
        return Request(asked, asked)
    try:
        return Request.of(asked)
    except InputError:
        if METRICS.plugin(asked) is None:
            raise
        return Request(asked, asked)


def _built_in(request: Request) -> tuple[Metric, dict[str, Any]]:
    found = METRICS.match(request.name)
    if found is None:
        raise METRICS.unknown(request.name)
    entry, k = found
    metric: Metric = METRICS.load(entry)
    return metric, settle(request, metric, k)


def as_metric(name: str, thing: Any) -> Metric | Opaque:
    """A plugin's object as a metric: a `Metric`, or anything with EvSys' ``compute``.

    A class is made anew, without arguments, for every call, as EvSys does: nothing it keeps in
    itself passes from one draw of the bootstrap to the next.
    """
    if isinstance(thing, Metric):
        return thing
    try:
        made = thing() if isinstance(thing, type) else thing
    except Exception as error:
        raise PluginError(f"metric {name!r} cannot be made: {type(error).__name__}: {error}") from error
    if not callable(getattr(made, "compute", None)):
        raise PluginError(f"metric {name!r} is {thing!r}; expected a calipers.Metric or a class with compute()")
    if isinstance(thing, type):
        return Opaque(name, lambda tasks: thing().compute(tasks))
    return Opaque(name, made.compute)


def _unknown(name: str, dialect: Dialect) -> UnknownName:
    if dialect.metrics is None:
        tables = {other: DIALECTS.load(other).metrics or {} for other in DIALECTS.entries}
        whose = [other for other, table in tables.items() if name in table]
        return METRICS.unknown(name, hint=f"it is a name of --dialect {whose[0]}" if whose else "")
    known = [*dialect.metrics, *METRICS.plugins()]
    hint = ""
    if METRICS.match(name):
        close = " or ".join(map(repr, nearest(name, known)))
        instead = f"did you mean {close}, or --dialect native?" if close else "use --dialect native"
        hint = f"it is a native name: {instead}"
    return METRICS.unknown(name, known, hint, of=dialect.name)
