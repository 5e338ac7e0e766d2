"""A number with every missing rollout at its worse end: from rollouts filled and scored again, or by its bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from calipers.comparison.missing import NO_RANGE, ends_of, filled_rollouts, no_filling, within_range
from calipers.comparison.question import metric_key
from calipers.dialects.reads import per_reward
from calipers.errors import InputError
from calipers.gating.groups import Cut, Group, Number
from calipers.gating.requirement import Requirement
from calipers.pipeline import read, score_rollouts
from calipers.plan import make_plan
from calipers.readers.files import STDIN
from calipers.reports.result import Result
from calipers.rollouts.ledger import contributed

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


def at_end(number: Number, part: Group | Cut, *, worse: bool) -> Number:
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
    wanted: Requirement, part: Group | Cut, number: Number, unknown: Mapping[Key, str], twin: Number | None
) -> Number:
    """The worst of a number of rollouts: ``twin``, the same number of the filled ones, where filling says something."""
    why = unknown.get(wanted.key) or (NO_BOUNDS if twin is None else None)
    if why is None and twin is not None:
        return twin
    return number if not part.ledger.gaps else Number(None, why=why, tasks=number.tasks)
