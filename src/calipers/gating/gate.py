"""A gate: results in, requirements held against them, one answer out. It never opens for what nobody knows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from calipers.comparison.question import metric_key
from calipers.errors import CalipersError, InputError, UnknownName
from calipers.gating.answers import Answers, Scoring, answers, with_filled
from calipers.gating.decided import Missing, at_ends, decided, lacking, of_difference, undecided
from calipers.gating.differences import Differences, differences
from calipers.gating.groups import Cut, Group, Number
from calipers.gating.policy import Gaps, Named, Policy
from calipers.gating.requirement import Requirement
from calipers.gating.slices import of_every, of_weakest
from calipers.gating.worst import BOTTOM, TOP, at_end, worst_of
from calipers.reports.figures import figure
from calipers.reports.gate import Check, Gate, Word
from calipers.stats.missing import MOST_MISSING

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
            found, apart = _found(named, asked, settings, policy.max_gaps)
        except UnknownName:
            raise
        except CalipersError as error:
            if alone:
                raise
            checks += [_unread(one, named, str(error)) for one in asked]
            continue
        notes += [*found.notes, *(apart.notes if apart else ())]
        if not all(one.worst or one.missing for one in asked):
            notes += [*_warnings(named.name, found), *(_warnings("the baseline", apart.before) if apart else ())]
        for one in asked:
            checks += _checks(one, named, found, apart, policy.max_gaps)
    return Gate(checks, policy.allowed_failures, list(dict.fromkeys(notes)))


def _found(
    named: Named, asked: Sequence[Requirement], scoring: Scoring, most: Gaps | None
) -> tuple[Answers, Differences | None]:
    by = list(dict.fromkeys(one.by for one in asked if one.by))
    moved = [one for one in asked if one.delta]
    if moved and named.baseline is None:
        raise InputError(f"{moved[0].text!r} needs something to be compared with; expected --baseline PATH")
    metrics = list(dict.fromkeys(one.metric for one in asked if not one.missing))
    found = answers(named.path, metrics, by, scoring)
    if not found.document and any(one.worst and not one.delta for one in asked):
        found = with_filled(found, metrics, by, scoring, BOTTOM)
    ends = any(one.end and not (one.delta or one.worst) for one in asked)
    if ends and not found.once and not found.zero and lacking(found, most):
        found = with_filled(found, metrics, by, scoring, BOTTOM, TOP)
    if not moved or named.baseline is None:
        return found, None
    wanted = list(dict.fromkeys(one.metric for one in moved))
    sliced = list(dict.fromkeys(one.by for one in moved if one.by))
    worst, shown = any(one.worst for one in moved), any(one.end for one in moved)

    def filled(before: Answers) -> bool:
        return worst or (shown and not found.zero and (lacking(found, most) or lacking(before, most)))

    return found, differences(named.path, named.baseline, wanted, sliced, scoring, filled)


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
    if wanted.every or wanted.weakest:
        return _of_slices(wanted, named, group, found, most)
    part, number = _number(wanted, group, found)
    start = _start(wanted, named, group, part)
    better = number.better if number else None
    if wanted.worst and part is not None and number is not None:
        number = _worst(wanted, part, number, group, found)
    if wanted.delta and apart is not None:
        number = apart.of(group, wanted, number)
    if part is None or number is None:
        return replace(start, why=f"there is no slice {wanted.by}={wanted.slice}; {_slices(wanted, group)}")
    tasks = None if wanted.missing else number.tasks
    start = replace(start, estimate=_finite(number.value), interval=number.interval, tasks=tasks)
    if number.interval is not None:
        start = replace(start, confidence=found.confidence)
    too_many = _gaps(part, most, "")
    if too_many is None and wanted.delta and apart is not None:
        too_many = _gaps(apart.counterpart(group), most, " of the baseline")
    value, why = _value(wanted, number)
    if value is None:
        return replace(start, why=too_many or why)
    word: Word = "passed" if wanted.met(value) else "failed"
    missing = None
    if (most is None or too_many) and not (wanted.missing or wanted.worst or found.zero):
        missing = _missing(wanted, group, part, number, found, apart)
    if missing is None:
        if too_many:
            return replace(start, why=too_many)
        return replace(start, value=value, word=word, remark=_remark(wanted, number, word, better))
    word, why = decided(wanted, word, missing, too_many)
    if why is not None:
        return replace(start, why=why)
    return replace(start, value=value, word=word, remark=_remark(wanted, number, word, better))


def _missing(
    wanted: Requirement, group: Group, part: Group | Cut, number: Number, found: Answers, apart: Differences | None
) -> Missing | None:
    """What is missing of what a requirement is about; None where nothing is."""
    if wanted.delta and apart is not None:
        return of_difference(wanted, group, number, apart)

    def twin(end: int) -> Number | None:
        filled = found.filled.get(end, {}).get(group.who)
        return None if filled is None else _held(wanted, filled)

    return at_ends(wanted, part, number, None if found.once else twin, found.unknown.get(wanted.key))


def _start(wanted: Requirement, named: Named, group: Group, part: Group | Cut | None) -> Check:
    return Check(
        wanted.text, wanted.tier, named.name, *group.who, "undefined", op=wanted.op, number=wanted.number,
        planned=part.ledger.planned if part else None, gaps=part.ledger.gaps if part else None,
    )  # fmt: skip


def _of_slices(wanted: Requirement, named: Named, group: Group, found: Answers, most: Gaps | None) -> Check:
    """What every slice, or the worst task, comes to."""
    start, slices = _start(wanted, named, group, group), _slices_by(wanted, group, found)
    if (too_many := _gaps(group, most, "")) is not None:
        return replace(start, why=too_many)
    if wanted.weakest:
        seen = of_weakest(wanted, group, start, found.confidence)
        if most is not None or found.zero or seen.value is None or not group.ledger.gaps:
            return seen
        ends = [of_weakest(wanted, group, start, found.confidence, fill) for fill in (0, 1)]
        return undecided(seen, ends, group)
    allowed = None if most is None else Gaps(1.0, share=True)  # so many are missing of the group that none decides it
    each = {name: _check(replace(wanted, slice=name), named, group, found, None, allowed) for name in slices}
    return of_every(wanted, start, each)


def _slices_by(wanted: Requirement, group: Group, found: Answers) -> Mapping[str, Cut]:
    """The slices of a key; UnknownName where the result has none by it."""
    if wanted.by not in group.breakdowns:
        hint = "" if group.breakdowns else f"it has no slices: expected a result of calipers score --by {wanted.by}"
        raise UnknownName.of(f"slices in {found.path}", wanted.by or "", group.breakdowns, hint)
    return group.breakdowns[wanted.by]


def _worst(wanted: Requirement, part: Group | Cut, number: Number, group: Group, found: Answers) -> Number:
    """The number with every missing rollout at its worse end."""
    if found.document or BOTTOM not in found.filled:  # or a difference that is not paired
        return at_end(number, part, worse=True)
    twin = found.filled[BOTTOM].get(group.who)
    return worst_of(wanted, part, number, found.unknown, None if twin is None else _held(wanted, twin))


def _held(wanted: Requirement, group: Group) -> Number | None:
    """A metric of a group, or of one slice of it; None where there is none of the name."""
    numbers: Mapping[str, Number] = group.numbers()
    if wanted.by is not None:
        cut = group.breakdowns.get(wanted.by, {}).get(wanted.slice or "")
        numbers = cut.metrics if cut else {}
    return next((one for name, one in numbers.items() if metric_key(name) == wanted.key), None)


def _warnings(name: str, found: Answers) -> list[str]:
    """A warning for each group that lacks more of its rollouts than can be passed over in silence."""
    said = []
    for group in found.groups:
        gaps, planned = group.ledger.gaps, group.ledger.planned
        if planned and gaps / planned > MOST_MISSING:
            whose = f"{name} ({group.title})" if len(found.groups) > 1 else name
            share = f"{100 * gaps / planned:.3g} % of the rollouts of {whose} are missing ({gaps:,} of {planned:,})"
            said.append(f"warning: {share}: which ones may decide a requirement, unless it says worst(...)")
    return said


def _number(wanted: Requirement, group: Group, found: Answers) -> tuple[Group | Cut | None, Number | None]:
    """Where a metric stands, and what it says; UnknownName for one that the result does not have."""
    part: Group | Cut | None = group
    if wanted.by is not None:
        part = _slices_by(wanted, group, found).get(wanted.slice or "")
        if part is None:
            return None, None
    if wanted.missing and part is not None:
        ledger = part.ledger
        return part, Number(ledger.gaps / ledger.planned) if ledger.planned else Number(None, why="nothing was planned")
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
    shown = [] if number.value is None else [number.value]  # without undefined tasks, which the bounds include
    if len({wanted.met(end) for end in (*number.bounds, *shown)}) == 1:
        return None
    low, high = (figure(end) for end in number.bounds)
    return f"the missing rollouts may decide it: {low} to {high}, whatever they are"


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
