"""Every named thing, on one page. A name stays a string until somebody asks for it."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Any

from calipers.errors import PluginError, UnknownName


class Index:
    """Names of one kind: built in, added at run time, or brought by installed packages.

    ``entries`` map a name, or a family such as ``pass@{k}``, to ``module:object``. ``groups`` are
    the entry-point groups asked after them, each with what must be called before it is loaded.
    """

    def __init__(self, kind: str, entries: Mapping[str, str], groups: Mapping[str, str] | None = None) -> None:
        self.kind = kind
        self.entries = entries
        self.added: dict[str, Any] = {}
        self._groups = groups or {}

    def match(self, name: str) -> tuple[str, int | None] | None:
        """The entry a name belongs to and its k; an exact name wins over a family."""
        if name in self.entries and "{k}" not in name:
            return name, None
        for entry in self.entries:
            head, family, tail = entry.partition("{k}")
            if family and (found := re.fullmatch(f"{re.escape(head)}([0-9]+){re.escape(tail)}", name)):
                return entry, int(found[1])
        return None

    def load(self, entry: str) -> Any:
        """The object behind a built-in entry."""
        return load(self.entries[entry])

    def add(self, name: str, thing: Any) -> None:
        """Add a name at run time; a taken one is an error, the same object again is not."""
        held = self.added.get(name)
        if held is not None and held is not thing:
            raise PluginError(f"{self.kind} {name!r} is taken already; give one of the two another name")
        self.added[name] = thing

    def plugin(self, name: str) -> Any | None:
        """A name added at run time or by an installed package; None when nobody has it.

        Packages are asked by entry-point name first. EvSys' real key is the one its decorator got,
        so the rest of the group is loaded before the answer is no.
        """
        if name in self.added:
            return self.added[name]
        points = [point for group in self._groups for point in _entry_points(group)]
        for point in sorted(points, key=lambda point: point.name != name):
            if before := self._groups[point.group]:
                load(before)()
            try:
                thing = point.load()
            except Exception as error:
                if point.name == name:
                    whose = f"{self.kind} {name!r} of {point.dist.name if point.dist else point.value}"
                    raise PluginError(f"{whose} cannot be loaded: {error}") from error
                continue  # somebody else's plugin is broken: it fails when it is asked for
            if point.name == name and name not in self.added:
                self.added[name] = thing
            if name in self.added:
                return self.added[name]
        return None

    def names(self) -> list[str]:
        """Every name there is, sorted; families as ``pass@{k}``."""
        points = {point.name for group in self._groups for point in _entry_points(group)}
        return sorted({*self.entries, *self.added, *points})

    def unknown(self, name: str) -> UnknownName:
        """The error for a name nobody has."""
        return UnknownName.of(self.kind, name, self.names())


def load(target: str) -> Any:
    """The object that ``module:object`` names."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _entry_points(group: str) -> list[Any]:
    from importlib.metadata import entry_points

    return list(entry_points(group=group))


METRICS = Index(
    "metric",
    {
        "mean_reward": "calipers.metrics.rewards:MEAN_REWARD",
        "pass_rate": "calipers.metrics.rewards:PASS_RATE",
        "solved_rate": "calipers.metrics.rewards:SOLVED_RATE",
        "pass@{k}": "calipers.metrics.rewards:PASS_AT_K",
        "pass^{k}": "calipers.metrics.rewards:PASS_HAT_K",
        "any_of_first_{k}": "calipers.metrics.rewards:ANY_OF_FIRST_K",
        "all_of_first_{k}": "calipers.metrics.rewards:ALL_OF_FIRST_K",
        "max@{k}": "calipers.metrics.rewards:MAX_AT_K",
        "mean": "calipers.metrics.columns:MEAN",
        "median": "calipers.metrics.columns:MEDIAN",
        "min": "calipers.metrics.columns:MIN",
        "max": "calipers.metrics.columns:MAX",
        "sum": "calipers.metrics.columns:SUM",
        "std": "calipers.metrics.columns:STD",
        "percentile": "calipers.metrics.columns:PERCENTILE",
        "time_per_task": "calipers.metrics.economics:TIME_PER_TASK",
        "tokens_per_task": "calipers.metrics.economics:TOKENS_PER_TASK",
        "cost_per_task": "calipers.metrics.economics:COST_PER_TASK",
        "cost_per_solved": "calipers.metrics.economics:COST_PER_SOLVED",
        "latency_p50": "calipers.metrics.economics:LATENCY_P50",
        "latency_p90": "calipers.metrics.economics:LATENCY_P90",
        "latency_p99": "calipers.metrics.economics:LATENCY_P99",
    },
    groups={"calipers.metrics": "", "evsys_sdk.metrics": "calipers.compat:activate"},
)

DIALECTS = Index(
    "dialect",
    {
        "native": "calipers.dialects.dialect:NATIVE",
        "evsys": "calipers.dialects.evsys:EVSYS",
    },
)
