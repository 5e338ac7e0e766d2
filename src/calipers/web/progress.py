"""How far a run has come that is still going, and what is known of its number so far."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from calipers.formats.run_folder import is_run
from calipers.rollouts.column import Column, total
from calipers.rollouts.record import CODE
from calipers.rollouts.table import Rollouts
from calipers.stats.sequence import finite

LOCK = ".lock"  # of a run's folder
LOCKS = "/proc/locks"  # what Linux knows of who holds which file


@dataclass(frozen=True, slots=True)
class RunProgress:
    """A run that is still going. The value is over the tasks, in planned order, up to the first that is not complete.

    Only those count: tasks that finish early are easier, or harder, than the others.
    """

    finished: int  # rollouts
    planned: int
    value: float | None = None  # the mean reward
    interval: tuple[float, float] | None = None  # holds the number that the run will end with, at any time


def is_running(folder: str) -> bool:
    """Whether a process holds a run's folder, by the system's table of locks; False where there is none."""
    try:
        inode = os.stat(os.path.join(folder, LOCK)).st_ino
        with open(LOCKS) as file:
            return any(f":{inode} " in line for line in file if "FLOCK" in line)
    except OSError:
        return False


def progress_of(path: str, table: Rollouts, numbers: Column, confidence: float) -> RunProgress | None:
    """How far the run in a folder has come; None for one that is not going, or is no run.

    ``numbers`` is what each of its R rollouts contributes, what is missing a gap.
    """
    if not is_run(path) or not is_running(path):
        return None
    return progress_in(table, numbers, confidence)


def progress_in(table: Rollouts, numbers: Column, confidence: float) -> RunProgress | None:
    """As `progress_of`, of a table with a row for each planned rollout; None where all of them have finished."""
    waiting = table.outcome == CODE["not_run"]
    finished = int((~waiting).sum())
    if finished == len(table):
        return None
    tasks = len(table.tasks)
    order = np.arange(tasks) if table.turn is None else np.argsort(table.turn, kind="stable")
    complete = (np.bincount(table.task[waiting], minlength=tasks) == 0)[order]
    prefix = order[: int(np.argmin(complete)) if not complete.all() else tasks]
    given = np.bincount(table.task[numbers.given], minlength=tasks)
    sums = np.bincount(table.task, weights=np.where(numbers.given, numbers.values, 0.0), minlength=tasks)
    settled = prefix[given[prefix] > 0]
    if not len(settled):
        return RunProgress(finished, len(table))
    means = sums[settled] / given[settled]
    value = float(total(means)) / len(settled)
    if not np.isfinite(value):
        return RunProgress(finished, len(table))
    kept = numbers.kept()
    if not bool(((kept >= 0) & (kept <= 1)).all()):
        return RunProgress(finished, len(table), value)
    planned = tasks - (len(prefix) - len(settled))
    amount = min(max(float(total(means)), 0.0), float(len(settled)))
    return RunProgress(finished, len(table), value, finite(amount, len(settled), planned, confidence))
