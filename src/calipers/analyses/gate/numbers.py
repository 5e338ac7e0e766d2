"""The numbers of results, as far as a gate needs them: of documents, of rollouts, of lm-evaluation-harness' tables."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from calipers.analyses.compare.checks import named
from calipers.analyses.compare.missing import NO_RANGE, ends_of, filled_rollouts, no_filling, within_range
from calipers.analyses.compare.question import metric_key
from calipers.analyses.compare.values import DocumentTable, short, table_of, table_reader
from calipers.analyses.gate.requirement import Requirement
from calipers.errors import CalipersError, InputError
from calipers.formats.read import Input
from calipers.formats.run_plan import stop_said
from calipers.formats.source import STDIN
from calipers.pipeline import read, score, score_rollouts
from calipers.reports.result import SCHEMA, Result
from calipers.request import make_plan, per_reward
from calipers.rollouts.ledger import contributed
from calipers.rollouts.stop import Stop
from calipers.stats.estimate import NO_SEQUENCE


class Number(msgspec.Struct, frozen=True, gc=False):
    """An estimate, as far as a gate needs it."""

    value: float | None
    interval: tuple[float, float] | None = None
    why: str | None = None
    tasks: int = 0
    better: bool | None = None  # of a number of lm-evaluation-harness' table: whether a higher one is
    bounds: tuple[float, float] | None = None  # where the value may lie, whatever the gaps hold
    remark: str | None = None  # what must be said beside the answer
    samples: int = 0
    higher_is_better: bool | None = None
    lacking: bool = False  # of a difference: some rollouts of its tasks are missing


class GateLedger(msgspec.Struct, frozen=True, gc=False):
    """How many rollouts there should be, and how many have no number."""

    planned: int
    gaps: int


class Stopped(msgspec.Struct, frozen=True, gc=False):
    """The stopping rule that ended a run early."""

    bias: str | None = None


class GateSlice(msgspec.Struct, frozen=True):
    """Some rollouts of a group."""

    ledger: GateLedger
    metrics: dict[str, Number]


class GateGroup(msgspec.Struct, frozen=True):
    """The rollouts of one agent, model and dataset."""

    ledger: GateLedger
    metrics: dict[str, Number]
    agent: str | None = None
    model: str | None = None
    dataset: str | None = None
    breakdowns: dict[str, dict[str, GateSlice]] = msgspec.field(default_factory=dict)
    economics: dict[str, Any] = msgspec.field(default_factory=dict)
    stopped: Stopped | None = None

    @property
    def who(self) -> tuple[str | None, str | None, str | None]:
        """Agent, model and dataset."""
        return self.agent, self.model, self.dataset

    @property
    def title(self) -> str:
        """``dataset · model · agent``, as far as they are known."""
        return " · ".join(part for part in (self.dataset, self.model, self.agent) if part) or "(unnamed)"

    def numbers(self) -> dict[str, Number]:
        """Its metrics, and those of what it cost."""
        spent = {name: one for name, one in self.economics.items() if name != "total"}
        return {**msgspec.convert(spent, dict[str, Number]), **self.metrics}


Who = tuple[str | None, str | None, str | None]
"""Agent, model and dataset."""


class StoredReport(msgspec.Struct, frozen=True):
    """A report of a result document: what one model's runs come to in lm-evaluation-harness' terms."""

    model: str | None = None
    tasks: dict[str, dict[str, dict[str, Any]]] = {}


def written(reports: Sequence[StoredReport], whose: Sequence[Who]) -> dict[Who, dict[str, Number]]:
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


def _of_values(table: DocumentTable, key: str, place: int, confidence: float, seed: int) -> Number:
    way, held = table.ways[key], list(table.values.get(key, {}).values())
    if way.aggregation is None:
        said = "it is added up by the task's own function, of which only a run's result.json has the number"
        return Number(None, why=said, tasks=len(held), better=way.higher_is_better)
    try:
        value = table_reader().value(way.aggregation, held)
    except CalipersError as error:
        return Number(None, why=f"it cannot be worked out again ({error})", better=way.higher_is_better)
    sure = table_reader().spread(way.aggregation, held, value, confidence, [seed, place])
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


Key = tuple[str, tuple[tuple[str, str], ...]]
NO_ENDS: Final = "a finished result keeps no interval with its missing rollouts filled; expected the rollouts"
NO_BOUNDS: Final = "no bounds are known for it"
BOTTOM, TOP = 0, 1  # the ends of the range of rewards
NO_SIDE: Final = "which way is better is not known, so there is no worse end"


@dataclass(frozen=True, slots=True)
class Filled:
    """Rollouts scored again with every missing one failed, or passed, and the metrics of which that says nothing."""

    result: Result
    unknown: Mapping[Key, str]  # a metric -> why


def scored_filled(
    path: str, metrics: Sequence[Any] | None, by: Sequence[str], given: Mapping[str, Any], end: int
) -> Filled:
    """Fill the missing rollouts of a file with an end of the range and score them, as ``given`` says."""
    if path == STDIN:
        raise InputError.at("worst(...)", "standard input can be read only once", "expected a file")
    settings = {name: value for name, value in given.items() if name not in ("columns", "missing")}
    plan = make_plan(metrics, by=list(by), source=path, **settings)
    rollouts = read(path, columns=given.get("columns"), labels=plan.labels)
    unknown: dict[Key, str] = {}
    for asked in plan.asked:
        if why := no_filling(asked):
            unknown[metric_key(asked.text)] = why
            continue
        for one in per_reward(asked, rollouts, plan.reward, plan.dialect.every_reward):
            if not within_range(contributed(rollouts, one.params["reward"]), ends_of(plan)):
                unknown[metric_key(one.text)] = NO_RANGE
    return Filled(score_rollouts(filled_rollouts(rollouts, ends_of(plan)[end]), plan), unknown)


def at_end(number: Number, part: GateGroup | GateSlice, *, worse: bool) -> Number:
    """A value with the missing rollouts of its part at the worse end, or at the better one, by the bounds it has."""
    if not part.ledger.gaps:
        return number
    if number.bounds is None:
        return Number(None, why=number.why if number.value is None and number.why else NO_BOUNDS, tasks=number.tasks)
    if number.higher_is_better is None:
        return Number(None, why=NO_SIDE, tasks=number.tasks)
    value = (min if number.higher_is_better == worse else max)(number.bounds)
    return Number(value, why=NO_ENDS, tasks=number.tasks, higher_is_better=number.higher_is_better)


def worst_of(
    wanted: Requirement, part: GateGroup | GateSlice, number: Number, unknown: Mapping[Key, str], twin: Number | None
) -> Number:
    """The worst of a number of rollouts: ``twin``, the same number of the filled ones, where filling says something."""
    why = unknown.get(wanted.key) or (NO_BOUNDS if twin is None else None)
    if why is None and twin is not None:
        return twin
    return number if not part.ledger.gaps else Number(None, why=why, tasks=number.tasks)


LARGEST: Final = 1 << 28
ZERO: Final = "zero"
_LOOK: Final = 1 << 16
_MARK: Final = re.compile(rb'"schema"\s*:\s*"calipers\.result/')


class _Document(msgspec.Struct):
    schema: str
    groups: list[GateGroup]
    confidence: float | None = None
    lm_eval: list[StoredReport] = []
    missing: str = "gap"
    stopped: str | None = None


@dataclass(frozen=True, slots=True)
class GateNumbers:
    """The groups of one result."""

    path: str
    groups: Sequence[GateGroup]
    document: bool  # finished numbers: nothing more can be asked of them
    notes: Sequence[str] = ()
    tables: Mapping[Who, Mapping[str, Number]] = field(default_factory=dict)  # of lm-evaluation-harness, by group
    known: Sequence[str] = ()  # the names that their tables have
    confidence: float | None = None  # of the intervals
    filled: Mapping[int, Mapping[Who, GateGroup]] = field(
        default_factory=dict
    )  # an end of the range -> the groups with
    # every missing rollout there, where that is asked for
    unknown: Mapping[Key, str] = field(default_factory=dict)  # a metric of which that says nothing -> why
    zero: bool = False  # missing rollouts count 0, by the rule that was asked for

    @property
    def once(self) -> bool:
        """Whether it cannot be scored again: it is finished, or was read as it came."""
        return self.document or self.path == STDIN

    def of_table(self, group: GateGroup, wanted: Requirement) -> Number | None:
        """What a requirement names in the table of a group; None where that has nothing of the name.

        InputError where another group has it: then one of them is to be picked.
        """
        found = picked(self.tables.get(group.who, {}), wanted.metric)
        if found is None:
            there = [one for one in self.groups if picked(self.tables.get(one.who, {}), wanted.metric)]
            if there:
                wrong = f"{group.title} has no {wanted.metric}, and {there[0].title} has"
                raise InputError.at(self.path, wrong, "pick the group, such as by --dataset, or dataset: in a policy")
            return None
        if wanted.by is not None:
            return Number(None, why=f"{wanted.metric} has no value in a slice, only delta({wanted.metric}[...])")
        if group.stopped is not None and found.interval is not None:
            return msgspec.structs.replace(found, interval=None, why=NO_SEQUENCE)
        return found


@dataclass(frozen=True, slots=True)
class GateScoring:
    """How rollouts are turned into numbers, where a result is rollouts."""

    dialect: str | None = None
    missing: str | None = None
    cluster: str | None = None
    reward: str | None = None
    range: tuple[float, float] | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    confidence: float | None = None
    seed: int | None = None

    def given(self) -> dict[str, Any]:
        """What was asked for, by the names of `score`."""
        held = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in held.items() if value not in (None, {})}


def is_document(path: str) -> bool:
    """Whether a file is a result of ours, by what stands at its beginning or at its end."""
    if path == STDIN or not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as file:
            head = file.read(_LOOK)
            if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
                return False
            file.seek(max(os.path.getsize(path) - _LOOK, 0))
            return any(_MARK.search(part) for part in (head[:1024], file.read(_LOOK)))
    except OSError as error:
        raise InputError.at(path, f"cannot be read ({error.strerror})") from None


def answers(path: str, metrics: Sequence[str], by: Sequence[str], scoring: GateScoring) -> GateNumbers:
    """The numbers of a result document; or of rollouts, scored for these metrics and slices."""
    if not is_document(path):
        return _scored(path, metrics, by, scoring)
    if given := scoring.given():
        options = ", ".join(f"--{name}" for name in given)
        raise InputError.at(path, f"is a finished result, and {options} is about scoring", "expected rollouts")
    held = _read(path)
    tables = written(held.lm_eval, [group.who for group in held.groups])
    known = short(key for table in tables.values() for key in table)
    return GateNumbers(
        path, held.groups, True, _stops(path, held), tables, known, held.confidence, zero=held.missing == ZERO
    )


def _scored(path: str, metrics: Sequence[str], by: Sequence[str], scoring: GateScoring) -> GateNumbers:
    asked = named(list(metrics) or None, scoring.dialect, [path])
    result = score(path, asked.ours or None, by=list(by), **scoring.given())
    found = msgspec.convert(result.to_dict(), _Document)
    tables: dict[Who, dict[str, Number]] = {}
    known: list[str] = []
    if asked.theirs:
        for group in found.groups:
            tables[group.who], keys = worked_out(
                result.inputs, group.who, list(asked.theirs), result.confidence, result.seed
            )
            known += keys
        if not known and not any(tables.values()):
            raise next(iter(asked.theirs.values()))
    warned = [f"warning: {said}" for group in result.groups for said in group.warnings]
    notes = [*result.notes, *_stops("", found), *warned]
    zero = found.missing == ZERO
    return GateNumbers(path, found.groups, False, notes, tables, short(known), found.confidence, zero=zero)


def with_filled(
    found: GateNumbers, metrics: Sequence[str], by: Sequence[str], scoring: GateScoring, *ends: int
) -> GateNumbers:
    """The same with rollouts scored once more for each end of the range (`BOTTOM`, `TOP`), every missing one there."""
    held, unknown = dict(found.filled), dict(found.unknown)
    asked = named(list(metrics) or None, scoring.dialect, [found.path])
    for end in ends:
        if end not in held:
            filled = scored_filled(found.path, asked.ours or None, by, scoring.given(), end)
            twins = msgspec.convert(filled.result.to_dict(), _Document).groups
            held[end] = {group.who: group for group in twins}
            unknown |= filled.unknown
    return replace(found, filled=held, unknown=unknown)


def _stops(path: str, found: _Document) -> list[str]:
    """That stopping rules ended runs of a result, where its notes do not say it, and what that does to its values."""
    if found.stopped is None:
        return []
    biases = [group.stopped.bias for group in found.groups if group.stopped and group.stopped.bias]
    if not biases:  # of an earlier version
        stop = stop_said(found.stopped)
        biases = [Stop(stop.rule, stop.metric, stop.side).bias]
    return [*([f"{path}: {found.stopped}"] if path else []), *dict.fromkeys(biases)]


def _read(path: str) -> _Document:
    if os.path.getsize(path) > LARGEST:
        raise InputError.at(path, f"larger than {LARGEST >> 20} MiB", "expected a result as calipers score writes it")
    with open(path, "rb") as file:
        text = file.read().removeprefix(b"\xef\xbb\xbf")
    try:
        found = msgspec.json.decode(text, type=_Document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        wrong = f"is no whole result document ({str(error).rstrip('.')})"
        raise InputError.at(path, wrong, f"expected {SCHEMA}, as calipers score --out writes it") from None
    if found.schema != SCHEMA:
        raise InputError.at(path, f"its schema is {found.schema!r}", f"expected {SCHEMA!r}")
    return found
