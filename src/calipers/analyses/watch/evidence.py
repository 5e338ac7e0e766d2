"""The rollouts that show an alarm best, and the command that looks closer at it."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from typing import Any, Final

import numpy as np

from calipers.analyses.watch.alarm import DIVERGE, DROP, MEAN, RATE, RISE, SHARE, Alarm
from calipers.analyses.watch.monitor import Raised
from calipers.analyses.watch.sums import LABELS
from calipers.errors import InputError
from calipers.formats.format import Named
from calipers.formats.read import begin
from calipers.rollouts.column import Column, Floats
from calipers.rollouts.labels import STEP, has, slices
from calipers.rollouts.ledger import contributed
from calipers.rollouts.record import FIRST_GAP, OUTCOMES, STOPPED_EARLY, label
from calipers.rollouts.table import Rollouts

SHOWN: Final = 5
LONGEST: Final = 120  # characters of a task's name


def closer(raised: Raised, alarm: Alarm, columns: Named | None, root: str) -> tuple[list[dict[str, Any]], str]:
    """The five rollouts of the last step that show an alarm best, and a command; none where its file is gone."""
    command = command_of(raised, alarm)
    if alarm.across:  # its rollouts are the held-out ones
        alarm = replace(alarm, kind=DROP, what=alarm.other)
    try:
        part = _rollouts(raised.path, columns, raised.step)
        score = _shows(part, alarm, raised, columns)
    except (InputError, OSError):
        return [], command
    order = np.argsort(-score.values, kind="stable")
    order = order[score.given[order]]
    picked, seen = [], set[int]()
    for row in order.tolist():  # one of each task
        if int(part.task[row]) not in seen:
            seen.add(int(part.task[row]))
            picked.append(row)
        if len(picked) == SHOWN:
            break
    shown = [
        {
            "task": str(part.tasks[int(part.task[row])])[:LONGEST],
            "sample": int(part.sample[row]),
            "outcome": OUTCOMES[int(part.outcome[row])],
            "value": _value(part, alarm, row),
            "path": os.path.relpath(raised.path, root) if root else raised.path,
        }
        for row in picked
    ]
    return shown, command


def command_of(raised: Raised, alarm: Alarm) -> str:
    """The command that looks closer at an alarm."""
    now, before = (shlex.quote(path) for path in (raised.path, raised.base_path))
    match alarm.kind:
        case "drop" | "rise" if raised.base_path:
            return f"calipers compare {before} {now}"
        case "rate":
            return f"calipers score {now} --by outcome"
        case "mean":
            return f"calipers score {now} --metric {shlex.quote(f'mean(column={alarm.what})')} --by task"
        case "share":
            return f"calipers items {now}"
    return f"calipers score {now} --by task"


def _rollouts(path: str, columns: Named | None, step: int) -> Rollouts:
    rollouts, _ = begin([path], columns=columns or Named({}), labels=LABELS)
    part = next(iter(rollouts.groups()))
    if has(part, STEP):
        code, names = slices(part, STEP, label)
        if len(names) > 1 and str(step) in names:
            return part.where(code == names.index(str(step)))
    return part


def _column(part: Rollouts, what: str) -> Column:
    name = what if what in part.rewards or what in part.columns else part.usual_reward or next(iter(part.rewards), "")
    return contributed(part, name) if name in part.rewards or name not in part.columns else part.columns[name]


def _shows(part: Rollouts, alarm: Alarm, raised: Raised, columns: Named | None) -> Column:
    """How well each rollout shows an alarm, [R]; a gap where it does not."""
    if alarm.kind == RATE:
        gaps = (part.outcome >= FIRST_GAP) & (part.outcome < STOPPED_EARLY)
        marked = gaps if alarm.what == "missing" else part.outcome == OUTCOMES.index(alarm.what)
        return Column(np.ones(len(part)), marked)
    if alarm.kind == MEAN:
        return _column(part, alarm.what)
    if alarm.kind == DIVERGE:
        first, second = _column(part, alarm.what), _column(part, alarm.other)
        return Column(first.values - second.values, first.given & second.given)
    reward = _column(part, alarm.what)
    by = part.by_task
    mean = np.divide(by.sum(reward), np.maximum(by.count(reward.given), 1))
    if alarm.kind == SHARE:
        spread = np.abs(np.where(reward.given, reward.values, mean[part.task]) - mean[part.task])
        most = np.zeros(len(part.tasks))
        np.maximum.at(most, part.task, spread)
        return Column(-mean[part.task], (most[part.task] == 0) & reward.given)
    sign = -1.0 if alarm.kind == DROP else 1.0
    change = _change(part, mean, alarm, raised, columns) if alarm.kind in (DROP, RISE) else mean
    # the task that changed most, and of it the worst rollout
    return Column(sign * (1e6 * np.round(change, 9)[part.task] + reward.values), reward.given)


def _change(part: Rollouts, mean: Floats, alarm: Alarm, raised: Raised, columns: Named | None) -> Floats:
    """How much each task changed since the step before the change, [T]; its mean where that step is not readable."""
    if not raised.base_path:
        return mean
    try:
        before = _rollouts(raised.base_path, columns, raised.since - 1)
    except (InputError, OSError):
        return mean
    reward = _column(before, alarm.what)
    by = before.by_task
    old = np.divide(by.sum(reward), np.maximum(by.count(reward.given), 1))
    known = dict(zip(before.tasks, old.tolist(), strict=True))
    if not any(task in known for task in part.tasks):
        return mean
    return np.array([mean[at] - known.get(task, mean[at]) for at, task in enumerate(part.tasks)])


def _value(part: Rollouts, alarm: Alarm, row: int) -> float | None:
    column = _column(part, alarm.what)
    return float(column.values[row]) if alarm.kind != RATE and column.given[row] else None
