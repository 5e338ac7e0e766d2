"""How far a result is from its baseline, group by group: paired on their common tasks where both are rollouts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from calipers.analyses.compare.document import common, names_of
from calipers.analyses.compare.question import metric_key
from calipers.analyses.compare.result import Comparison, Contest, Pair, Run
from calipers.analyses.gate.numbers import (
    NO_BOUNDS,
    GateGroup,
    GateNumbers,
    GateScoring,
    Number,
    answers,
    at_end,
    is_document,
)
from calipers.analyses.gate.requirement import Requirement
from calipers.errors import InputError, UnknownName
from calipers.metrics.metric import UNIT
from calipers.reports.figures import counted
from calipers.stats.margins import margin_ends, margin_method, p_at_margin, too_few
from calipers.stats.paired import Difference

UNPAIRED = "the difference of two finished results: not paired, so no interval"


@dataclass(frozen=True, slots=True)
class Differences:
    """What was found of a result less its baseline."""

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
            lambda one: one.who == group.who,
            lambda one: (one.dataset, one.agent) == (group.dataset, group.agent),
            lambda one: one.dataset == group.dataset,
            lambda one: True,
        ):
            found = [one for one in those if same(one)]
            if len(found) == 1:
                return found[0]
        held = ", ".join(one.title for one in those)
        raise InputError.at(self.before.path, f"which group {group.title} is to be compared with is not clear", held)

    def _before(self, group: GateGroup, wanted: Requirement) -> Number:
        """What the baseline says of a group."""
        held, cut = group.numbers(), None
        if wanted.by is not None:
            cut = group.breakdowns.get(wanted.by, {}).get(wanted.slice or "")
            if cut is None:
                return Number(None, why=f"there is no slice {wanted.by}={wanted.slice}")
            held = cut.metrics
        found = next((one for name, one in held.items() if metric_key(name) == wanted.key), None)
        if found is None:
            found = self.before.of_table(group, wanted)
        if found is None:
            raise UnknownName.of("metric in the baseline", wanted.metric, [*held, *self.before.known])
        return at_end(found, cut or group, worse=False) if wanted.worst else found

    def _paired(self, found: Comparison, group: GateGroup, wanted: Requirement) -> Number:
        measured = iter(found.differences)
        those = [
            (contest.runs[pair.first].name, pair, differences)
            for contest in found.contests
            for pair in contest.pairs
            for differences in [[next(measured) for _ in pair.findings]]
            if contest.runs[pair.first].source == self.before.path != contest.runs[pair.second].source
            and _same(contest.runs[pair.second], group)
        ]
        if not those:
            return Number(None, why=f"{group.title} shares no task with a run of the baseline")
        if len(those) > 1:
            names = ", ".join(name for name, *_ in those)
            wrong = f"holds several runs that {group.title} could be compared with ({names})"
            raise InputError.at(self.before.path, wrong, "expected a baseline with one of them")
        every = zip(those[0][1].findings, those[0][2], strict=True)
        findings = [(one, held) for one, held in every if (one.by, one.slice) == (wanted.by, wanted.slice)]
        for one, held in findings:
            if metric_key(one.metric) == wanted.key:
                if wanted.worst and any(one.missing) and one.bounds is None and one.delta is not None:
                    return Number(None, why=NO_BOUNDS, tasks=one.tasks)
                number = Number(
                    one.delta, one.interval, one.why, one.tasks, bounds=one.bounds, lacking=any(one.missing)
                )
                return _against(wanted, number, held, found.confidence)
        if wanted.by is not None and not findings:
            return Number(None, why=f"the runs share no task with {wanted.by}={wanted.slice}")
        raise UnknownName.of("metric in this comparison", wanted.metric, [one.metric for one, _ in findings])


def differences(
    path: str,
    baseline: str,
    metrics: Sequence[str],
    by: Sequence[str],
    scoring: GateScoring,
    filled: Callable[[GateNumbers], bool] = lambda before: False,
) -> Differences:
    """A result less its baseline, by these metrics and slices.

    Where ``filled`` says so of the baseline, they are compared twice more: the result's missing rollouts all failed and
    the baseline's all passed, and the other way round.
    """
    if is_document(path) or is_document(baseline):
        own = GateScoring() if is_document(baseline) else scoring
        return Differences(None, answers(baseline, metrics, by, own))
    from calipers.analyses.compare.compare import compare  # it loads much that no other requirement needs

    asked: dict[str, Any] = {"metric": list(metrics), "by": list(by), "adjust": "none", "flips": 0, **scoring.given()}
    found = compare(baseline, path, **asked)
    before = answers(baseline, metrics, by, scoring)
    both = None
    if filled(before):
        bottom, top = scoring.range or UNIT
        ends = (top, bottom), (bottom, top)
        both = compare(baseline, path, filled=ends[0], **asked), compare(baseline, path, filled=ends[1], **asked)
    notes = [
        note
        for contest in found.contests
        for pair in contest.pairs
        for note in (*_uncommon(contest, pair), *pair.notes)
    ]
    return Differences(found, before, [*found.notes, *notes], both)


def _against(wanted: Requirement, number: Number, found: Difference, confidence: float) -> Number:
    """The number a requirement is held against; for an end beyond 0, the end of the test of that margin.

    ``lower(delta(X)) >= -m`` says "no worse than m": a margin, whose test allows for losses not yet seen. The answer
    is that of the p at m itself, and the end, rounded, is put on the same side.
    """
    lower = wanted.end == "lower"
    beyond = wanted.number < 0 if lower else wanted.number > 0
    ends = margin_ends(found, confidence) if wanted.end is not None and beyond else None
    p = p_at_margin(found, abs(wanted.number), below=lower) if ends is not None else None
    if ends is None or p is None:
        return number
    alpha = (1 - confidence) / 2
    away, toward = math.nextafter(wanted.number, -math.inf), math.nextafter(wanted.number, math.inf)
    if lower:
        ends = (max(ends[0], toward) if p <= alpha else min(ends[0], away), ends[1])
    else:
        ends = (ends[0], min(ends[1], away) if p <= alpha else max(ends[1], toward))
    said = [
        f"a margin, tested by {margin_method(found)}: p {p:.2g}, {'at most' if p <= alpha else 'above'} {alpha:.4g}"
    ]
    needed = too_few(found, abs(wanted.number), 1 - alpha)
    if p > alpha and needed is not None:
        what = "loss" if lower else "gain"
        unit = "cluster" if found.evidence and found.evidence.clustered else "task"
        said.append(
            f"{counted(found.units, unit)} without any difference do not rule out a {what} of "
            f"{abs(wanted.number):g}: at least {needed:,} are needed"
        )
    return msgspec.structs.replace(number, interval=ends, remark="; ".join(said))


def _uncommon(contest: Contest, pair: Pair) -> list[str]:
    """Which tasks a difference is of, where these are not all tasks of both runs."""
    aligned = pair.alignment
    if aligned.by == "id" and not (aligned.only_first.count or aligned.only_second.count):
        return []
    names = names_of(contest.runs)
    return [f"differences are of {common(pair, (names[pair.first], names[pair.second]))}"]


def _known(number: Number, group: GateGroup) -> bool:
    """Whether it is known what missing rollouts make of a number, as none is missing or it has bounds."""
    return number.bounds is not None or not group.ledger.gaps


def _same(run: Run, group: GateGroup) -> bool:
    return (run.agent, run.model, run.dataset) == group.who
