"""A gate: it checks requirements for results and gives one answer. It never passes without an answer."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from calipers.analyses.gate.document import Check, Gate, Word
from calipers.analyses.gate.numbers import (
    BOTTOM,
    NO_BOUNDS,
    NO_ENDS,
    TABLE,
    TOP,
    Differences,
    GateGroup,
    GateNumbers,
    GateScoring,
    GateSlice,
    Number,
    answers,
    at_end,
    called,
    differences,
    is_document,
    number_of,
    with_filled,
    worst_of,
)
from calipers.analyses.gate.requirement import TASK, Gaps, NamedResult, Policy, Requirement, required_of
from calipers.errors import CalipersError, InputError, UnknownName
from calipers.formats import Named
from calipers.formats.read import is_folder_of_runs, runs_inside
from calipers.pipeline import Source
from calipers.reports.figures import counted, figure
from calipers.reports.result import Result, finite
from calipers.stats.missing import MOST_MISSING
from calipers.stats.paired import below
from calipers.stats.ranks import holm

NO_INTERVAL: Final = "there is no interval with the missing rollouts filled in"


@dataclass(frozen=True, slots=True)
class Missing:
    """The missing rollouts of a requirement, and its value with all of them at each end of the range.

    Without ``ends`` that is not known, and ``why`` gives the reason; ``finished``: a result that stores too little.
    """

    text: str  # 8 of 40 rollouts
    count: int
    ends: tuple[float, float] | None = None
    why: str = NO_BOUNDS
    finished: bool = False


def decided(wanted: Requirement, word: Word, missing: Missing, too_many: str | None) -> tuple[Word, str | None]:
    """The answer, or why there is none; ``too_many``: more rollouts are missing than allowed."""
    if missing.ends is None:
        if missing.finished and word == "failed" and not too_many:
            return "failed", None
        may = f"{missing.text} are missing and may decide the answer: {missing.why}; {allow(missing.count)}"
        return "undefined", too_many or may
    low, high = sorted(missing.ends)
    met = [wanted.met(end) for end in (low, high)]
    if not (low <= wanted.number <= high if wanted.op == "==" else any(met)):  # no value between them meets it
        return "failed", None
    if too_many:
        return "undefined", too_many
    if all(met):
        return word, None
    bounds = f"the value is {figure(low)} to {figure(high)} depending on them"
    return "undefined", f"{missing.text} are missing and decide the answer: {bounds}; {allow(missing.count)}"


def allow(count: int) -> str:
    """What to do about rollouts that are missing."""
    return f"use --max-gaps {count} to decide without them"


def undecided(seen: Check, ends: Sequence[Check], group: GateGroup) -> Check:
    """The answer without the missing rollouts, unless they could change it: then there is no answer."""
    words = {check.word for check in ends}
    if words == {seen.word}:
        return seen
    if words == {"failed"}:
        return replace(seen, word="failed", remark=ends[1].remark, failing=ends[1].failing)
    gaps = group.ledger.gaps
    why = f"{gaps:,} of {group.ledger.planned:,} rollouts are missing and decide the answer; {allow(gaps)}"
    return replace(seen, word="undefined", value=None, why=why, failing=[])


def missing_of(part: GateGroup | GateSlice, number: Number) -> str:
    """How many rollouts a number lacks, in words; "" where it lacks none."""
    ledger = part.ledger
    if ledger.gaps and (number.bounds is not None or number.samples < ledger.planned):
        return f"{ledger.gaps:,} of {ledger.planned:,} rollouts"
    return f"some of {ledger.planned:,} rollouts" if number.bounds is not None else ""


def at_ends(
    wanted: Requirement,
    part: GateGroup | GateSlice,
    number: Number,
    twins: Callable[[int], Number | None] | None,
    unknown: str | None,
) -> Missing | None:
    """What is missing of a number of one result; None where nothing is.

    ``twins`` are the same number with what is missing at one end; None where nothing can be filled any more.
    """
    lost, count = missing_of(part, number), part.ledger.gaps
    if not lost:
        return None
    if wanted.end is None:
        return Missing(lost, count, number.bounds, unknown or NO_BOUNDS)
    if twins is None:
        return Missing(lost, count, None, NO_ENDS, finished=True)
    ends = None if unknown else _interval_ends(wanted, twins(BOTTOM), twins(TOP))
    return Missing(lost, count, ends, unknown or NO_INTERVAL)


def of_difference(wanted: Requirement, group: GateGroup, number: Number, apart: Differences) -> Missing | None:
    """What is missing of a difference, in either run; None where nothing is."""
    ledgers = [("", group.ledger), (" of the baseline", apart.counterpart(group).ledger)]
    parts = [f"{each.gaps:,} of {each.planned:,} rollouts{whose}" for whose, each in ledgers if each.gaps]
    if not parts and number.bounds is None:
        return None
    lost, count = " and ".join(parts) or "some rollouts", max(each.gaps for _, each in ledgers)
    if apart.paired is not None and number.bounds is None and not number.lacking:
        return None  # none of the tasks that both have
    if wanted.end is None:
        return Missing(lost, count, number.bounds, finished=apart.paired is None)
    if number.bounds is None or not apart.filled:
        return Missing(lost, count, None, NO_BOUNDS)
    ends = _interval_ends(wanted, *(apart.with_filled(group, wanted, best) for best in (False, True)))
    return Missing(lost, count, ends, NO_INTERVAL)


def _interval_ends(wanted: Requirement, *filled: Number | None) -> tuple[float, float] | None:
    """The requested end of the interval with all missing rollouts at each end of the range; None without one."""
    end = int(wanted.end == "upper")
    low, high = (number.interval[end] if number and number.interval else math.nan for number in filled)
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def lacking(numbers: GateNumbers, most: Gaps | None) -> bool:
    """Whether a result lacks more rollouts than is allowed, of any of its groups."""
    for group in numbers.groups:
        gaps, planned = group.ledger.gaps, group.ledger.planned
        if most is None and (gaps or any(number.bounds for number in group.numbers().values())):
            return True
        if most is not None and not most.allow(gaps, planned):
            return True
    return False


NAMED: Final = 5  # slices that are named in a sentence
CONFIDENCE: Final = 0.95  # where a result does not say its own


def of_every(wanted: Requirement, start: Check, checks: Mapping[str, Check]) -> Check:
    """One answer from those of all slices, each of which must hold: that of the slice that is furthest from it.

    All must hold, so that none is adjusted for the others: a gate that opens although a slice is bad must have been
    wrong about that very slice.
    """
    off = sorted(checks.items(), key=lambda pair: _margin(wanted, pair[1].value or 0.0))  # of equals in their order
    failed = {name: check for name, check in off if check.word == "failed"}
    lost = {name: check for name, check in checks.items() if check.word == "undefined"}
    there = [check for check in checks.values() if check.value is not None]
    if not checks:
        return replace(start, why=f"there is no {'task' if wanted.by == TASK else f'slice by {wanted.by}'}")
    word: Word = "failed" if failed else "undefined" if lost else "passed"
    worst = min(there, key=lambda check: _margin(wanted, check.value or 0.0), default=None)
    remarks = []
    if failed:
        shown = [f"{name} ({figure(check.value)})" for name, check in failed.items()]
        remarks.append(f"{len(failed):,} of {_count(wanted, len(checks))} fail: {_listed(shown)}")
    why = None
    if lost:
        first = next(iter(lost.values()))
        why = f"{len(lost):,} of {_count(wanted, len(checks))} have no answer: {_listed(list(lost))} ({first.why})"
    return replace(
        start,
        word=word,
        value=worst.value if worst and word != "undefined" else None,
        estimate=worst.estimate if worst else None,
        interval=worst.interval if worst else None,
        confidence=worst.confidence if worst else None,
        tasks=None if wanted.missing else sum(check.tasks or 0 for check in checks.values()),
        why=why if word == "undefined" else None,
        remark="; ".join(filter(None, [*remarks, why if failed else None])) or None,
        failing=list(failed),
    )


def of_weakest(
    wanted: Requirement, group: GateGroup, start: Check, confidence: float | None, fill: int | None = None
) -> Check:
    """Whether some task has been shown to pass less often than it should; the value is the lowest rate of a task.

    For each task the exact binomial p of so few passes in its samples, were its rate what is required; by Holm over
    all tasks a gate whose tasks are all good fails with a chance of at most 1 - confidence. ``fill`` takes every
    missing rollout for a pass (1) or for none (0).
    """
    alpha = 1 - (CONFIDENCE if confidence is None else confidence)
    rates: dict[str, tuple[int, int]] = {}
    for name, cut in group.breakdowns[TASK].items():
        number = number_of(wanted, cut.metrics)
        if number is None:
            continue
        passes_seen, missing = round((number.value or 0.0) * number.samples), cut.ledger.gaps if fill is not None else 0
        if number.samples + missing:
            rates[name] = passes_seen + missing * (fill or 0), number.samples + missing
    if not rates:
        return replace(start, why="no task has a value")
    passes, samples = np.array(list(rates.values()), dtype=np.int64).T
    adjusted = holm(below(passes, samples, wanted.number))
    order = np.lexsort((passes / samples, adjusted)).tolist()
    names = list(rates)
    shown = [index for index in order if adjusted[index] <= alpha]
    over = f"Holm over {counted(len(names), 'task')}"
    if shown:
        some = [f"{names[at]} ({passes[at]:,} of {samples[at]:,}, p {adjusted[at]:.2g})" for at in shown]
        remark = f"{_count(wanted, len(shown))} shown to be below {wanted.number:g} ({over}): {_listed(some)}"
    else:
        least = float(holm(below(np.zeros_like(samples), samples, wanted.number)).min())
        remark = f"no task is shown to be below {wanted.number:g} ({over}, smallest p {adjusted[order[0]]:.2g})"
        if least > alpha:
            remark += "; with so few samples not even a task without a pass could be"
    if unknown := len(group.breakdowns[TASK]) - len(names):
        remark += f"; no value for {_count(wanted, unknown)}"
    lowest = float((passes / samples).min())
    return replace(
        start,
        word="failed" if shown else "passed",
        value=lowest,
        estimate=lowest,
        tasks=len(names),
        remark=remark,
        failing=[names[at] for at in shown],
    )


def _margin(wanted: Requirement, value: float) -> float:
    """How far a value is on the right side of the number; the furthest off of == is the smallest."""
    if wanted.op == "==":
        return -abs(value - wanted.number)
    return value - wanted.number if wanted.op.startswith(">") else wanted.number - value


def _count(wanted: Requirement, number: int) -> str:
    """``60 tasks``, ``3 slices by level``."""
    return counted(number, "task") if wanted.by == TASK else f"{counted(number, 'slice')} by {wanted.by}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (", …" if len(names) > NAMED else "")


GROUP = ("agent", "model", "dataset")


def gate(
    result: Source | Result | None = None,
    *,
    require: str | Sequence[str] = (),
    policy: str | os.PathLike[str] | None = None,
    baseline: Source | Result | None = None,
    max_gaps: str | float | None = None,
    agent: str | None = None,
    model: str | None = None,
    dataset: str | None = None,
    dialect: str | None = None,
    missing: Literal["gap", "zero", "fail"] | None = None,
    cluster: str | None = None,
    reward: str | None = None,
    range: tuple[float, float] | None = None,
    columns: Mapping[str, str] | None = None,
    truth: Mapping[str, float] | None = None,
    input_format: str | None = None,
    confidence: float | None = None,
    seed: int | None = None,
) -> Gate:
    """Check a result against requirements, such as ``require=["lower(pass@1) >= 0.6"]``.

    ``result`` is a `Result`, the path of a result.json, anything that `score` reads, which is scored first, or a folder
    of runs, each of which is checked; ``baseline`` is the same, for ``delta(...)``. A ``policy`` is a YAML file of
    requirements, for one result or several. Every group must meet every requirement, unless ``agent``, ``model`` or
    ``dataset`` selects groups. ``max_gaps`` is the most rollouts of a group that may be missing: ``5`` or ``"2%"``. The
    other parameters are those of `score`, for rollouts. The answer's ``word`` is ``"passed"``, ``"failed"`` or
    ``"undefined"``.

    >>> gate([[1, 1], [1, 0]], require="mean_reward >= 0.5").word
    'passed'
    """
    who = {"agent": agent, "model": model, "dataset": dataset}
    named = None if result is None else NamedResult(called(result, TABLE), result, baseline)
    path = None if policy is None else os.fspath(policy)
    required = required_of(named, [require] if isinstance(require, str) else require, path, max_gaps, who, baseline)
    names = Named(columns or {}, truth, input_format or "")
    scoring = GateScoring(dialect, missing, cluster, reward, range, names, confidence, seed)
    return held_against(required, scoring, alone=policy is None)


def held_against(policy: Policy, scoring: GateScoring | None = None, *, alone: bool = False) -> Gate:
    """Check every requirement of a policy for the groups of its results.

    A requirement that names no group is checked for each group. With several results, the requirements of a result
    that cannot be read are undefined and the others are checked; with ``alone`` that is an error.
    """
    settings = scoring or GateScoring()
    checks: list[Check] = []
    notes: list[str] = []
    of_each: list[tuple[NamedResult, list[Requirement]]] = []
    for named in policy.results:
        requirements = [requirement for requirement in policy.requirements if requirement.of in (None, named.name)]
        if not requirements:
            notes.append(f"{named.name} has no requirements")
            continue
        of_each += [(each, requirements) for each in _unfolded(named)]
    for named, requirements in of_each:
        try:
            numbers, apart = _numbers_of(named, requirements, settings, policy.max_gaps)
        except UnknownName:
            raise
        except CalipersError as error:
            if alone:
                raise
            checks += [_unread(requirement, named, str(error)) for requirement in requirements]
            continue
        notes += [*numbers.notes, *(apart.notes if apart else ())]
        if not all(requirement.worst or requirement.missing for requirement in requirements):
            notes += [*_warnings(named.name, numbers), *(_warnings("the baseline", apart.before) if apart else ())]
        for requirement in requirements:
            checks += [
                _GroupCheck(
                    requirement, named.name, group, numbers, apart if requirement.delta else None, policy.max_gaps
                ).check()
                for group in _groups(requirement, numbers)
            ]
    return Gate(checks, policy.allowed_failures, list(dict.fromkeys(notes)))


def _unfolded(named: NamedResult) -> list[NamedResult]:
    """The result; of a folder of runs its rollouts as one, and each finished result in it."""
    baseline = _set_of_runs(named.baseline)
    if baseline is not None:
        before = [path for path in baseline if not is_document(path)] or baseline
        if len(before) > 1 and is_document(before[0]):
            right = "expected runs with their rollouts, or one result"
            raise InputError.at(named.baseline, f"has {len(before):,} finished results", right)
        named = replace(named, baseline=before[0] if len(before) == 1 else before)
    runs = _set_of_runs(named.source)
    if runs is None:
        return [named]
    rollouts = [path for path in runs if not is_document(path)]
    together = [replace(named, source=rollouts[0] if len(rollouts) == 1 else rollouts)] if rollouts else []
    return [*together, *(replace(named, name=path, source=path) for path in runs if path not in rollouts)]


def _set_of_runs(source: Source | Result | None) -> list[str] | None:
    """The runs in a folder of runs; None for anything else."""
    path = os.fspath(source) if isinstance(source, (str, os.PathLike)) else ""
    return runs_inside(path) if path and is_folder_of_runs(path) else None


def _numbers_of(
    named: NamedResult, requirements: Sequence[Requirement], scoring: GateScoring, most: Gaps | None
) -> tuple[GateNumbers, Differences | None]:
    by = list(dict.fromkeys(requirement.by for requirement in requirements if requirement.by))
    moved = [requirement for requirement in requirements if requirement.delta]
    if moved and named.baseline is None:
        raise InputError(f"{moved[0].text!r} needs a baseline; expected --baseline PATH")
    metrics = list(dict.fromkeys(requirement.metric for requirement in requirements if not requirement.missing))
    numbers = answers(named.source, metrics, by, scoring)
    if not numbers.document and any(requirement.worst and not requirement.delta for requirement in requirements):
        numbers = with_filled(numbers, metrics, by, scoring, BOTTOM)
    ends = any(requirement.end and not (requirement.delta or requirement.worst) for requirement in requirements)
    if ends and not numbers.once and not numbers.zero and lacking(numbers, most):
        numbers = with_filled(numbers, metrics, by, scoring, BOTTOM, TOP)
    if not moved or named.baseline is None:
        return numbers, None
    wanted = list(dict.fromkeys(requirement.metric for requirement in moved))
    sliced = list(dict.fromkeys(requirement.by for requirement in moved if requirement.by))
    worst, shown = any(requirement.worst for requirement in moved), any(requirement.end for requirement in moved)

    def filled(before: GateNumbers) -> bool:
        return worst or (shown and not numbers.zero and (lacking(numbers, most) or lacking(before, most)))

    return numbers, differences(named.source, named.baseline, wanted, sliced, scoring, filled)


def _groups(wanted: Requirement, numbers: GateNumbers) -> list[GateGroup]:
    """The groups that a requirement applies to; UnknownName where there is none."""
    groups = list(numbers.groups)
    for key in GROUP:
        name = getattr(wanted, key)
        if name is not None:
            known = [label for group in groups if (label := getattr(group, key)) is not None]
            groups = [group for group in groups if getattr(group, key) == name]
            if not groups:
                raise UnknownName.of(f"{key} in {numbers.path}", name, known)
    return groups


@dataclass(frozen=True, slots=True)
class _GroupCheck:
    """A requirement that is held against one group of a result."""

    wanted: Requirement
    result: str  # its name
    group: GateGroup
    numbers: GateNumbers
    apart: Differences | None  # from the baseline, where the requirement is about them
    most: Gaps | None

    def check(self) -> Check:
        """The answer."""
        wanted = self.wanted
        if wanted.every or wanted.weakest:
            return self._of_slices()
        part, number = _number(wanted, self.group, self.numbers)
        start = self._start(part)
        better = number.better if number else None
        if wanted.worst and part is not None and number is not None:
            number = self._worst(part, number)
        if self.apart is not None:
            number = self.apart.of(self.group, wanted, number)
        if part is None or number is None:
            return replace(start, why=f"there is no slice {wanted.by}={wanted.slice}; {_slices(wanted, self.group)}")
        tasks = None if wanted.missing else number.tasks
        start = replace(start, estimate=finite(number.value), interval=number.interval, tasks=tasks)
        if number.interval is not None:
            start = replace(start, confidence=self.numbers.confidence)
        too_many = _gaps(part, self.most, "")
        if too_many is None and self.apart is not None:
            too_many = _gaps(self.apart.counterpart(self.group), self.most, " of the baseline")
        value, why = _value(wanted, number)
        if value is None:
            return replace(start, why=too_many or why)
        word: Word = "passed" if wanted.met(value) else "failed"
        missing, why = None, too_many
        if (self.most is None or too_many) and not (wanted.missing or wanted.worst or self.numbers.zero):
            missing = self._missing(part, number)
        if missing is not None:
            word, why = decided(wanted, word, missing, too_many)
        if why is not None:
            return replace(start, why=why)
        return replace(start, value=value, word=word, remark=_remark(wanted, number, word, better))

    def _start(self, part: GateGroup | GateSlice | None) -> Check:
        wanted = self.wanted
        return Check(
            wanted.text, wanted.tier, self.result, *self.group.who, "undefined", op=wanted.op, number=wanted.number,
            planned=part.ledger.planned if part else None, gaps=part.ledger.gaps if part else None,
        )  # fmt: skip

    def _worst(self, part: GateGroup | GateSlice, number: Number) -> Number:
        """The number with every missing rollout at its worse end."""
        if self.numbers.document or BOTTOM not in self.numbers.filled:  # or a difference that is not paired
            return at_end(number, part, worse=True)
        return worst_of(self.wanted, part, number, self.numbers.unknown, self._filled(BOTTOM))

    def _filled(self, end: int) -> Number | None:
        """The number with every missing rollout at an end of the range; None where that is not known."""
        group = self.numbers.filled.get(end, {}).get(self.group.who)
        return None if group is None else _number_in(self.wanted, group)

    def _missing(self, part: GateGroup | GateSlice, number: Number) -> Missing | None:
        """What is missing of what the requirement is about; None where nothing is."""
        if self.apart is not None:
            return of_difference(self.wanted, self.group, number, self.apart)
        filled = None if self.numbers.once else self._filled
        return at_ends(self.wanted, part, number, filled, self.numbers.unknown.get(self.wanted.key))

    def _of_slices(self) -> Check:
        """What every slice, or the worst task, comes to."""
        wanted, group, confidence = self.wanted, self.group, self.numbers.confidence
        start, slices = self._start(group), _slices_by(wanted, group, self.numbers)
        if (too_many := _gaps(group, self.most, "")) is not None:
            return replace(start, why=too_many)
        if wanted.weakest:
            seen = of_weakest(wanted, group, start, confidence)
            if self.most is not None or self.numbers.zero or seen.value is None or not group.ledger.gaps:
                return seen
            ends = [of_weakest(wanted, group, start, confidence, fill) for fill in (0, 1)]
            return undecided(seen, ends, group)
        # so many are missing of the group that none decides it
        allowed = None if self.most is None else Gaps(1.0, share=True)
        each = {name: replace(self, wanted=replace(wanted, slice=name), most=allowed).check() for name in slices}
        return of_every(wanted, start, each)


def _slices_by(wanted: Requirement, group: GateGroup, numbers: GateNumbers) -> Mapping[str, GateSlice]:
    """The slices of a key; UnknownName where the result has none by it."""
    if wanted.by not in group.breakdowns:
        hint = "" if group.breakdowns else f"it has no slices; expected a result of calipers score --by {wanted.by}"
        raise UnknownName.of(f"slices in {numbers.path}", wanted.by or "", group.breakdowns, hint)
    return group.breakdowns[wanted.by]


def _number_in(wanted: Requirement, group: GateGroup) -> Number | None:
    """A metric of a group, or of one slice of it; None where there is none of the name."""
    numbers: Mapping[str, Number] = group.numbers()
    if wanted.by is not None:
        cut = group.breakdowns.get(wanted.by, {}).get(wanted.slice or "")
        numbers = cut.metrics if cut else {}
    return number_of(wanted, numbers)


def _warnings(name: str, numbers: GateNumbers) -> list[str]:
    """A warning for each group with many missing rollouts."""
    warnings = []
    for group in numbers.groups:
        gaps, planned = group.ledger.gaps, group.ledger.planned
        if planned and gaps / planned > MOST_MISSING:
            whose = f"{name} ({group.title})" if len(numbers.groups) > 1 else name
            share = f"{100 * gaps / planned:.3g} % of the rollouts of {whose} are missing ({gaps:,} of {planned:,})"
            warnings.append(
                f"warning: {share}: requirements without worst(...) may depend on which rollouts are missing"
            )
    return warnings


def _number(
    wanted: Requirement, group: GateGroup, result: GateNumbers
) -> tuple[GateGroup | GateSlice | None, Number | None]:
    """The part of a metric and its number; UnknownName for a metric that the result does not have."""
    part: GateGroup | GateSlice | None = group
    if wanted.by is not None:
        part = _slices_by(wanted, group, result).get(wanted.slice or "")
        if part is None:
            return None, None
    if wanted.missing and part is not None:
        ledger = part.ledger
        return part, Number(ledger.gaps / ledger.planned) if ledger.planned else Number(
            None, why="no rollouts were planned"
        )
    numbers = part.numbers() if isinstance(part, GateGroup) else part.metrics if part else {}
    number = number_of(wanted, numbers) or result.of_table(group, wanted)
    if number is None:
        cut = next(((by, name) for by, slices in group.breakdowns.items() for name in slices), None)
        hint = f"its numbers are by {cut[0]}: {wanted.metric}[{cut[0]}={cut[1]}]" if cut and not numbers else ""
        raise UnknownName.of(f"metric in {result.path}", wanted.metric, [*numbers, *result.known], hint)
    return part, number


def _value(wanted: Requirement, number: Number) -> tuple[float | None, str | None]:
    """The value to compare with the number; or why there is none."""
    if finite(number.value) is None:
        return (None, f"{'no difference' if wanted.delta else 'no value'}: {number.why or 'no reason is given'}")
    if wanted.end is None:
        return number.value, None
    if number.interval is None:
        return None, f"no interval: {number.why or 'no reason is given'}"
    return number.interval[wanted.end == "upper"], None


def _remark(wanted: Requirement, number: Number, word: Word, better: bool | None) -> str | None:
    """Remarks on an answer: uncertainty, and a requirement in the unexpected direction."""
    remarks = [_unsure(wanted, number, word), _gaps_decide(wanted, number), number.remark]
    if better is not None and wanted.op != "==" and wanted.op.startswith(">") is not better:
        remarks.append(
            f"{'higher' if better else 'lower'} is better for {wanted.metric}, but this asks for the opposite"
        )
    return "; ".join(filter(None, remarks)) or None


def _gaps_decide(wanted: Requirement, number: Number) -> str | None:
    """A remark where the missing rollouts could change the answer."""
    if number.bounds is None or wanted.end is not None or wanted.delta:
        return None
    shown = [] if number.value is None else [number.value]  # without undefined tasks, which the bounds include
    if len({wanted.met(end) for end in (*number.bounds, *shown)}) == 1:
        return None
    low, high = (figure(end) for end in number.bounds)
    return f"the missing rollouts may decide the answer: the value is {low} to {high} depending on them"


def _unsure(wanted: Requirement, number: Number, word: Word) -> str | None:
    """A remark where the interval contradicts an answer from the value alone."""
    if wanted.end is not None or number.interval is None or wanted.op == "==":
        return number.why if wanted.delta and number.interval is None else None
    sides = [wanted.met(end) for end in number.interval]
    if all(side == (word == "passed") for side in sides):
        return None
    return "the interval contains both answers"


def _gaps(part: GateGroup | GateSlice, most: Gaps | None, whose: str) -> str | None:
    ledger = part.ledger
    if most is None or most.allow(ledger.gaps, ledger.planned):
        return None
    return f"{ledger.gaps:,} of {ledger.planned:,} rollouts{whose} are missing, and at most {most} may be"


def _slices(wanted: Requirement, group: GateGroup) -> str:
    known = list(group.breakdowns.get(wanted.by or "", ()))
    return f"there are {', '.join(known[:8])}{', …' if len(known) > 8 else ''}" if known else "there are none"


def _unread(wanted: Requirement, named: NamedResult, why: str) -> Check:
    return Check(
        wanted.text, wanted.tier, named.name, wanted.agent, wanted.model, wanted.dataset, "undefined",
        op=wanted.op, number=wanted.number, why=why,
    )  # fmt: skip
