"""The gate: check requirements for results and give one overall answer. It never passes without an answer."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from calipers.analyses.gate import Check, Gate, Word
from calipers.analyses.gate.numbers import (
    NO_BOUNDS,
    NO_ENDS,
    NO_INTERVAL,
    TABLE,
    Differences,
    GateGroup,
    GateNumbers,
    GateScoring,
    GateSlice,
    Number,
    at_end,
    differences,
    display_name,
    is_document,
    number_of,
    read_numbers,
)
from calipers.analyses.gate.requirement import TASK, Gaps, NamedResult, Policy, Requirement, required_of
from calipers.errors import CalipersError, InputError, UnknownName
from calipers.formats import Named
from calipers.formats.read import is_folder_of_runs, runs_inside
from calipers.pipeline import Source
from calipers.remarks import Remark, Value
from calipers.reports.figures import counted, figure, is_or_are
from calipers.reports.remark_texts import text_of
from calipers.reports.result import Result, finite
from calipers.rollouts.checks import disagreements
from calipers.stats.claims import Evidence, Reason, claim
from calipers.stats.missing import MOST_MISSING
from calipers.stats.paired import below
from calipers.stats.ranks import holm


@dataclass(frozen=True, slots=True)
class Missing:
    """The missing rollouts of a number, and the number with all of them at each end of the range of rewards."""

    text: str  # such as "8 of 40 rollouts"
    count: int
    ends: tuple[float, float] | None = None  # None if unknown
    why: str = NO_BOUNDS  # why ``ends`` are unknown
    finished: bool = False  # whether they are unknown because a finished result does not store them

    several: bool = False  # whether the text names rollouts of both runs

    @property
    def are(self) -> str:
        """The text with its verb: ``1 of 40 rollouts is``."""
        return f"{self.text} {'are' if self.several else is_or_are(self.count)}"

    @property
    def decide(self) -> str:
        """The verb of rollouts that decide an answer."""
        return "decides" if self.count == 1 and not self.several else "decide"


def decide(requirement: Requirement, word: Word, missing: Missing, too_many: str | None) -> tuple[Word, str | None]:
    """The answer if rollouts are missing: ``word`` unless they could change it; or why there is no answer.

    ``too_many`` is the message that more rollouts are missing than allowed, if so.
    """
    if missing.ends is None:
        if missing.finished and word == "failed" and not too_many:
            return "failed", None
        unknown = f"{missing.are} missing and may decide the answer: {missing.why}; {advice(missing.count)}"
        return "undefined", too_many or unknown
    low, high = sorted(missing.ends)
    met = [requirement.met(end) for end in (low, high)]
    can_be_met = low <= requirement.number <= high if requirement.op == "==" else any(met)
    if not can_be_met:
        return "failed", None
    if too_many:
        return "undefined", too_many
    if all(met):
        return word, None
    bounds = f"the value is {figure(low)} to {figure(high)} depending on them"
    return "undefined", f"{missing.are} missing and {missing.decide} the answer: {bounds}; {advice(missing.count)}"


def advice(count: int) -> str:
    """What to do about missing rollouts."""
    return f"use --max-gaps {count} to decide without them"


def unless_missing_decide(observed: Check, ends: Sequence[Check], group: GateGroup) -> Check:
    """The answer from the observed rollouts, or no answer if the missing rollouts could change it.

    ``ends`` are the answers with every missing rollout failed, and passed.
    """
    words = {check.word for check in ends}
    if words == {observed.word}:
        return observed
    if words == {"failed"}:
        return replace(observed, word="failed", remark=ends[1].remark, failing=ends[1].failing)
    gaps = group.ledger.filled
    missing = Missing(f"{gaps:,} of {group.ledger.planned:,} rollouts", gaps)
    why = f"{missing.are} missing and {missing.decide} the answer; {advice(gaps)}"
    return replace(observed, word="undefined", value=None, why=why, failing=[])


def missing_text(part: GateGroup | GateSlice, number: Number) -> str:
    """The missing rollouts of a number in words; "" if none is missing."""
    ledger = part.ledger
    if ledger.filled and (number.bounds is not None or number.samples < ledger.planned):
        return f"{ledger.filled:,} of {ledger.planned:,} rollouts"
    return f"some of {ledger.planned:,} rollouts" if number.bounds is not None else ""


def missing_in_result(
    requirement: Requirement, part: GateGroup | GateSlice, number: Number, unknown: str | None, *, document: bool
) -> Missing | None:
    """The missing rollouts of a number of one result; None if none is missing.

    ``unknown`` is the reason why filling says nothing about the number, if so; ``document``: it is of a finished
    result.
    """
    text, count = missing_text(part, number), part.ledger.gaps
    if not text:
        return None
    if requirement.end is None:
        return Missing(text, count, number.bounds, unknown or NO_BOUNDS)
    if unknown is not None or number.bounds is None:
        return Missing(text, count, None, unknown or NO_BOUNDS)
    if number.filled_intervals is None:
        return Missing(text, count, None, NO_ENDS, finished=document)
    end = int(requirement.end == "upper")
    ends = [math.nan if interval is None else interval[end] for interval in number.filled_intervals]
    known = (ends[0], ends[1]) if all(map(math.isfinite, ends)) else None
    return Missing(text, count, known, NO_INTERVAL)


def missing_in_difference(
    requirement: Requirement, group: GateGroup, number: Number, changes: Differences
) -> Missing | None:
    """The missing rollouts of a difference, in either run; None if none is missing."""
    ledgers = [("", group.ledger), (" of the baseline", changes.counterpart(group).ledger)]
    parts = [f"{each.gaps:,} of {each.planned:,} rollouts{whose}" for whose, each in ledgers if each.gaps]
    if not parts and number.bounds is None:
        return None
    text, count = " and ".join(parts) or "some rollouts", max(each.gaps for _, each in ledgers)
    several = len(parts) != 1
    if changes.paired is not None and number.bounds is None and not number.lacking:
        return None  # none is missing on the common tasks
    if requirement.end is None:
        return Missing(text, count, number.bounds, finished=changes.paired is None, several=several)
    worst = changes.worst_of(group, requirement)
    if worst is None:
        return Missing(text, count, None, NO_BOUNDS, several=several)
    low, high = (Number(filled.value, filled.interval) for filled in worst)
    return Missing(text, count, _interval_ends(requirement, low, high), NO_INTERVAL, several=several)


def _interval_ends(requirement: Requirement, *filled: Number | None) -> tuple[float, float] | None:
    """The required end of the interval with all missing rollouts at each end of the range; None if one is unknown."""
    end = int(requirement.end == "upper")
    low, high = (number.interval[end] if number and number.interval else math.nan for number in filled)
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


LISTED: Final = 5  # slices that are listed in a sentence
CONFIDENCE: Final = 0.95  # for a result that does not store its own


def check_every_slice(requirement: Requirement, start: Check, checks: Mapping[str, Check]) -> Check:
    """One answer from the answers of all slices, every one of which must pass, with the value of the worst slice.

    There is no adjustment for the number of slices: the gate passes wrongly only if it is wrong about a bad slice.
    """
    if not checks:
        return replace(start, why=f"there is no {'task' if requirement.by == TASK else f'slice by {requirement.by}'}")
    worst_first = sorted(checks.items(), key=lambda item: _margin(requirement, item[1].value or 0.0))
    failed = {name: check for name, check in worst_first if check.word == "failed"}
    undefined = {name: check for name, check in checks.items() if check.word == "undefined"}
    word: Word = "failed" if failed else "undefined" if undefined else "passed"
    worst = next((check for _, check in worst_first if check.value is not None), None)
    count = _count_slices(requirement, len(checks))
    remarks = []
    if failed:
        shown = [f"{name} ({figure(check.value)})" for name, check in failed.items()]
        fail = "fails" if len(failed) == 1 else "fail"
        remarks.append(f"{len(failed):,} of {count} {fail}: {_list_names(shown)}")
    why = None
    if undefined:
        first = next(iter(undefined.values()))
        have = "has" if len(undefined) == 1 else "have"
        why = f"{len(undefined):,} of {count} {have} no answer: {_list_names(list(undefined))} ({first.why})"
    return replace(
        start,
        word=word,
        value=worst.value if worst and word != "undefined" else None,
        estimate=worst.estimate if worst else None,
        interval=worst.interval if worst else None,
        confidence=worst.confidence if worst else None,
        tasks=None if requirement.missing else sum(check.tasks or 0 for check in checks.values()),
        why=why if word == "undefined" else None,
        remark="; ".join(filter(None, [*remarks, why if failed else None])) or None,
        failing=list(failed),
    )


def check_worst_task(
    requirement: Requirement, group: GateGroup, start: Check, confidence: float | None, fill: int | None = None
) -> Check:
    """Fail if a task is significantly below the required pass rate; the value is the lowest pass rate of a task.

    Each task has the exact binomial p of so few passes if its pass rate were the required one. By Holm over all tasks,
    a gate whose tasks are all good fails with probability at most 1 - confidence. ``fill`` counts every missing rollout
    as a pass (1) or as a fail (0); None leaves them out.
    """
    alpha = 1 - (CONFIDENCE if confidence is None else confidence)
    counts: dict[str, tuple[int, int]] = {}  # task -> passes and samples
    for name, cut in group.breakdowns[TASK].items():
        number = number_of(requirement, cut.metrics)
        if number is None:
            continue
        observed, missing = round((number.value or 0.0) * number.samples), cut.ledger.filled if fill is not None else 0
        if number.samples + missing:
            counts[name] = observed + missing * (fill or 0), number.samples + missing
    if not counts:
        return replace(start, why="no task has a value")
    passes, samples = np.array(list(counts.values()), dtype=np.int64).T
    adjusted = holm(below(passes, samples, requirement.number))
    order = np.lexsort((passes / samples, adjusted)).tolist()
    names = list(counts)
    significant = [index for index in order if adjusted[index] <= alpha]
    over = f"Holm over {counted(len(names), 'task')}"
    if significant:
        shown = [
            f"{names[task]} ({passes[task]:,} of {samples[task]:,}, p {adjusted[task]:.2g})" for task in significant
        ]
        count = _count_slices(requirement, len(significant))
        remark = f"{count} shown to be below {requirement.number:g} ({over}): {_list_names(shown)}"
    else:
        smallest_possible = float(holm(below(np.zeros_like(samples), samples, requirement.number)).min())
        remark = f"no task is shown to be below {requirement.number:g} ({over}, smallest p {adjusted[order[0]]:.2g})"
        if smallest_possible > alpha:
            remark += "; with so few samples not even a task without a pass could be"
    if unknown := len(group.breakdowns[TASK]) - len(names):
        remark += f"; no value for {_count_slices(requirement, unknown)}"
    lowest = float((passes / samples).min())
    return replace(
        start,
        word="failed" if significant else "passed",
        value=lowest,
        estimate=lowest,
        tasks=len(names),
        remark=remark,
        failing=[names[task] for task in significant],
    )


def _margin(requirement: Requirement, value: float) -> float:
    """How far a value is on the required side of the number; smaller is worse, and for == it is at most 0."""
    if requirement.op == "==":
        return -abs(value - requirement.number)
    return value - requirement.number if requirement.op.startswith(">") else requirement.number - value


def _count_slices(requirement: Requirement, number: int) -> str:
    """``60 tasks``, ``3 slices by level``."""
    return counted(number, "task") if requirement.by == TASK else f"{counted(number, 'slice')} by {requirement.by}"


def _list_names(names: Sequence[str]) -> str:
    return ", ".join(names[:LISTED]) + (", …" if len(names) > LISTED else "")


GROUP_KEYS = ("agent", "model", "dataset")
NO_ANSWER: Final[tuple[Reason, ...]] = ("reader", "scales", "missing", "counts")
"""The reasons for which a rule on a difference has no answer; any other reason fails it."""


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
    missing: Literal["gap", "zero", "fail", "random"] | None = None,
    cluster: str | None = None,
    reward: str | None = None,
    range: tuple[float, float] | None = None,
    columns: Mapping[str, str] | None = None,
    truth: Mapping[str, float] | None = None,
    input_format: str | None = None,
    confidence: float | None = None,
    seed: int | None = None,
    threshold: float | None = None,
    trust_reader: bool = False,
) -> Gate:
    """Check a result against requirements, such as ``require=["lower(pass@1) >= 0.6"]``.

    ``result`` is a `Result`, the path of a result.json, anything that `score` reads, which is scored first, or a folder
    of runs, each of which is checked; ``baseline`` is the same, for ``delta(...)``. A ``policy`` is a YAML file of
    requirements, for one result or several. Every group must meet every requirement, unless ``agent``, ``model`` or
    ``dataset`` selects groups. ``max_gaps`` is the most rollouts of a group that may be missing: ``5`` or ``"2%"``. If
    a number that the system which wrote the rollouts reports differs from ours, there is no answer, unless
    ``trust_reader`` says that the reader is right. The other parameters are those of `score`, for rollouts. The
    answer's ``word`` is ``"passed"``, ``"failed"`` or ``"undefined"``.

    >>> gate([[1, 1], [1, 0]], require="mean_reward >= 0.5").word
    'passed'
    """
    group = {"agent": agent, "model": model, "dataset": dataset}
    named = None if result is None else NamedResult(display_name(result, TABLE), result, baseline)
    path = None if policy is None else os.fspath(policy)
    required = required_of(named, [require] if isinstance(require, str) else require, path, max_gaps, group, baseline)
    names = Named(columns or {}, truth, input_format or "")
    scoring = GateScoring(dialect, missing, cluster, reward, range, names, confidence, seed, threshold)
    return check_policy(required, scoring, alone=policy is None, trust_reader=trust_reader)


def check_policy(
    policy: Policy, scoring: GateScoring | None = None, *, alone: bool = False, trust_reader: bool = False
) -> Gate:
    """Check every requirement of a policy for the groups of its results.

    A requirement that names no group is checked for each group. If a result cannot be read, its requirements are
    undefined and the other results are still checked; with ``alone`` it is an error.
    """
    settings = scoring or GateScoring()
    checks: list[Check] = []
    notes: list[str] = []
    results: list[tuple[NamedResult, list[Requirement]]] = []
    for named in policy.results:
        requirements = [requirement for requirement in policy.requirements if requirement.of in (None, named.name)]
        if not requirements:
            notes.append(f"{named.name} has no requirements")
            continue
        results += [(each, requirements) for each in _unfold(named)]
    for named, requirements in results:
        try:
            numbers, changes = _read_numbers(named, requirements, settings, policy.max_gaps)
        except UnknownName:
            raise
        except CalipersError as error:
            if alone:
                raise
            checks += [_unreadable(requirement, named, str(error)) for requirement in requirements]
            continue
        notes += [*numbers.notes, *(changes.notes if changes else ())]
        if named.baseline is not None and changes is None:
            notes.append(f"{named.name}: the baseline is not read, because no requirement has delta(METRIC)")
        if not all(requirement.worst or requirement.missing for requirement in requirements):
            notes += [*_warnings(named.name, numbers), *(_warnings("the baseline", changes.before) if changes else ())]
        for requirement in requirements:
            answers = [
                _GroupCheck(
                    requirement, named.name, group, numbers, changes if requirement.delta else None, policy.max_gaps
                ).check()
                for group in _groups(requirement, numbers)
            ]
            read = [numbers, *([changes.before] if changes is not None and requirement.delta else [])]
            doubts: list[str] = []
            for each in read:
                doubts += map(text_of, disagreements(each.checks))
            if doubts and not trust_reader:
                why = f"{'; '.join(doubts)}; --trust-reader decides nevertheless"
                answers = [replace(answer, word="undefined", value=None, why=why, failing=[]) for answer in answers]
            checks += answers
    return Gate(checks, policy.allowed_failures, list(dict.fromkeys(notes)))


def _unfold(named: NamedResult) -> list[NamedResult]:
    """The results in a folder of runs: all rollouts together as one, and each finished result; else the result."""
    baseline = _runs_in_folder(named.baseline)
    if baseline is not None:
        before = [path for path in baseline if not is_document(path)] or baseline
        if len(before) > 1 and is_document(before[0]):
            expected = "expected runs with their rollouts, or one result"
            raise InputError.at(named.baseline, f"has {len(before):,} finished results", expected)
        named = replace(named, baseline=before[0] if len(before) == 1 else before)
    runs = _runs_in_folder(named.source)
    if runs is None:
        return [named]
    rollouts = [path for path in runs if not is_document(path)]
    together = [replace(named, source=rollouts[0] if len(rollouts) == 1 else rollouts)] if rollouts else []
    return [*together, *(replace(named, name=path, source=path) for path in runs if path not in rollouts)]


def _runs_in_folder(source: Source | Result | None) -> list[str] | None:
    """The runs in a folder of runs; None for anything else."""
    path = os.fspath(source) if isinstance(source, (str, os.PathLike)) else ""
    return runs_inside(path) if path and is_folder_of_runs(path) else None


def _read_numbers(
    named: NamedResult, requirements: Sequence[Requirement], scoring: GateScoring, most: Gaps | None
) -> tuple[GateNumbers, Differences | None]:
    """The numbers of a result, and its differences from the baseline if a requirement needs them."""
    by = list(dict.fromkeys(requirement.by for requirement in requirements if requirement.by))
    on_delta = [requirement for requirement in requirements if requirement.delta]
    if on_delta and named.baseline is None:
        raise InputError(f"{on_delta[0].text!r} needs a baseline; expected --baseline PATH")
    metrics = list(dict.fromkeys(requirement.metric for requirement in requirements if not requirement.missing))
    on_ends = {requirement.key for requirement in requirements if requirement.end and not requirement.delta}
    numbers = read_numbers(named.source, metrics, by, scoring, on_ends=on_ends)
    if not on_delta or named.baseline is None:
        return numbers, None
    delta_metrics = list(dict.fromkeys(requirement.metric for requirement in on_delta))
    delta_by = list(dict.fromkeys(requirement.by for requirement in on_delta if requirement.by))
    return numbers, differences(named.source, named.baseline, delta_metrics, delta_by, scoring)


def _groups(requirement: Requirement, numbers: GateNumbers) -> list[GateGroup]:
    """The groups that a requirement applies to; UnknownName if there is none."""
    groups = list(numbers.groups)
    for key in GROUP_KEYS:
        name = getattr(requirement, key)
        if name is not None:
            known = [label for group in groups if (label := getattr(group, key)) is not None]
            groups = [group for group in groups if getattr(group, key) == name]
            if not groups:
                raise UnknownName.of(f"{key} in {numbers.path}", name, known)
    return groups


@dataclass(frozen=True, slots=True)
class _GroupCheck:
    """The check of a requirement for one group of a result."""

    requirement: Requirement
    result: str  # the result's name
    group: GateGroup
    numbers: GateNumbers
    changes: Differences | None  # from the baseline, if the requirement is on a difference
    most: Gaps | None

    def check(self) -> Check:
        """The answer."""
        requirement = self.requirement
        if requirement.every or requirement.worst_task:
            return self._check_slices()
        part, number = _find_number(requirement, self.group, self.numbers)
        start = self._start(part)
        better = number.better if number else None
        if requirement.worst and part is not None and number is not None:
            number = self._worst(part, number)
        if self.changes is not None:
            number = self.changes.of(self.group, requirement, number)
        if part is None or number is None:
            no_slice = f"there is no slice {requirement.by}={requirement.slice}"
            return replace(start, why=f"{no_slice}; {_known_slices(requirement, self.group)}")
        tasks = None if requirement.missing else number.tasks
        if self.changes is None and self.group.first_tries and number.of_all_samples:
            return replace(start, why=_why_counts(requirement, number))
        start = replace(start, estimate=finite(number.value), interval=number.interval, tasks=tasks)
        if number.interval is not None:
            start = replace(start, confidence=self.numbers.confidence)
        too_many = _too_many_gaps(part, self.most, "")
        if too_many is None and self.changes is not None:
            too_many = _too_many_gaps(self.changes.counterpart(self.group), self.most, " of the baseline")
        value, why = _compared_value(requirement, number)
        if value is None:
            if self.numbers.once and self._beyond_samples(number):
                needed = Remark("free_bounds_once", {}, "no_answer")
                why = f"{why}; {text_of(needed)}"
            return replace(start, why=too_many or why)
        if self.changes is not None and requirement.is_claim and not requirement.worst:
            evidence = self.changes.evidence(self.group, requirement)
            if evidence is not None:
                start = replace(start, value=value, remark=_remark(requirement, number, better))
                return self._claimed(start, number, evidence, too_many)
        word: Word = "passed" if requirement.met(value) else "failed"
        missing, why = None, too_many
        if (self.most is None or too_many) and not (requirement.missing or requirement.worst or self.numbers.zero):
            missing = self._missing(part, number)
        if missing is not None:
            word, why = decide(requirement, word, missing, too_many)
        if why is not None:
            return replace(start, why=why)
        remark = _remark(requirement, number, better)
        if word == "failed" and requirement.met(value) and missing is not None and missing.ends is not None:
            remark = _unmet_remark(missing, missing.ends)
        return replace(start, value=value, word=word, remark=remark)

    def _beyond_samples(self, number: Number) -> bool:
        """Whether the requirement is on an end of pass@K for a K that no task has samples for."""
        is_end = self.requirement.end is not None and not self.requirement.delta
        return is_end and self.requirement.key[0].startswith("pass@") and number.value is None and not number.tasks

    def _claimed(self, start: Check, number: Number, evidence: Evidence, too_many: str | None) -> Check:
        """The answer of a requirement that claims a difference, by the one rule for such claims.

        Missing rollouts that the policy allows are like the others.
        """
        requirement = self.requirement
        if self.most is not None and too_many is None:
            evidence = replace(evidence, worst=None, unknown=False)
        confidence = CONFIDENCE if self.numbers.confidence is None else self.numbers.confidence
        above = requirement.end == "lower"
        shown = claim(evidence, above=above, level=(1 - confidence) / 2, bound=requirement.number)
        if shown.shown and too_many is None:
            return replace(start, word="passed")
        if shown.by in NO_ANSWER or (shown.shown and too_many):
            return replace(start, value=None, why=too_many or self._why_no_answer(shown.by, number), remark=None)
        if shown.by == "unseen_loss":
            unseen = text_of(Remark("gate_unseen", {}, "warning"))
            return replace(start, word="failed", remark="; ".join(filter(None, (start.remark, unseen))))
        return replace(start, word="failed")

    def _why_no_answer(self, by: Reason | None, number: Number) -> str:
        """Why a claim has no answer: the missing rollouts decide it, or the samples cannot be compared."""
        if by == "counts":
            return _why_counts(self.requirement, number)
        if self.changes is None:
            raise ValueError("a claim is about a difference")
        ledgers = self.group.ledger, self.changes.counterpart(self.group).ledger
        values: dict[str, Value] = {
            "second_missing": ledgers[0].gaps,
            "second_planned": ledgers[0].planned,
            "first_missing": ledgers[1].gaps,
            "first_planned": ledgers[1].planned,
        }
        names = {"first": "the baseline", "second": "the result"}
        why = text_of(Remark("missing_decide", values, "no_answer"), names)
        without = advice(max(ledger.gaps for ledger in ledgers))
        return f"{why}; retry them (calipers run ... --retry-failed), or {without}"

    def _start(self, part: GateGroup | GateSlice | None) -> Check:
        """An undefined check, to which an answer or the reason why there is none is added."""
        requirement = self.requirement
        return Check(
            requirement.text, requirement.tier, self.result, *self.group.identity, "undefined",
            op=requirement.op, number=requirement.number,
            planned=part.ledger.planned if part else None, gaps=part.ledger.gaps if part else None,
        )  # fmt: skip

    def _worst(self, part: GateGroup | GateSlice, number: Number) -> Number:
        """The number with every missing rollout at its worse end."""
        unknown = self.numbers.unknown.get(self.requirement.key[0])
        return at_end(number, part, worse=True, unknown=unknown)

    def _missing(self, part: GateGroup | GateSlice, number: Number) -> Missing | None:
        """The missing rollouts of the number that is checked; None if none is missing."""
        if self.changes is not None:
            return missing_in_difference(self.requirement, self.group, number, self.changes)
        unknown = self.numbers.unknown.get(self.requirement.key[0])
        return missing_in_result(self.requirement, part, number, unknown, document=self.numbers.document)

    def _check_slices(self) -> Check:
        """The answer of a requirement on every slice or on the worst task."""
        requirement, group, confidence = self.requirement, self.group, self.numbers.confidence
        start, slices = self._start(group), _slices_by(requirement, group, self.numbers)
        if (too_many := _too_many_gaps(group, self.most, "")) is not None:
            return replace(start, why=too_many)
        if requirement.worst_task:
            observed = check_worst_task(requirement, group, start, confidence)
            if self.most is not None or self.numbers.zero or observed.value is None or not group.ledger.filled:
                return observed
            ends = [check_worst_task(requirement, group, start, confidence, fill) for fill in (0, 1)]
            return unless_missing_decide(observed, ends, group)
        # the limit on missing rollouts holds for the group, not for each slice
        allowed = None if self.most is None else Gaps(1.0, share=True)
        checks = {
            name: replace(self, requirement=replace(requirement, slice=name), most=allowed).check() for name in slices
        }
        return check_every_slice(requirement, start, checks)


def _why_counts(requirement: Requirement, number: Number) -> str:
    """Why a metric of all samples has no answer if their number follows the results, and which metric has one."""
    values: dict[str, Value] = {"metric": requirement.metric, "instead": number.of_first_samples}
    return text_of(Remark("gate_counts", values, "no_answer"))


def _slices_by(requirement: Requirement, group: GateGroup, numbers: GateNumbers) -> Mapping[str, GateSlice]:
    """The slices by the requirement's key; UnknownName if the result has none."""
    if requirement.by not in group.breakdowns:
        hint = (
            "" if group.breakdowns else f"it has no slices; expected a result of calipers score --by {requirement.by}"
        )
        raise UnknownName.of(f"slices in {numbers.path}", requirement.by or "", group.breakdowns, hint)
    return group.breakdowns[requirement.by]


def _warnings(name: str, numbers: GateNumbers) -> list[str]:
    """A warning for each group that lacks many rollouts."""
    warnings = []
    for group in numbers.groups:
        gaps, planned = group.ledger.gaps, group.ledger.planned
        if planned and gaps / planned > MOST_MISSING:
            title = f"{name} ({group.title})" if len(numbers.groups) > 1 else name
            share = f"{100 * gaps / planned:.3g} % of the rollouts of {title} are missing ({gaps:,} of {planned:,})"
            warnings.append(
                f"warning: {share}: requirements without worst(...) may depend on which rollouts are missing"
            )
    return warnings


def _find_number(
    requirement: Requirement, group: GateGroup, result: GateNumbers
) -> tuple[GateGroup | GateSlice | None, Number | None]:
    """The group or slice of a requirement and its number; UnknownName for a metric that the result does not have."""
    part: GateGroup | GateSlice | None = group
    if requirement.by is not None:
        part = _slices_by(requirement, group, result).get(requirement.slice or "")
        if part is None:
            return None, None
    if requirement.missing and part is not None:
        if not part.ledger.planned:
            return part, Number(None, why="no rollouts were planned")
        return part, Number(part.ledger.gaps / part.ledger.planned)
    numbers = part.numbers() if isinstance(part, GateGroup) else part.metrics if part else {}
    number = number_of(requirement, numbers) or result.of_table(group, requirement)
    if number is None:
        cut = next(((by, name) for by, slices in group.breakdowns.items() for name in slices), None)
        hint = f"its numbers are by {cut[0]}: {requirement.metric}[{cut[0]}={cut[1]}]" if cut and not numbers else ""
        raise UnknownName.of(f"metric in {result.path}", requirement.metric, [*numbers, *result.known], hint)
    return part, number


def _compared_value(requirement: Requirement, number: Number) -> tuple[float | None, str | None]:
    beyond_samples = requirement.end is not None and number.interval is not None  # bounds without a value
    if finite(number.value) is None and not beyond_samples:
        return (None, f"{'no difference' if requirement.delta else 'no value'}: {number.why or 'no reason is given'}")
    if requirement.end is None:
        return number.value, None
    if number.interval is None:
        return None, f"no interval: {number.why or 'no reason is given'}"
    return number.interval[requirement.end == "upper"], None


def _remark(requirement: Requirement, number: Number, better: bool | None) -> str | None:
    """Remarks on an answer: its uncertainty, and whether the requirement asks for the worse direction."""
    remarks = [_interval_remark(requirement, number), _bounds_remark(requirement, number), number.remark]
    if better is not None and requirement.op != "==" and requirement.op.startswith(">") is not better:
        remarks.append(
            f"{'higher' if better else 'lower'} is better for {requirement.metric}, but this asks for the opposite"
        )
    return "; ".join(filter(None, remarks)) or None


def _bounds_remark(requirement: Requirement, number: Number) -> str | None:
    """A remark if the missing rollouts could change the answer."""
    if number.bounds is None or requirement.end is not None or requirement.delta:
        return None
    # the value may be outside the bounds: it leaves out undefined tasks, which the bounds include
    observed = [] if number.value is None else [number.value]
    if len({requirement.met(value) for value in (*number.bounds, *observed)}) == 1:
        return None
    low, high = (figure(end) for end in number.bounds)
    return f"the missing rollouts may decide the answer: the value is {low} to {high} depending on them"


def _unmet_remark(missing: Missing, ends: tuple[float, float]) -> str:
    """The remark on a requirement that the value meets, and that no outcome of the missing rollouts lets it meet."""
    low, high = (figure(end) for end in sorted(ends))
    return f"{missing.are} missing, and no outcomes of theirs meet it: with them the value is {low} to {high}"


def _interval_remark(requirement: Requirement, number: Number) -> str | None:
    """A remark if the interval includes values with the other answer; for a difference without one, the reason."""
    if requirement.end is not None or number.interval is None or requirement.op == "==":
        return number.why if requirement.delta and number.interval is None else None
    if len({requirement.met(end) for end in number.interval}) == 1:
        return None
    return "the interval contains both answers"


def _too_many_gaps(part: GateGroup | GateSlice, most: Gaps | None, suffix: str) -> str | None:
    """The message that more rollouts are missing than allowed; None if not. ``suffix`` names the baseline."""
    ledger = part.ledger
    if most is None or most.allow(ledger.gaps, ledger.planned):
        return None
    missing = f"{ledger.gaps:,} of {ledger.planned:,} rollouts{suffix} {is_or_are(ledger.gaps)} missing"
    return f"{missing}, and at most {most} may be"


def _known_slices(requirement: Requirement, group: GateGroup) -> str:
    known = list(group.breakdowns.get(requirement.by or "", ()))
    return f"there are {', '.join(known[:8])}{', …' if len(known) > 8 else ''}" if known else "there are none"


def _unreadable(requirement: Requirement, named: NamedResult, why: str) -> Check:
    group = requirement.agent, requirement.model, requirement.dataset
    return Check(
        requirement.text, requirement.tier, named.name, *group, "undefined",
        op=requirement.op, number=requirement.number, why=why,
    )  # fmt: skip
