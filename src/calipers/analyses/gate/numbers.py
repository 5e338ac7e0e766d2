"""The numbers that a gate checks, from result documents, rollouts and tables of lm-evaluation-harness.

Also the differences between a result and its baseline in each group. They are paired on the common tasks if both are
rollouts.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final

import msgspec

from calipers.analyses.compare import Comparison, Contest, Finding, Pair, Run, metric_key
from calipers.analyses.compare.document import common_tasks, shown_names
from calipers.analyses.compare.findings import why_not_fillable
from calipers.analyses.compare.source import (
    CalledTable,
    DocumentTable,
    paths_of,
    short,
    split_metrics,
    table_of,
    table_reader,
)
from calipers.analyses.gate.requirement import Requirement
from calipers.errors import CalipersError, InputError, UnknownName, UnrelatedRuns
from calipers.formats import BAD, options_of
from calipers.formats.read import Input
from calipers.formats.run_folder import stop_of_sentence
from calipers.formats.source import STDIN
from calipers.pipeline import MANY_MISSING, Source, group_notes, read, score
from calipers.remarks import Remark
from calipers.reports.figures import counted
from calipers.reports.remark_texts import note_of, text_of
from calipers.reports.result import SCHEMA, Group, Result
from calipers.request import Plan, RequestedMetric, make_plan, per_reward
from calipers.rollouts.checks import Check, disagreements
from calipers.rollouts.column import Column
from calipers.rollouts.filling import ends_of, filled, to_fill
from calipers.rollouts.labels import sliced
from calipers.rollouts.ledger import RANDOM, contributed
from calipers.rollouts.record import Stop
from calipers.rollouts.table import Rollouts
from calipers.stats.claims import Evidence
from calipers.stats.estimate import NO_SEQUENCE
from calipers.stats.free_bounds import FreeBounds, free_bounds
from calipers.stats.margins import margin_ends, margin_method, p_at_margin, too_few
from calipers.stats.paired import Difference
from calipers.typed import complete

FIRST_ONLY: Final = ("any_of_first_", "all_of_first_")
"""The metrics that read only the first samples of a task."""


class Number(msgspec.Struct, frozen=True, gc=False):
    """The fields of an estimate that a gate needs."""

    value: float | None
    interval: tuple[float, float] | None = None
    why: str | None = None
    tasks: int = 0
    better: bool | None = None  # whether higher is better, for a number of lm-evaluation-harness' table
    bounds: tuple[float, float] | None = None  # the value with all missing rollouts failed, and with all passed
    remark: str | None = None  # to be added to the answer
    samples: int = 0
    higher_is_better: bool | None = None  # for any other number
    lacking: bool = False  # for a difference: whether rollouts of its tasks are missing
    signature: str = ""

    @property
    def of_all_samples(self) -> bool:
        """Whether it is a metric of all samples of a reward, not of the first ones."""
        metric, _, settings = self.signature.partition("|")
        return "reward:" in settings and not metric.startswith(FIRST_ONLY)

    @property
    def of_first_samples(self) -> str:
        """The name of the metric to require instead, if the number of samples follows the results."""
        k = re.search(r"\|k:(\d+)\|", self.signature)
        return f"any_of_first_{k[1] if k else 1}"

    # the intervals with all missing rollouts failed, and with all passed; None if a document does not have them
    filled_intervals: tuple[tuple[float, float] | None, tuple[float, float] | None] | None = None


class GateLedger(msgspec.Struct, frozen=True, gc=False):
    """The number of planned rollouts, and how many of them have no number."""

    planned: int
    gaps: int
    not_filled: int | None = None

    @property
    def filled(self) -> int:
        """The missing rollouts that are filled in; the others were lost before the model was asked."""
        return self.gaps - (self.not_filled or 0)


class Stopped(msgspec.Struct, frozen=True, gc=False):
    """The stopping rule that ended a run early."""

    bias: str | None = None


class GateSlice(msgspec.Struct, frozen=True):
    """A slice of a group's rollouts."""

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
    first_tries: dict[str, Any] | None = None  # if the number of samples follows the results

    @property
    def identity(self) -> tuple[str | None, str | None, str | None]:
        """Agent, model and dataset."""
        return self.agent, self.model, self.dataset

    @property
    def title(self) -> str:
        """``dataset · model · agent``, without the unknown ones."""
        return " · ".join(part for part in (self.dataset, self.model, self.agent) if part) or "(unnamed)"

    def numbers(self) -> dict[str, Number]:
        """Its metrics and its economics."""
        economics = {name: number for name, number in self.economics.items() if name != "total"}
        return {**msgspec.convert(economics, complete(dict[str, Number])), **self.metrics}


Identity = tuple[str | None, str | None, str | None]
"""Agent, model and dataset."""


class StoredNumber(msgspec.Struct, frozen=True, gc=False):
    """A number of lm-evaluation-harness' table in a result document."""

    value: float | None
    interval: tuple[float, float] | None = None
    why: str | None = None
    documents: int | None = None
    higher_is_better: bool | None = None


class StoredReport(msgspec.Struct, frozen=True):
    """The tables of one model in a result document, in lm-evaluation-harness' terms."""

    model: str | None = None
    tasks: dict[str, dict[str, StoredNumber]] = {}


def stored_tables(reports: Sequence[StoredReport], identities: Sequence[Identity]) -> dict[Identity, dict[str, Number]]:
    """The tables of the groups in a result document. Each maps ``metric,pipeline`` to a number."""
    return {
        (agent, model, dataset): {
            key: Number(cell.value, cell.interval, cell.why, cell.documents or 0, cell.higher_is_better)
            for key, cell in report.tasks[dataset or ""].items()
        }
        for agent, model, dataset in identities
        for report in reports
        if report.model == model and dataset in report.tasks
    }


def table_numbers(
    inputs: Sequence[Input], identity: Identity, names: Sequence[str], confidence: float, seed: int
) -> tuple[dict[str, Number], list[str]]:
    """The named numbers of a group's table, computed from its document values, and the keys of the whole table.

    The values and intervals are those that ``calipers run`` reports with this confidence and seed.
    """
    table = table_of(inputs, identity)
    if table is None:
        return {}, []
    if table.why is not None:
        return {name: Number(None, why=f"{table.why}; {table.cure}") for name in names}, []
    keys = {key for name in names for key in table.named(name)}
    return {
        key: _aggregate(table, key, index, confidence, seed) for index, key in enumerate(table.ways) if key in keys
    }, list(table.ways)


def _aggregate(table: DocumentTable, key: str, index: int, confidence: float, seed: int) -> Number:
    way, values = table.ways[key], list(table.values.get(key, {}).values())
    if way.aggregation is None:
        why_not = "the task's own function computes it, and only a run's result.json has the number"
        return Number(None, why=why_not, tasks=len(values), better=way.higher_is_better)
    try:
        value = table_reader().value(way.aggregation, values)
    except CalipersError as error:
        return Number(None, why=f"it cannot be computed again ({error})", better=way.higher_is_better)
    spread = table_reader().spread(way.aggregation, values, value, confidence, [seed, index])
    finite_value = value if math.isfinite(value) else None
    why = spread.why if finite_value is not None else f"it is {value}"
    return Number(finite_value, spread.ends, why, len(values), way.higher_is_better)


def number_in_table(table: Mapping[str, Number], name: str) -> Number | None:
    """The number of a key, or of a metric with one pipeline; InputError if the metric has several pipelines."""
    if name in table:
        return table[name]
    keys = [key for key in table if key.rpartition(",")[0] == name]
    if len(keys) > 1:
        raise InputError(f"metric {name!r} exists for several pipelines; expected one of {', '.join(keys)}")
    return table[keys[0]] if keys else None


NO_ENDS: Final = "the document has no interval with the missing rollouts filled in; expected the rollouts"
NO_INTERVAL: Final = "there is no interval with the missing rollouts filled in"
NO_BOUNDS: Final = "no bounds are known for it"
Key = tuple[str, tuple[tuple[str, str], ...]]
BOTTOM, TOP = 0, 1  # indices of the ends of the range of rewards
NO_SIDE: Final = "it is not known whether higher or lower is better, so there is no worst case"


PASS_AT_K: Final = "pass@{k}"


def lacks_samples(groups: Sequence[GateGroup], on_ends: Collection[Key]) -> bool:
    """Whether a metric of ``on_ends`` has no value in a group or a slice because no task has enough samples."""
    for group in groups:
        cuts = chain.from_iterable(by_value.values() for by_value in group.breakdowns.values())
        for metrics in (group.metrics, *(cut.metrics for cut in cuts)):
            for name, number in metrics.items():
                if number.value is None and not number.tasks and metric_key(name) in on_ends:
                    return True
    return False


def bounded_beyond_samples(
    groups: Sequence[GateGroup], rollouts: Rollouts, plan: Plan, on_ends: Collection[Key]
) -> list[GateGroup]:
    """The groups, in which every pass@K of ``on_ends`` beyond the samples has the bounds that hold whatever the law."""
    requests = [
        request for request in plan.requests if request.metric.name == PASS_AT_K and metric_key(request.text) in on_ends
    ]
    if not requests or not lacks_samples(groups, on_ends):
        return list(groups)
    rollouts = plan.dialect.seen(rollouts) if plan.dialect.seen else rollouts
    parts = {tuple(part.keys[0]): part for part in rollouts.groups()}
    bounded = []
    for group in groups:
        part = parts[group.identity]
        variants: list[RequestedMetric] = []
        for request in requests:
            variants += per_reward(request, part, plan.reward, plan.dialect.every_reward)
        breakdowns = {}
        for key, cuts in group.breakdowns.items():
            rows = sliced(part, key, plan.dialect.label)
            breakdowns[key] = {
                name: msgspec.structs.replace(cut, metrics=_bounded(cut.metrics, rows[name], variants, plan))
                for name, cut in cuts.items()
            }
        metrics = _bounded(group.metrics, part, variants, plan)
        bounded.append(msgspec.structs.replace(group, metrics=metrics, breakdowns=breakdowns))
    return bounded


def _bounded(
    metrics: Mapping[str, Number], part: Rollouts, variants: Sequence[RequestedMetric], plan: Plan
) -> dict[str, Number]:
    """The metrics of a group or a slice, with the bounds of every pass@K beyond the samples, or why there are none."""
    bounded = dict(metrics)
    for variant in variants:
        number = metrics.get(variant.text)
        if number is None or number.value is not None or number.tasks:
            continue
        column, k = contributed(part, variant.params["reward"]), variant.params["k"]
        found = _free_bounds(column.filled(0.0) if plan.missing == ZERO else column, part, variant, plan)
        if found.why is not None:
            why = text_of(Remark("free_bounds_none", {"k": k, "samples": found.samples}, "no_answer"))
            bounded[variant.text] = msgspec.structs.replace(number, why=f"{why}: {text_of(found.why)}")
        else:
            remark = text_of(Remark("free_bounds_used", {"k": k, "samples": found.samples}))
            filled_ends = _filled_free_bounds(column, part, variant, plan)
            bounded[variant.text] = msgspec.structs.replace(
                number,
                interval=found.ends[k],
                remark=remark,
                tasks=found.tasks,
                # without missing rollouts these are those of tasks with fewer than K samples, which all tasks are
                bounds=number.bounds if filled_ends else None,
                filled_intervals=filled_ends,
            )
    return bounded


def _free_bounds(column: Column, part: Rollouts, variant: RequestedMetric, plan: Plan) -> FreeBounds:
    return free_bounds(
        column,
        part.by_task,
        [variant.params["k"]],
        threshold=variant.params["threshold"],
        confidence=plan.confidence,
        clustered=plan.cluster is not None,
        stopped=part.stop is not None,
    )


def _filled_free_bounds(
    column: Column, part: Rollouts, variant: RequestedMetric, plan: Plan
) -> tuple[tuple[float, float] | None, tuple[float, float] | None] | None:
    """The bounds with every missing rollout at the lowest, and at the highest, reward; None if nothing is missing."""
    rows, ends = to_fill(part, column), ends_of([column], plan.range)
    if not rows.any() or ends is None:
        return None
    low, high = (_free_bounds(filled(column, rows, end), part, variant, plan) for end in ends)
    k = variant.params["k"]
    return (None if low.why else low.ends[k]), (None if high.why else high.ends[k])


def number_of(requirement: Requirement, numbers: Mapping[str, Number]) -> Number | None:
    """The number of a requirement's metric, independent of spacing; None if there is none."""
    return next((number for name, number in numbers.items() if metric_key(name) == requirement.key), None)


def at_end(number: Number, part: GateGroup | GateSlice, *, worse: bool, unknown: str | None = None) -> Number:
    """The number with the missing rollouts of its group or slice at the worse or the better end, as `score` has it.

    ``unknown`` is the reason why filling says nothing about the number, if so.
    """
    if not part.ledger.filled:
        return number
    if number.bounds is None or unknown is not None:
        why = number.why if number.value is None and number.why else unknown or NO_BOUNDS
        return Number(None, why=why, tasks=number.tasks)
    if number.higher_is_better is None:
        return Number(None, why=NO_SIDE, tasks=number.tasks)
    end = BOTTOM if number.higher_is_better == worse else TOP
    interval = number.filled_intervals[end] if number.filled_intervals else None
    no_ends = None if interval else NO_ENDS if number.filled_intervals is None else NO_INTERVAL
    better = number.higher_is_better
    return Number(number.bounds[end], interval, no_ends, number.tasks, samples=number.samples, higher_is_better=better)


TABLE, BASELINE = "the result", "the baseline"  # the names of sources in memory
MAX_BYTES: Final = 1 << 28
ZERO: Final = "zero"
_PEEK_BYTES: Final = 1 << 16
_SCHEMA_MARK: Final = re.compile(rb'"schema"\s*:\s*"calipers\.result/')


class _Document(msgspec.Struct):
    """The fields of a result document that a gate needs."""

    schema: str
    groups: list[GateGroup]
    confidence: float | None = None
    lm_eval: list[StoredReport] = []
    missing: str = "gap"
    stopped: str | None = None
    checks: list[Check] = []


@dataclass(frozen=True, slots=True)
class GateNumbers:
    """The groups of one result with their numbers."""

    path: str  # or another name for a source in memory
    source: Source
    groups: Sequence[GateGroup]
    document: bool  # whether it is a finished result, which cannot be scored again
    notes: Sequence[str] = ()
    tables: Mapping[Identity, Mapping[str, Number]] = field(default_factory=dict)  # of lm-evaluation-harness, by group
    known: Sequence[str] = ()  # the names of numbers in the tables
    confidence: float | None = None  # of the intervals
    unknown: Mapping[str, str] = field(default_factory=dict)  # name of a metric -> why filling says nothing about it
    zero: bool = False  # whether missing rollouts count as 0
    checks: Sequence[Check] = ()  # numbers that the systems which wrote the rollouts report themselves, and ours

    @property
    def once(self) -> bool:
        """Whether its rollouts cannot be read again, because it is a finished result or standard input."""
        return self.document or is_stdin(self.source)

    def of_table(self, group: GateGroup, requirement: Requirement) -> Number | None:
        """The number of a requirement in the group's table; None if no table has it.

        InputError if only the table of another group has it.
        """
        metric = requirement.metric
        number = number_in_table(self.tables.get(group.identity, {}), metric)
        if number is None:
            with_number = [each for each in self.groups if number_in_table(self.tables.get(each.identity, {}), metric)]
            if with_number:
                problem = f"{group.title} has no {metric}, but {with_number[0].title} does"
                raise InputError.at(self.path, problem, "choose the group with --dataset, or with dataset: in a policy")
            return None
        if requirement.by is not None:
            return Number(None, why=f"{metric} has no value in a slice, only delta({metric}[...])")
        if group.stopped is not None and number.interval is not None:
            return msgspec.structs.replace(number, interval=None, why=NO_SEQUENCE)
        return number


@dataclass(frozen=True, slots=True)
class GateScoring:
    """The settings with which rollouts are scored. None of them applies to a finished result."""

    dialect: str | None = None
    missing: str | None = None
    cluster: str | None = None
    reward: str | None = None
    range: tuple[float, float] | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    confidence: float | None = None
    seed: int | None = None
    threshold: float | None = None

    def given(self) -> dict[str, Any]:
        """The settings that are given, as keyword arguments of `score`."""
        settings = self.compared()
        if settings.get("missing") == RANDOM:
            settings["missing"] = "gap"  # what a comparison assumes about missing rollouts changes no number
        return settings

    def compared(self) -> dict[str, Any]:
        """The settings that are given, as keyword arguments of `compare`."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in values.items() if value is not None and (name != "columns" or value)}

    def options(self) -> list[str]:
        """The options of the settings that are given; the columns are those of three options."""
        return [*(f"--{name}" for name in self.given() if name != "columns"), *options_of(self.columns)]


def is_stdin(source: Source) -> bool:
    """Whether a source is standard input, which can be read only once."""
    return isinstance(source, str) and source == STDIN


def display_name(source: Source, name_in_memory: str) -> str:
    """The name of a source in messages: its path, or ``name_in_memory`` for a source in memory."""
    return " ".join(paths_of(source)) or name_in_memory


def is_document(source: Source) -> bool:
    """Whether a source is a result in memory, or a file whose start or end has the schema of a result document."""
    if isinstance(source, Result):
        return True
    if is_stdin(source) or not isinstance(source, (str, os.PathLike)) or not os.path.isfile(source):
        return False
    path = os.fspath(source)
    try:
        with open(path, "rb") as file:
            head = file.read(_PEEK_BYTES)
            if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
                return False
            file.seek(max(os.path.getsize(path) - _PEEK_BYTES, 0))
            return any(_SCHEMA_MARK.search(part) for part in (head[:1024], file.read(_PEEK_BYTES)))
    except OSError as error:
        raise InputError.at(path, f"cannot be read ({error.strerror})") from None


def read_numbers(
    source: Source,
    metrics: Sequence[str],
    by: Sequence[str],
    scoring: GateScoring,
    name_in_memory: str = TABLE,
    on_ends: Collection[Key] = (),
) -> GateNumbers:
    """The numbers of a result document, or of rollouts after scoring them by these metrics and slices.

    ``name_in_memory`` is the name of a source in memory; ``on_ends`` are the metrics whose interval a requirement
    reads.
    """
    path = display_name(source, name_in_memory)
    if not is_document(source):
        return _score(source, path, metrics, by, scoring, on_ends)
    if given := scoring.options():
        raise InputError.at(path, f"is a finished result, so {', '.join(given)} cannot apply", "expected rollouts")
    content = msgspec.convert(source.to_dict(), complete(_Document)) if isinstance(source, Result) else _read(path)
    tables = stored_tables(content.lm_eval, [group.identity for group in content.groups])
    known = short(key for table in tables.values() for key in table)
    return GateNumbers(
        path,
        source,
        content.groups,
        True,
        [*_stops(path, content), *(f"warning: {text_of(remark)}" for remark in disagreements(content.checks))],
        tables,
        known,
        content.confidence,
        zero=content.missing == ZERO,
        checks=content.checks,
    )


def _score(
    source: Source,
    path: str,
    metrics: Sequence[str],
    by: Sequence[str],
    scoring: GateScoring,
    on_ends: Collection[Key],
) -> GateNumbers:
    rollout_metrics, table_metrics = split_metrics(list(metrics) or None, scoring.dialect, [source])
    result = score(source, rollout_metrics or None, by=list(by), **scoring.given())
    content = msgspec.convert(result.to_dict(), complete(_Document))
    tables: dict[Identity, dict[str, Number]] = {}
    known: list[str] = []
    if table_metrics:
        for identity in (group.identity for group in content.groups):
            tables[identity], keys = table_numbers(
                result.inputs, identity, list(table_metrics), result.confidence, result.seed
            )
            known += keys
        if not known and not any(tables.values()):
            raise next(iter(table_metrics.values()))
    notes = [*_without_missing(result), *_stops("", content)]
    zero = content.missing == ZERO
    groups = content.groups
    if lacks_samples(groups, on_ends) and not is_stdin(source):  # standard input can be read only once
        settings = scoring.given()
        plan = make_plan(
            rollout_metrics or None,
            by=list(by),
            source=source,
            **{name: value for name, value in settings.items() if name != "columns"},
        )
        rollouts = read(source, columns=settings.get("columns"), labels=plan.labels)
        groups = bounded_beyond_samples(groups, rollouts, plan, on_ends)
    return GateNumbers(
        path,
        source,
        groups,
        False,
        notes,
        tables,
        short(known),
        content.confidence,
        _not_fillable(rollout_metrics, source, scoring),
        zero=zero,
        checks=result.checks,
    )


def _without_missing(result: Result) -> list[str]:
    """The notes and warnings of a result that a gate needs.

    It has its own on many missing rollouts, and the metrics that are left out are not those that it requires.
    """
    own = [replace(group, remarks=_of_codes(group, (MANY_MISSING, "passes_left_out"))) for group in result.groups]
    said = {*group_notes(own)}
    for group in own:
        said |= {f"warning: {text_of(remark)}" for remark in group.remarks}
    warnings = []
    for group in result.groups:
        warnings += [f"warning: {warning}" for warning in group.warnings]
    return [note for note in dict.fromkeys([*result.notes, *warnings]) if note not in said]


def _of_codes(group: Group, codes: Collection[str]) -> list[Remark]:
    return [remark for remark in group.remarks if remark.code in codes]


def _not_fillable(metrics: Sequence[Any] | None, source: Source, scoring: GateScoring) -> dict[str, str]:
    """Why filling in missing rollouts says nothing about a metric, by the names of such metrics."""
    settings = {name: value for name, value in scoring.given().items() if name != "columns"}
    plan = make_plan(metrics or None, source=source, **settings)
    reasons = {metric_key(request.text)[0]: why_not_fillable(request) for request in plan.requests}
    return {name: why for name, why in reasons.items() if why is not None}


def _stops(path: str, content: _Document) -> list[str]:
    """Notes on a result's stopped runs and on the bias of their values; with ``path``, also on the stopping rule."""
    if content.stopped is None:
        return []
    biases = [group.stopped.bias for group in content.groups if group.stopped and group.stopped.bias]
    if not biases:  # a result of an earlier version does not store them
        stop = stop_of_sentence(content.stopped)
        biases = [Stop(stop.rule, stop.metric, stop.side).bias]
    return [*([f"{path}: {content.stopped}"] if path else []), *dict.fromkeys(biases)]


def _read(path: str) -> _Document:
    if os.path.getsize(path) > MAX_BYTES:
        raise InputError.at(path, f"larger than {MAX_BYTES >> 20} MiB", "expected a result as calipers score writes it")
    with open(path, "rb") as file:
        text = file.read().removeprefix(b"\xef\xbb\xbf")
    try:
        content = msgspec.json.decode(text, type=complete(_Document))
        for group in content.groups:
            group.numbers()  # checks the economics, which are decoded only here because they also have a total
    except BAD as error:
        problem = f"is not a complete result document ({str(error).rstrip('.')})"
        raise InputError.at(path, problem, f"expected {SCHEMA}, as calipers score --out writes it") from None
    if content.schema != SCHEMA:
        raise InputError.at(path, f"its schema is {content.schema!r}", f"expected {SCHEMA!r}")
    return content


UNPAIRED = "two finished results are not paired, so their difference has no interval"
HALF_PAIRED = "a finished result and rollouts are not paired, so their difference has no interval"


@dataclass(frozen=True, slots=True)
class Differences:
    """The differences of a result from its baseline."""

    paired: Comparison | None  # None if one of them is a finished result
    before: GateNumbers  # the numbers of the baseline
    notes: Sequence[str] = ()
    unpaired: str = UNPAIRED  # why differences have no interval, if they are not paired

    def of(self, group: GateGroup, requirement: Requirement, now: Number | None) -> Number:
        """The difference in one group. If there is none, the Number has no value but a reason."""
        if self.paired is not None:
            return self._paired(self.paired, group, requirement)
        before = self._before(self.counterpart(group), requirement)
        if now is None or before.value is None or now.value is None:
            side, why = (
                ("here", now.why if now else None) if before.value is not None else ("in the baseline", before.why)
            )
            return Number(None, why=f"no value {side}: {why}" if why else f"no value {side}")
        low, high = now.bounds or (now.value, now.value)
        low_before, high_before = before.bounds or (before.value, before.value)
        known = _bounds_known(now, group) and _bounds_known(before, self.counterpart(group))
        bounds = (low - high_before, high - low_before) if known and (now.bounds or before.bounds) else None
        return Number(now.value - before.value, None, self.unpaired, min(now.tasks, before.tasks), bounds=bounds)

    def worst_of(self, group: GateGroup, requirement: Requirement) -> tuple[Difference, Difference] | None:
        """The paired difference with every missing rollout against the result, and in its favour; None if unknown."""
        evidence = self.evidence(group, requirement)
        return None if evidence is None else evidence.worst

    def evidence(self, group: GateGroup, requirement: Requirement) -> Evidence | None:
        """The evidence on the paired difference in one group; None if there is no such difference."""
        if self.paired is None:
            return None
        found = self._found(self.paired, group, requirement)
        return None if isinstance(found, Number) else found[1]

    def counterpart(self, group: GateGroup) -> GateGroup:
        """The baseline's group with which a group is compared; InputError if that is ambiguous."""
        for matches in (
            lambda candidate: candidate.identity == group.identity,
            lambda candidate: (candidate.dataset, candidate.agent) == (group.dataset, group.agent),
            lambda candidate: candidate.dataset == group.dataset,
            lambda candidate: True,
        ):
            candidates = [candidate for candidate in self.before.groups if matches(candidate)]
            if len(candidates) == 1:
                return candidates[0]
        titles = ", ".join(candidate.title for candidate in self.before.groups)
        raise InputError.at(self.before.path, f"it is not clear which group to compare {group.title} with", titles)

    def _before(self, group: GateGroup, requirement: Requirement) -> Number:
        """The number of a requirement in a group of the baseline."""
        numbers, cut = group.numbers(), None
        if requirement.by is not None:
            cut = group.breakdowns.get(requirement.by, {}).get(requirement.slice or "")
            if cut is None:
                return Number(None, why=f"there is no slice {requirement.by}={requirement.slice}")
            numbers = cut.metrics
        number = number_of(requirement, numbers) or self.before.of_table(group, requirement)
        if number is None:
            raise UnknownName.of("metric in the baseline", requirement.metric, [*numbers, *self.before.known])
        return at_end(number, cut or group, worse=False) if requirement.worst else number

    def _paired(self, comparison: Comparison, group: GateGroup, requirement: Requirement) -> Number:
        """The difference of a requirement in the pair of a comparison that has this group."""
        found = self._found(comparison, group, requirement)
        if isinstance(found, Number):
            return found
        finding, evidence = found
        if requirement.worst:
            return _in_the_worst_case(finding, evidence)
        number = Number(
            finding.delta,
            finding.interval,
            finding.why,
            finding.tasks,
            bounds=finding.bounds,
            lacking=any(finding.missing),
            signature=finding.signature,
        )
        return _at_margin(requirement, number, evidence.compared, comparison.confidence)

    def _found(
        self, comparison: Comparison, group: GateGroup, requirement: Requirement
    ) -> tuple[Finding, Evidence] | Number:
        """The finding of a requirement with its evidence; a Number without a value if there is none."""
        remaining = iter(comparison.evidences)
        pairs = []
        for contest, pair in comparison.pairs:
            evidences = [next(remaining) for _ in pair.findings]
            first, second = contest.runs[pair.first], contest.runs[pair.second]
            if first.source == self.before.path != second.source and _is_run_of(second, group):
                pairs.append((first.name, pair, evidences))
        if not pairs:
            return Number(None, why=f"{group.title} shares no task with a run of the baseline")
        if len(pairs) > 1:
            names = ", ".join(name for name, *_ in pairs)
            problem = f"has several runs that {group.title} could be compared with ({names})"
            raise InputError.at(self.before.path, problem, "expected a baseline with one of them")
        ((_, pair, evidences),) = pairs
        findings = [
            (finding, evidence)
            for finding, evidence in zip(pair.findings, evidences, strict=True)
            if (finding.by, finding.slice) == (requirement.by, requirement.slice)
        ]
        for finding, evidence in findings:
            if metric_key(finding.metric) == requirement.key:
                return finding, evidence
        if requirement.by is not None and not findings:
            return Number(None, why=f"the runs share no task with {requirement.by}={requirement.slice}")
        raise UnknownName.of(
            "metric in this comparison", requirement.metric, [finding.metric for finding, _ in findings]
        )


def _in_the_worst_case(finding: Finding, evidence: Evidence) -> Number:
    """The difference with every missing rollout against the result."""
    if evidence.unknown and finding.delta is not None:
        return Number(None, why=NO_BOUNDS, tasks=finding.tasks)
    worst = evidence.compared if evidence.worst is None else evidence.worst[0]
    return Number(worst.value, worst.interval, worst.why, finding.tasks)


def differences(
    source: Source,
    baseline: Source,
    metrics: Sequence[str],
    by: Sequence[str],
    scoring: GateScoring,
) -> Differences:
    """The differences of a result from its baseline, by these metrics and slices."""
    if is_document(source) or is_document(baseline):
        baseline_scoring = GateScoring() if is_document(baseline) else scoring
        why = UNPAIRED if is_document(source) and is_document(baseline) else HALF_PAIRED
        return Differences(None, read_numbers(baseline, metrics, by, baseline_scoring, BASELINE), unpaired=why)
    if is_stdin(source) or is_stdin(baseline):
        raise InputError.at("delta(...)", "standard input can be read only once", "expected a file")
    from calipers.analyses.compare.compare import compare  # imports much that only this requirement needs

    settings: dict[str, Any] = {
        "metrics": list(metrics),
        "by": list(by),
        "adjust": "none",
        "flips": 0,
        **scoring.compared(),
    }
    sides = _named_source(baseline, BASELINE), _named_source(source, TABLE)
    try:
        comparison = compare(*sides, **settings)
    except UnrelatedRuns as error:
        expected = "expected a baseline of the same benchmark"
        raise InputError.at(display_name(baseline, BASELINE), str(error.args[0]), expected) from None
    before = read_numbers(baseline, metrics, by, scoring, BASELINE)
    notes = []
    for contest, pair in comparison.pairs:
        notes += [*_pairing_notes(contest, pair), *pair.notes, *map(note_of, pair.remarks)]
    return Differences(comparison, before, [*comparison.notes, *notes])


def _named_source(source: Source, name: str) -> Source:
    """A source for `compare`. A source in memory gets a name, by which its runs are identified in the result."""
    return source if display_name(source, "") else CalledTable(name, source)


def _at_margin(requirement: Requirement, number: Number, difference: Difference, confidence: float) -> Number:
    """The difference with the interval of the margin test, if the requirement sets a margin; else unchanged.

    ``lower(delta(X)) >= -m`` means "at most m worse". That is a margin, and its test allows for unseen losses. The p
    at the margin decides, and the end of the interval is moved to the same side of the margin if rounding differs.
    """
    lower = requirement.end == "lower"
    is_margin = requirement.number < 0 if lower else requirement.number > 0
    interval = margin_ends(difference, confidence) if requirement.end is not None and is_margin else None
    p = p_at_margin(difference, abs(requirement.number), below=lower) if interval is not None else None
    if interval is None or p is None:
        return number
    alpha = (1 - confidence) / 2
    low, high = interval
    just_below, just_above = math.nextafter(requirement.number, -math.inf), math.nextafter(requirement.number, math.inf)
    if lower:
        low = max(low, just_above) if p <= alpha else min(low, just_below)
    else:
        high = min(high, just_below) if p <= alpha else max(high, just_above)
    relation = "at most" if p <= alpha else "above"
    remarks = [f"margin tested by {margin_method(difference)}: p {p:.2g}, {relation} {alpha:.4g}"]
    needed = too_few(difference, abs(requirement.number), 1 - alpha)
    if p > alpha and needed is not None:
        change = "loss" if lower else "gain"
        unit = "cluster" if difference.evidence and difference.evidence.clustered else "task"
        remarks.append(
            f"even {counted(difference.units, unit)} without any difference would not rule out a {change} of "
            f"{abs(requirement.number):g}: at least {needed:,} are needed"
        )
    return msgspec.structs.replace(number, interval=(low, high), remark="; ".join(remarks))


def _pairing_notes(contest: Contest, pair: Pair) -> list[str]:
    """A note on the common tasks, unless all tasks of both runs are paired by id."""
    alignment = pair.alignment
    if alignment.by == "id" and not (alignment.only_first.count or alignment.only_second.count):
        return []
    names = shown_names(contest.runs)
    return [f"differences are over {common_tasks(pair, (names[pair.first], names[pair.second]))}"]


def _bounds_known(number: Number, group: GateGroup) -> bool:
    """Whether the bounds of a number are known: it has bounds, or no rollout is missing."""
    return number.bounds is not None or not group.ledger.gaps


def _is_run_of(run: Run, group: GateGroup) -> bool:
    return (run.agent, run.model, run.dataset) == group.identity
