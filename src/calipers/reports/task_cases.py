"""The tasks of a score as test cases, for JUnit: a task passes if all of its rollouts do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from calipers.metrics.metric import PASS_THRESHOLD
from calipers.reports.junit import Case, Suite
from calipers.reports.result import Group, Result
from calipers.rollouts.column import Column
from calipers.rollouts.ledger import contributed
from calipers.rollouts.part import Part
from calipers.rollouts.record import OUTCOMES, SCORED
from calipers.rollouts.table import Rollouts, assemble


def task_suites(result: Result, parts: Sequence[Part]) -> list[Suite]:
    """A suite for each group, a case for each task and reward.

    A task fails if a rollout has a number that is no pass. One whose rollouts are missing is an error, never a
    failure: nothing is known of it.
    """
    tables = {tuple(table.keys[0]): table for table in assemble(parts).groups()}
    suites = []
    for group in result.groups:
        table = tables.get((group.agent, group.model, group.dataset))
        if table is not None:
            name = group.title or "score"
            suites.append(Suite(name, [case for key in _rewards(group) for case in _cases(table, key, name)]))
    return suites


def _rewards(group: Group) -> list[str]:
    """The rewards that the numbers of a group are of."""
    settings = (setting for estimate in group.metrics.values() for setting in estimate.made.settings)
    return list(dict.fromkeys(each.removeprefix("reward:") for each in settings if each.startswith("reward:")))


def _cases(table: Rollouts, key: str, suite: str) -> Iterator[Case]:
    numbers, seconds = contributed(table, key), table.columns.get("latency_s")
    ends = np.searchsorted(table.task, np.arange(len(table.tasks) + 1))
    name = "" if key == "reward" else f" ({key})"
    for task, (start, end) in enumerate(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)):
        rows = slice(start, end)
        yield _case(f"{table.tasks[task]}{name}", suite, numbers.take(rows), table.outcome[rows], _sum(seconds, rows))


def _sum(seconds: Column | None, rows: slice) -> float | None:
    if seconds is None or not seconds.given[rows].any():
        return None
    return float(seconds.take(rows).kept().sum())


def _case(name: str, suite: str, numbers: Column, outcome: np.ndarray, seconds: float | None) -> Case:
    values = numbers.kept()
    passed, missing = int((values >= PASS_THRESHOLD).sum()), len(numbers) - len(values)
    words = _words(outcome)
    message = f"{passed} of {len(values)} rollouts passed" + (f"; {missing} missing" if missing else "")
    message += f" ({words})" if words else ""
    if passed < len(values):
        return Case(name, suite, "failure", message, words or "scored", seconds)
    if missing or not len(numbers):
        return Case(name, suite, "error", message, "missing", seconds)
    return Case(name, suite, seconds=seconds)


def _words(outcome: np.ndarray) -> str:
    """The outcomes of a task's rollouts but for those that were scored, with their counts."""
    counts = np.bincount(outcome, minlength=len(OUTCOMES)).tolist()
    return ", ".join(
        f"{word} {n}" for code, (word, n) in enumerate(zip(OUTCOMES, counts, strict=False)) if n and code != SCORED
    )
