"""What is required of every task, or of every slice, and of the task that does worst."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from calipers.comparison.question import metric_key
from calipers.gating.groups import Group
from calipers.gating.requirement import TASK, Requirement
from calipers.reports.figures import counted, figure
from calipers.reports.gate import Check, Word
from calipers.stats.binomial_test import below
from calipers.stats.multiplicity import holm

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
        return replace(start, why=f"there is no {_noun(wanted)}")
    word: Word = "failed" if failed else "undefined" if lost else "passed"
    worst = min(there, key=lambda check: _margin(wanted, check.value or 0.0), default=None)
    said = []
    if failed:
        shown = [f"{name} ({figure(check.value)})" for name, check in failed.items()]
        said.append(f"{len(failed):,} of {_count(wanted, len(checks))} fail: {_listed(shown)}")
    why = None
    if lost:
        first = next(iter(lost.values()))
        why = f"{len(lost):,} of {_count(wanted, len(checks))} cannot be answered: {_listed(list(lost))} ({first.why})"
    return replace(
        start,
        word=word,
        value=worst.value if worst and word != "undefined" else None,
        estimate=worst.estimate if worst else None,
        interval=worst.interval if worst else None,
        confidence=worst.confidence if worst else None,
        tasks=None if wanted.missing else sum(check.tasks or 0 for check in checks.values()),
        why=why if word == "undefined" else None,
        remark="; ".join(filter(None, [*said, why if failed else None])) or None,
        failing=list(failed),
    )


def of_weakest(
    wanted: Requirement, group: Group, start: Check, confidence: float | None, fill: int | None = None
) -> Check:
    """Whether some task has been shown to pass less often than it should; the value is the lowest rate of a task.

    For each task the exact binomial p of so few passes in its samples, were its rate what is required; by Holm over
    all tasks a gate whose tasks are all good fails with a chance of at most 1 - confidence. ``fill`` takes every
    missing rollout for a pass (1) or for none (0).
    """
    alpha = 1 - (CONFIDENCE if confidence is None else confidence)
    rates: dict[str, tuple[int, int]] = {}
    for name, cut in group.breakdowns[TASK].items():
        number = next((one for text, one in cut.metrics.items() if metric_key(text) == wanted.key), None)
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
    shown = [place for place in order if adjusted[place] <= alpha]
    over = f"Holm over {counted(len(names), 'task')}"
    if shown:
        some = [f"{names[at]} ({passes[at]:,} of {samples[at]:,}, p {adjusted[at]:.2g})" for at in shown]
        remark = f"{_count(wanted, len(shown))} shown to be below {wanted.number:g} ({over}): {_listed(some)}"
    else:
        least = float(holm(below(np.zeros_like(samples), samples, wanted.number)).min())
        remark = f"no task has been shown to be below {wanted.number:g} ({over}, smallest p {adjusted[order[0]]:.2g})"
        if least > alpha:
            remark += "; with so few samples no task could have been, not even one without a pass"
    if unknown := len(group.breakdowns[TASK]) - len(names):
        remark += f"; {_count(wanted, unknown)} without a value"
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


def _noun(wanted: Requirement) -> str:
    return "task" if wanted.by == TASK else f"slice by {wanted.by}"


def _count(wanted: Requirement, number: int) -> str:
    """``60 tasks``, ``3 slices by level``."""
    return counted(number, "task") if wanted.by == TASK else f"{counted(number, 'slice')} by {wanted.by}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (", …" if len(names) > NAMED else "")
