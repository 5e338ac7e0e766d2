"""A gate: results in, requirements held against them, one answer out. It never opens for what nobody knows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from calipers.errors import CalipersError, InputError, UnknownName
from calipers.gating.answers import Answers, Scoring, answers
from calipers.gating.differences import Differences, differences
from calipers.gating.groups import Cut, Group, Number
from calipers.gating.policy import Gaps, Named, Policy
from calipers.gating.requirement import Requirement, metric_key
from calipers.reports.figures import figure
from calipers.reports.gate import Check, Gate, Word

GROUP = ("agent", "model", "dataset")


def gate(policy: Policy, scoring: Scoring | None = None, *, alone: bool = False) -> Gate:
    """Hold every requirement of a policy against the groups of the results it is asked of.

    A requirement without a group is asked of each. With several results one that cannot be read leaves its
    requirements undefined, and the others are answered; ``alone``, it is an error.
    """
    settings = scoring or Scoring()
    checks: list[Check] = []
    notes: list[str] = []
    for named in policy.results:
        asked = [one for one in policy.requirements if one.of in (None, named.name)]
        if not asked:
            notes.append(f"nothing is required of {named.name}")
            continue
        try:
            found, apart = _found(named, asked, settings)
        except UnknownName:
            raise
        except CalipersError as error:
            if alone:
                raise
            checks += [_unread(one, named, str(error)) for one in asked]
            continue
        notes += [*found.notes, *(apart.notes if apart else ())]
        for one in asked:
            checks += _checks(one, named, found, apart, policy.max_gaps)
    return Gate(checks, policy.allowed_failures, list(dict.fromkeys(notes)))


def _found(named: Named, asked: Sequence[Requirement], scoring: Scoring) -> tuple[Answers, Differences | None]:
    by = list(dict.fromkeys(one.by for one in asked if one.by))
    moved = [one for one in asked if one.delta]
    if moved and named.baseline is None:
        raise InputError(f"{moved[0].text!r} needs something to be compared with; expected --baseline PATH")
    metrics = list(dict.fromkeys(one.metric for one in asked))
    found = answers(named.path, metrics, by, scoring)
    if not moved or named.baseline is None:
        return found, None
    wanted = list(dict.fromkeys(one.metric for one in moved))
    sliced = list(dict.fromkeys(one.by for one in moved if one.by))
    return found, differences(named.path, named.baseline, wanted, sliced, scoring)


def _checks(
    wanted: Requirement, named: Named, found: Answers, apart: Differences | None, most: Gaps | None
) -> list[Check]:
    return [_check(wanted, named, group, found, apart, most) for group in _groups(wanted, found)]


def _groups(wanted: Requirement, found: Answers) -> list[Group]:
    """The groups a requirement is asked of; UnknownName where none is meant."""
    groups = list(found.groups)
    for key in GROUP:
        name = getattr(wanted, key)
        if name is not None:
            known = [held for group in groups if (held := getattr(group, key)) is not None]
            groups = [group for group in groups if getattr(group, key) == name]
            if not groups:
                raise UnknownName.of(f"{key} in {found.path}", name, known)
    return groups


def _check(
    wanted: Requirement, named: Named, group: Group, found: Answers, apart: Differences | None, most: Gaps | None
) -> Check:
    part, number = _number(wanted, group, found)
    start = Check(
        wanted.text, wanted.tier, named.name, *group.who, "undefined", op=wanted.op, number=wanted.number,
        planned=part.ledger.planned if part else None, gaps=part.ledger.gaps if part else None,
    )  # fmt: skip
    better = number.better if number else None
    if wanted.delta and apart is not None:
        number = apart.of(group, wanted, number)
    if part is None or number is None:
        return replace(start, why=f"there is no slice {wanted.by}={wanted.slice}; {_slices(wanted, group)}")
    start = replace(start, estimate=_finite(number.value), interval=number.interval, tasks=number.tasks)
    if number.interval is not None:
        start = replace(start, confidence=found.confidence)
    if (too_many := _gaps(part, most, "")) is not None:
        return replace(start, why=too_many)
    value, why = _value(wanted, number)
    if value is None:
        return replace(start, why=why)
    if most is not None and wanted.delta and apart is not None:
        lost = _gaps(apart.counterpart(group), most, " of the baseline")
        if lost is not None:
            return replace(start, why=lost)
    word: Word = "passed" if wanted.met(value) else "failed"
    return replace(start, value=value, word=word, remark=_remark(wanted, number, word, better))


def _number(wanted: Requirement, group: Group, found: Answers) -> tuple[Group | Cut | None, Number | None]:
    """Where a metric stands, and what it says; UnknownName for one that the result does not have."""
    part: Group | Cut | None = group
    if wanted.by is not None:
        if wanted.by not in group.breakdowns:
            hint = "" if group.breakdowns else f"it has no slices: expected a result of calipers score --by {wanted.by}"
            raise UnknownName.of(f"slices in {found.path}", wanted.by, group.breakdowns, hint)
        part = group.breakdowns[wanted.by].get(wanted.slice or "")
        if part is None:
            return None, None
    held = part.numbers() if isinstance(part, Group) else part.metrics if part else {}
    number = next((one for name, one in held.items() if metric_key(name) == wanted.key), None)
    if number is None:
        number = found.of_table(group, wanted)
    if number is None:
        raise UnknownName.of(f"metric in {found.path}", wanted.metric, [*held, *found.known])
    return part, number


def _value(wanted: Requirement, number: Number) -> tuple[float | None, str | None]:
    """What is held against the number; or why there is none."""
    if _finite(number.value) is None:
        return (
            None,
            f"{'the difference' if wanted.delta else 'the value'} is null: {number.why or 'no reason is given'}",
        )
    if wanted.end is None:
        return number.value, None
    if number.interval is None:
        return None, f"there is no interval: {number.why or 'no reason is given'}"
    return number.interval[wanted.end == "upper"], None


def _remark(wanted: Requirement, number: Number, word: Word, better: bool | None) -> str | None:
    """What is not sure about an answer, and whether the wrong end of a metric may have been meant."""
    said = [_unsure(wanted, number, word), _gaps_decide(wanted, number), number.remark]
    if better is not None and wanted.op != "==" and wanted.op.startswith(">") is not better:
        said.append(f"{'higher' if better else 'lower'} is better of {wanted.metric}, and this asks for the contrary")
    return "; ".join(filter(None, said)) or None


def _gaps_decide(wanted: Requirement, number: Number) -> str | None:
    """That the rollouts without a number could have turned the answer, where they could."""
    if number.bounds is None or wanted.end is not None or wanted.delta:
        return None
    if len({wanted.met(end) for end in number.bounds}) == 1:
        return None
    low, high = (figure(end) for end in number.bounds)
    return f"the gaps may decide it: {low} to {high} whatever they hold"


def _unsure(wanted: Requirement, number: Number, word: Word) -> str | None:
    """What is not sure about an answer that was asked of the value alone."""
    if wanted.end is not None or number.interval is None or wanted.op == "==":
        return number.why if wanted.delta and number.interval is None else None
    sides = [wanted.met(end) for end in number.interval]
    if all(side == (word == "passed") for side in sides):
        return None
    return "the interval holds both answers"


def _gaps(part: Group | Cut, most: Gaps | None, whose: str) -> str | None:
    ledger = part.ledger
    if most is None or most.allow(ledger.gaps, ledger.planned):
        return None
    return f"{ledger.gaps:,} of {ledger.planned:,} rollouts{whose} are gaps, and at most {most} may be"


def _slices(wanted: Requirement, group: Group) -> str:
    known = list(group.breakdowns.get(wanted.by or "", ()))
    return f"there are {', '.join(known[:8])}{', …' if len(known) > 8 else ''}" if known else "there are none"


def _unread(wanted: Requirement, named: Named, why: str) -> Check:
    return Check(
        wanted.text, wanted.tier, named.name, wanted.agent, wanted.model, wanted.dataset, "undefined",
        op=wanted.op, number=wanted.number, why=why,
    )  # fmt: skip


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
