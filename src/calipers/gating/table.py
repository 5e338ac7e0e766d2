"""The numbers of lm-evaluation-harness' table, for a gate: as a result has them, or worked out from a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from calipers.comparison.samples import table_of
from calipers.comparison.values import Table
from calipers.errors import CalipersError, InputError
from calipers.gating.groups import Number
from calipers.metrics.lm_eval import aggregate
from calipers.readers.read import Input
from calipers.stats.documents import spread

Who = tuple[str | None, str | None, str | None]
"""Agent, model and dataset."""


class Shown(msgspec.Struct, frozen=True):
    """A report of a result document: what one model's runs come to in lm-evaluation-harness' terms."""

    model: str | None = None
    tasks: dict[str, dict[str, dict[str, Any]]] = {}


def written(reports: Sequence[Shown], whose: Sequence[Who]) -> dict[Who, dict[str, Number]]:
    """The table of each group of a result document, by ``metric,pipeline``."""
    found: dict[Who, dict[str, Number]] = {}
    for who in whose:
        for report in reports:
            if report.model == who[1] and who[2] in report.tasks:
                cells = report.tasks[who[2] or ""]
                found[who] = {key: _number(cell) for key, cell in cells.items()}
    return found


def _number(cell: Mapping[str, Any]) -> Number:
    held = msgspec.convert(cell, Number)
    return msgspec.structs.replace(held, tasks=int(cell.get("documents") or 0), better=cell.get("higher_is_better"))


def worked_out(
    inputs: Sequence[Input], who: Who, wanted: Sequence[str], confidence: float, seed: int
) -> tuple[dict[str, Number], list[str]]:
    """The wanted numbers of a group's table, by what documents keep; and all names it has.

    The value and its interval are those of ``calipers run`` with this confidence and seed.
    """
    table = table_of(inputs, who)
    if table.why is not None:
        return {name: Number(None, why=f"{table.why}; {table.cure}") for name in wanted}, []
    keys = {key for name in wanted for key in table.named(name)}
    return {
        key: _of_values(table, key, place, confidence, seed) for place, key in enumerate(table.ways) if key in keys
    }, list(table.ways)


def _of_values(table: Table, key: str, place: int, confidence: float, seed: int) -> Number:
    way, held = table.ways[key], list(table.values.get(key, {}).values())
    if way.aggregation is None:
        said = "it is added up by the task's own function, of which only a run's result.json has the number"
        return Number(None, why=said, tasks=len(held), better=way.higher_is_better)
    try:
        value = float(aggregate(way.aggregation, held))
    except CalipersError as error:
        return Number(None, why=f"it cannot be worked out again ({error})", better=way.higher_is_better)
    sure = spread(way.aggregation, held, value, confidence, [seed, place])
    shown = value if math.isfinite(value) else None
    why = sure.why if shown is not None else f"it is {value}"
    return Number(shown, sure.ends, why, len(held), way.higher_is_better)


def picked(table: Mapping[str, Number], name: str) -> Number | None:
    """The number that a name means: itself, or a metric that one pipeline has; InputError where several have it."""
    if name in table:
        return table[name]
    keys = [key for key in table if key.rpartition(",")[0] == name]
    if len(keys) > 1:
        raise InputError(f"metric {name!r} is a number of several pipelines; expected one of {', '.join(keys)}")
    return table[keys[0]] if keys else None
