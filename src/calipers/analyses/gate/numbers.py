"""The numbers that a gate needs: from result documents, rollouts and lm-evaluation-harness' tables.

And how far a result is from its baseline, group by group: paired on their common tasks where both are rollouts.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from calipers.analyses.compare import Comparison, Contest, Pair, Run, metric_key
from calipers.analyses.compare.document import common_tasks, shown_names
from calipers.analyses.compare.findings import NO_RANGE, filled_rollouts, reward_range, why_not_fillable, within_range
from calipers.analyses.compare.source import CalledTable, DocumentTable, short, split_metrics, table_of, table_reader
from calipers.analyses.gate.requirement import Requirement
from calipers.errors import CalipersError, InputError, UnknownName, UnrelatedRuns
from calipers.formats import BAD
from calipers.formats.read import Input
from calipers.formats.run_folder import stop_said
from calipers.formats.source import STDIN
from calipers.metrics import UNIT
from calipers.pipeline import Source, read, score, score_rollouts
from calipers.reports.figures import counted
from calipers.reports.result import SCHEMA, Result
from calipers.request import make_plan, per_reward
from calipers.rollouts.ledger import contributed
from calipers.rollouts.record import Stop
from calipers.stats.estimate import NO_SEQUENCE
from calipers.stats.margins import margin_ends, margin_method, p_at_margin, too_few
from calipers.stats.paired import Difference


class Number(msgspec.Struct, frozen=True, gc=False):
    """An estimate, as far as a gate needs it."""

    value: float | None
    interval: tuple[float, float] | None = None
    why: str | None = None
    tasks: int = 0
    better: bool | None = None  # of a number of lm-evaluation-harness' table: whether a higher one is
    bounds: tuple[float, float] | None = None  # the value with all missing rollouts failed, and with all passed
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
        spent = {name: number for name, number in self.economics.items() if name != "total"}
        return {**msgspec.convert(spent, dict[str, Number]), **self.metrics}


Who = tuple[str | None, str | None, str | None]
"""Agent, model and dataset."""


class StoredNumber(msgspec.Struct, frozen=True, gc=False):
    """A number of lm-evaluation-harness' table, as a result document has it."""

    value: float | None
    interval: tuple[float, float] | None = None
    why: str | None = None
    documents: int | None = None
    higher_is_better: bool | None = None


class StoredReport(msgspec.Struct, frozen=True):
    """A report of a result document: what one model's runs come to in lm-evaluation-harness' terms."""

    model: str | None = None
    tasks: dict[str, dict[str, StoredNumber]] = {}


def written(reports: Sequence[StoredReport], whose: Sequence[Who]) -> dict[Who, dict[str, Number]]:
    """The table of each group of a result document, by ``metric,pipeline``."""
    return {
        who: {
            key: Number(cell.value, cell.interval, cell.why, cell.documents or 0, cell.higher_is_better)
            for key, cell in report.tasks[who[2] or ""].items()
        }
        for who in whose
        for report in reports
        if report.model == who[1] and who[2] in report.tasks
    }


def worked_out(
    inputs: Sequence[Input], who: Who, wanted: Sequence[str], confidence: float, seed: int
) -> tuple[dict[str, Number], list[str]]:
    """The wanted numbers of a group's table, by what documents keep; and all names it has.

    The value and its interval are those of ``calipers run`` with this confidence and seed.
    """
    table = table_of(inputs, who)
    if table is None:
        return {}, []
    if table.why is not None:
        return {name: Number(None, why=f"{table.why}; {table.cure}") for name in wanted}, []
    keys = {key for name in wanted for key in table.named(name)}
    return {
        key: _of_values(table, key, index, confidence, seed) for index, key in enumerate(table.ways) if key in keys
    }, list(table.ways)


def _of_values(table: DocumentTable, key: str, index: int, confidence: float, seed: int) -> Number:
    way, values = table.ways[key], list(table.values.get(key, {}).values())
    if way.aggregation is None:
        why_not = "the task's own function computes it, and only a run's result.json has the number"
        return Number(None, why=why_not, tasks=len(values), better=way.higher_is_better)
    try:
        value = table_reader().value(way.aggregation, values)
    except CalipersError as error:
        return Number(None, why=f"it cannot be computed again ({error})", better=way.higher_is_better)
    sure = table_reader().spread(way.aggregation, values, value, confidence, [seed, index])
    shown = value if math.isfinite(value) else None
    why = sure.why if shown is not None else f"it is {value}"
    return Number(shown, sure.ends, why, len(values), way.higher_is_better)


def picked(table: Mapping[str, Number], name: str) -> Number | None:
    """The number that a name means: itself, or a metric that one pipeline has; InputError where several have it."""
    if name in table:
        return table[name]
    keys = [key for key in table if key.rpartition(",")[0] == name]
    if len(keys) > 1:
        raise InputError(f"metric {name!r} exists for several pipelines; expected one of {', '.join(keys)}")
    return table[keys[0]] if keys else None


Key = tuple[str, tuple[tuple[str, str], ...]]
NO_ENDS: Final = "a finished result has no interval with the missing rollouts filled in; expected the rollouts"
NO_BOUNDS: Final = "no bounds are known for it"
BOTTOM, TOP = 0, 1  # the ends of the range of rewards
NO_SIDE: Final = "it is not known whether higher or lower is better, so there is no worst case"


def scored_filled(
    source: Source, metrics: Sequence[Any] | None, by: Sequence[str], given: Mapping[str, Any], end: int
) -> tuple[Result, dict[Key, str]]:
    """Fill the missing rollouts of a source with an end of the range and score them, as ``given`` says.

    Beside the result the metrics of which it says nothing, each with why.
    """
    if is_stdin(source):
        raise InputError.at("worst(...)", "standard input can be read only once", "expected a file")
    settings = {name: value for name, value in given.items() if name not in ("columns", "missing")}
    plan = make_plan(metrics, by=list(by), source=source, **settings)
    rollouts = read(source, columns=given.get("columns"), labels=plan.labels)
    unknown: dict[Key, str] = {}
    for request in plan.asked:
        if why := why_not_fillable(request):
            unknown[metric_key(request.text)] = why
            continue
        for variant in per_reward(request, rollouts, plan.reward, plan.dialect.every_reward):
            if not within_range(contributed(rollouts, variant.params["reward"]), reward_range(plan)):
                unknown[metric_key(variant.text)] = NO_RANGE
    return score_rollouts(filled_rollouts(rollouts, reward_range(plan)[end]), plan), unknown


def number_of(wanted: Requirement, numbers: Mapping[str, Number]) -> Number | None:
    """The number that a requirement names, however it is spaced; None where there is none of the name."""
    return next((number for name, number in numbers.items() if metric_key(name) == wanted.key), None)


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


TABLE, BASELINE = "the result", "the baseline"  # what sources in memory are called
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

    path: str  # what it is called; that of a file
    source: Source
    groups: Sequence[GateGroup]
    document: bool  # finished numbers: nothing more can be asked of them
    notes: Sequence[str] = ()
    tables: Mapping[Who, Mapping[str, Number]] = field(default_factory=dict)  # of lm-evaluation-harness, by group
    known: Sequence[str] = ()  # the names that their tables have
    confidence: float | None = None  # of the intervals
    # an end of the range -> the groups with every missing rollout there, where that is asked for
    filled: Mapping[int, Mapping[Who, GateGroup]] = field(default_factory=dict)
    unknown: Mapping[Key, str] = field(default_factory=dict)  # a metric of which that says nothing -> why
    zero: bool = False  # missing rollouts count 0, by the rule that was asked for

    @property
    def once(self) -> bool:
        """Whether it cannot be scored again: it is finished, or was read as it came."""
        return self.document or is_stdin(self.source)

    def of_table(self, group: GateGroup, wanted: Requirement) -> Number | None:
        """What a requirement names in the table of a group; None where that has nothing of the name.

        InputError where another group has it: then one of them is to be picked.
        """
        number = picked(self.tables.get(group.who, {}), wanted.metric)
        if number is None:
            there = [other for other in self.groups if picked(self.tables.get(other.who, {}), wanted.metric)]
            if there:
                wrong = f"{group.title} has no {wanted.metric}, but {there[0].title} does"
                raise InputError.at(self.path, wrong, "choose the group with --dataset, or with dataset: in a policy")
            return None
        if wanted.by is not None:
            return Number(None, why=f"{wanted.metric} has no value in a slice, only delta({wanted.metric}[...])")
        if group.stopped is not None and number.interval is not None:
            return msgspec.structs.replace(number, interval=None, why=NO_SEQUENCE)
        return number


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
        """The given settings, by the names of `score`."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in values.items() if value is not None and (name != "columns" or value)}


def is_stdin(source: Source) -> bool:
    """Whether a source is standard input, which can be read only once."""
    return isinstance(source, str) and source == STDIN


def called(source: Source, otherwise: str) -> str:
    """What messages call a source: its path, or for what is in memory another name."""
    paths = source if isinstance(source, (list, tuple)) else [source]
    known = [os.fspath(path) for path in paths if isinstance(path, (str, os.PathLike))]
    return " ".join(known) if known and len(known) == len(paths) else otherwise


def is_document(source: Source) -> bool:
    """Whether it is a result in memory, or a file that is a result document, by its beginning or its end."""
    if isinstance(source, Result):
        return True
    if is_stdin(source) or not isinstance(source, (str, os.PathLike)) or not os.path.isfile(source):
        return False
    path = os.fspath(source)
    try:
        with open(path, "rb") as file:
            head = file.read(_LOOK)
            if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
                return False
            file.seek(max(os.path.getsize(path) - _LOOK, 0))
            return any(_MARK.search(part) for part in (head[:1024], file.read(_LOOK)))
    except OSError as error:
        raise InputError.at(path, f"cannot be read ({error.strerror})") from None


def answers(
    source: Source, metrics: Sequence[str], by: Sequence[str], scoring: GateScoring, otherwise: str = TABLE
) -> GateNumbers:
    """The numbers of a result document; or of rollouts, scored for these metrics and slices.

    A source in memory is called ``otherwise``.
    """
    path = called(source, otherwise)
    if not is_document(source):
        return _scored(source, path, metrics, by, scoring)
    if given := scoring.given():
        options = ", ".join(f"--{name}" for name in given)
        raise InputError.at(path, f"is a finished result, so {options} cannot apply", "expected rollouts")
    content = msgspec.convert(source.to_dict(), _Document) if isinstance(source, Result) else _read(path)
    tables = written(content.lm_eval, [group.who for group in content.groups])
    known = short(key for table in tables.values() for key in table)
    return GateNumbers(
        path,
        source,
        content.groups,
        True,
        _stops(path, content),
        tables,
        known,
        content.confidence,
        zero=content.missing == ZERO,
    )


def _scored(source: Source, path: str, metrics: Sequence[str], by: Sequence[str], scoring: GateScoring) -> GateNumbers:
    ours, theirs = split_metrics(list(metrics) or None, scoring.dialect, [source])
    result = score(source, ours or None, by=list(by), **scoring.given())
    content = msgspec.convert(result.to_dict(), _Document)
    tables: dict[Who, dict[str, Number]] = {}
    known: list[str] = []
    if theirs:
        for group in content.groups:
            tables[group.who], keys = worked_out(result.inputs, group.who, list(theirs), result.confidence, result.seed)
            known += keys
        if not known and not any(tables.values()):
            raise next(iter(theirs.values()))
    warned = [f"warning: {warning}" for group in result.groups for warning in group.warnings]
    notes = [*result.notes, *_stops("", content), *warned]
    zero = content.missing == ZERO
    return GateNumbers(path, source, content.groups, False, notes, tables, short(known), content.confidence, zero=zero)


def with_filled(
    numbers: GateNumbers, metrics: Sequence[str], by: Sequence[str], scoring: GateScoring, *ends: int
) -> GateNumbers:
    """The same with rollouts scored once more for each end of the range (`BOTTOM`, `TOP`), every missing one there."""
    filled, unknown = dict(numbers.filled), dict(numbers.unknown)
    ours, _ = split_metrics(list(metrics) or None, scoring.dialect, [numbers.source])
    for end in ends:
        if end not in filled:
            result, more = scored_filled(numbers.source, ours or None, by, scoring.given(), end)
            twins = msgspec.convert(result.to_dict(), _Document).groups
            filled[end] = {group.who: group for group in twins}
            unknown |= more
    return replace(numbers, filled=filled, unknown=unknown)


def _stops(path: str, content: _Document) -> list[str]:
    """Notes on stopped runs of a result, and on the bias of their values."""
    if content.stopped is None:
        return []
    biases = [group.stopped.bias for group in content.groups if group.stopped and group.stopped.bias]
    if not biases:  # of an earlier version
        stop = stop_said(content.stopped)
        biases = [Stop(stop.rule, stop.metric, stop.side).bias]
    return [*([f"{path}: {content.stopped}"] if path else []), *dict.fromkeys(biases)]


def _read(path: str) -> _Document:
    if os.path.getsize(path) > LARGEST:
        raise InputError.at(path, f"larger than {LARGEST >> 20} MiB", "expected a result as calipers score writes it")
    with open(path, "rb") as file:
        text = file.read().removeprefix(b"\xef\xbb\xbf")
    try:
        content = msgspec.json.decode(text, type=_Document)
        for group in content.groups:
            group.numbers()  # those of what it cost have a total among them, so that they are converted here
    except BAD as error:
        wrong = f"is not a complete result document ({str(error).rstrip('.')})"
        raise InputError.at(path, wrong, f"expected {SCHEMA}, as calipers score --out writes it") from None
    if content.schema != SCHEMA:
        raise InputError.at(path, f"its schema is {content.schema!r}", f"expected {SCHEMA!r}")
    return content


UNPAIRED = "two finished results are not paired, so their difference has no interval"


@dataclass(frozen=True, slots=True)
class Differences:
    """The differences of a result and its baseline."""

    paired: Comparison | None  # None where one of them is a finished result
    before: GateNumbers  # the baseline's own numbers, for its gaps
    notes: Sequence[str] = ()
    filled: tuple[Comparison, Comparison] | None = None  # the same with every missing rollout against, and for, it

    def of(self, group: GateGroup, wanted: Requirement, now: Number | None) -> Number:
        """The difference in one group; a Number without a value, and why, where there is none."""
        if self.paired is not None:
            return self._paired(self.filled[0] if wanted.worst and self.filled else self.paired, group, wanted)
        before = self._before(self.counterpart(group), wanted)
        if now is None or before.value is None or now.value is None:
            side, why = (
                ("here", now.why if now else None) if before.value is not None else ("in the baseline", before.why)
            )
            return Number(None, why=f"no value {side}: {why}" if why else f"no value {side}")
        low, high = now.bounds or (now.value, now.value)
        least, most = before.bounds or (before.value, before.value)
        known = _known(now, group) and _known(before, self.counterpart(group))
        bounds = (low - most, high - least) if known and (now.bounds or before.bounds) else None
        return Number(now.value - before.value, None, UNPAIRED, min(now.tasks, before.tasks), bounds=bounds)

    def with_filled(self, group: GateGroup, wanted: Requirement, best: bool) -> Number:
        """The paired difference with every missing rollout for the result, or against it."""
        if self.filled is None:
            return Number(None, why=NO_BOUNDS)
        return self._paired(self.filled[best], group, wanted)

    def counterpart(self, group: GateGroup) -> GateGroup:
        """The baseline's group that a group is compared with; InputError where that is not clear."""
        those = list(self.before.groups)
        for same in (
            lambda candidate: candidate.who == group.who,
            lambda candidate: (candidate.dataset, candidate.agent) == (group.dataset, group.agent),
            lambda candidate: candidate.dataset == group.dataset,
            lambda candidate: True,
        ):
            matches = [candidate for candidate in those if same(candidate)]
            if len(matches) == 1:
                return matches[0]
        titles = ", ".join(candidate.title for candidate in those)
        raise InputError.at(self.before.path, f"it is not clear which group to compare {group.title} with", titles)

    def _before(self, group: GateGroup, wanted: Requirement) -> Number:
        """What the baseline says of a group."""
        numbers, cut = group.numbers(), None
        if wanted.by is not None:
            cut = group.breakdowns.get(wanted.by, {}).get(wanted.slice or "")
            if cut is None:
                return Number(None, why=f"there is no slice {wanted.by}={wanted.slice}")
            numbers = cut.metrics
        number = number_of(wanted, numbers) or self.before.of_table(group, wanted)
        if number is None:
            raise UnknownName.of("metric in the baseline", wanted.metric, [*numbers, *self.before.known])
        return at_end(number, cut or group, worse=False) if wanted.worst else number

    def _paired(self, comparison: Comparison, group: GateGroup, wanted: Requirement) -> Number:
        measured = iter(comparison.differences)
        those = [
            (contest.runs[pair.first].name, pair, differences)
            for contest in comparison.contests
            for pair in contest.pairs
            for differences in [[next(measured) for _ in pair.findings]]
            if contest.runs[pair.first].source == self.before.path != contest.runs[pair.second].source
            and _same(contest.runs[pair.second], group)
        ]
        if not those:
            return Number(None, why=f"{group.title} shares no task with a run of the baseline")
        if len(those) > 1:
            names = ", ".join(name for name, *_ in those)
            wrong = f"has several runs that {group.title} could be compared with ({names})"
            raise InputError.at(self.before.path, wrong, "expected a baseline with one of them")
        every = zip(those[0][1].findings, those[0][2], strict=True)
        findings = [
            (finding, difference)
            for finding, difference in every
            if (finding.by, finding.slice) == (wanted.by, wanted.slice)
        ]
        for finding, difference in findings:
            if metric_key(finding.metric) == wanted.key:
                if wanted.worst and any(finding.missing) and finding.bounds is None and finding.delta is not None:
                    return Number(None, why=NO_BOUNDS, tasks=finding.tasks)
                number = Number(
                    finding.delta,
                    finding.interval,
                    finding.why,
                    finding.tasks,
                    bounds=finding.bounds,
                    lacking=any(finding.missing),
                )
                return _against(wanted, number, difference, comparison.confidence)
        if wanted.by is not None and not findings:
            return Number(None, why=f"the runs share no task with {wanted.by}={wanted.slice}")
        raise UnknownName.of("metric in this comparison", wanted.metric, [finding.metric for finding, _ in findings])


def differences(
    source: Source,
    baseline: Source,
    metrics: Sequence[str],
    by: Sequence[str],
    scoring: GateScoring,
    filled: Callable[[GateNumbers], bool] = lambda before: False,
) -> Differences:
    """A result less its baseline, by these metrics and slices.

    Where ``filled`` says so of the baseline, they are compared twice more: the result's missing rollouts all failed and
    the baseline's all passed, and the other way round.
    """
    if is_document(source) or is_document(baseline):
        own_scoring = GateScoring() if is_document(baseline) else scoring
        return Differences(None, answers(baseline, metrics, by, own_scoring, BASELINE))
    if is_stdin(source) or is_stdin(baseline):
        raise InputError.at("delta(...)", "standard input can be read only once", "expected a file")
    from calipers.analyses.compare.compare import compare  # it loads much that no other requirement needs

    settings: dict[str, Any] = {
        "metrics": list(metrics),
        "by": list(by),
        "adjust": "none",
        "flips": 0,
        **scoring.given(),
    }
    sides = _compared(baseline, BASELINE), _compared(source, TABLE)
    try:
        comparison = compare(*sides, **settings)
    except UnrelatedRuns as error:
        right = "expected a baseline of the same benchmark"
        raise InputError.at(called(baseline, BASELINE), str(error.args[0]), right) from None
    before = answers(baseline, metrics, by, scoring, BASELINE)
    at_ends = None
    if filled(before):
        bottom, top = scoring.range or UNIT
        ends = (top, bottom), (bottom, top)
        at_ends = (compare(*sides, filled=ends[0], **settings), compare(*sides, filled=ends[1], **settings))
    notes = [
        note
        for contest in comparison.contests
        for pair in contest.pairs
        for note in (*_uncommon(contest, pair), *pair.notes)
    ]
    return Differences(comparison, before, [*comparison.notes, *notes], at_ends)


def _compared(source: Source, otherwise: str) -> Source:
    """A source for `compare`; what is in memory has a name there, by which it is found again."""
    return source if called(source, "") else CalledTable(otherwise, source)


def _against(wanted: Requirement, number: Number, difference: Difference, confidence: float) -> Number:
    """The number a requirement is held against; for an end beyond 0, the end of the test of that margin.

    ``lower(delta(X)) >= -m`` says "no worse than m": a margin, whose test allows for losses not yet seen. The answer
    is that of the p at m itself, and the end, rounded, is put on the same side.
    """
    lower = wanted.end == "lower"
    beyond = wanted.number < 0 if lower else wanted.number > 0
    ends = margin_ends(difference, confidence) if wanted.end is not None and beyond else None
    p = p_at_margin(difference, abs(wanted.number), below=lower) if ends is not None else None
    if ends is None or p is None:
        return number
    alpha = (1 - confidence) / 2
    away, toward = math.nextafter(wanted.number, -math.inf), math.nextafter(wanted.number, math.inf)
    if lower:
        ends = (max(ends[0], toward) if p <= alpha else min(ends[0], away), ends[1])
    else:
        ends = (ends[0], min(ends[1], away) if p <= alpha else max(ends[1], toward))
    which = "at most" if p <= alpha else "above"
    remarks = [f"margin tested by {margin_method(difference)}: p {p:.2g}, {which} {alpha:.4g}"]
    needed = too_few(difference, abs(wanted.number), 1 - alpha)
    if p > alpha and needed is not None:
        what = "loss" if lower else "gain"
        unit = "cluster" if difference.evidence and difference.evidence.clustered else "task"
        remarks.append(
            f"even {counted(difference.units, unit)} without any difference would not rule out a {what} of "
            f"{abs(wanted.number):g}: at least {needed:,} are needed"
        )
    return msgspec.structs.replace(number, interval=ends, remark="; ".join(remarks))


def _uncommon(contest: Contest, pair: Pair) -> list[str]:
    """Which tasks a difference is of, where these are not all tasks of both runs."""
    aligned = pair.alignment
    if aligned.by == "id" and not (aligned.only_first.count or aligned.only_second.count):
        return []
    names = shown_names(contest.runs)
    return [f"differences are over {common_tasks(pair, (names[pair.first], names[pair.second]))}"]


def _known(number: Number, group: GateGroup) -> bool:
    """Whether it is known what missing rollouts make of a number, as none is missing or it has bounds."""
    return number.bounds is not None or not group.ledger.gaps


def _same(run: Run, group: GateGroup) -> bool:
    return (run.agent, run.model, run.dataset) == group.who
