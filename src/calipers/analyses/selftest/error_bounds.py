"""How far a score moves if its verifier is wrong where ``calipers check --selftest`` found it wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from calipers.errors import InputError
from calipers.pipeline import read, score
from calipers.reports.figures import counted
from calipers.reports.result import Result, Slice
from calipers.request import make_plan
from calipers.rollouts.column import Column
from calipers.rollouts.table import Rollouts

KEY = "verifier_errors"


def with_error_bounds(
    result: Result,
    paths: Sequence[str | os.PathLike[str]],
    check: str,
    metrics: Sequence[str] | None,
    settings: Mapping[str, Any],
    columns: Mapping[str, str] | None = None,
) -> Result:
    """The result with bounds for a verifier that is wrong on the tasks that a self-test names.

    ``check`` is the JSON of ``calipers check BENCHMARK --selftest``. Where a wrong answer passes, every pass of the
    task may be false: the rewards are 0 for the lower bound. Where the gold answer fails, every failure may be: they
    are 1 for the upper bound. The ends are those of the intervals of both, so that sampling error is in them.
    """
    accepts, refuses = _suspicious(check)
    known = {key: value for key, value in settings.items() if key != "truth"}
    labels = make_plan(metrics or None, **known).labels
    given = [os.fspath(path) for path in paths]
    table = read(given, columns=columns, truth=settings.get("truth"), labels=labels)
    low, high = (
        score(_filled(table, tasks, worth), metrics or None, **known)
        for tasks, worth in ((accepts, 0.0), (refuses, 1.0))
    )
    tasks = set(table.tasks)
    here = {"wrong answer passes": sorted(accepts & tasks), "gold answer fails": sorted(refuses & tasks)}
    groups, notes = [], []
    for group, lower, upper in zip(result.groups, low.groups, high.groups, strict=True):
        bounds = {name: _ends(name, (group, lower, upper)) for name in group.metrics}
        groups.append({"agent": group.agent, "model": group.model, "dataset": group.dataset, "bounds": bounds})
        title = f"{group.title}: " if len(result.groups) > 1 else ""
        notes += [f"{title}{text}" for name in group.metrics if (text := _sentence(name, group, bounds[name]))]
    counts = [f"a wrong answer passes in {counted(len(here['wrong answer passes']), 'task')}"]
    counts += [f"the gold answer fails in {counted(len(here['gold answer fails']), 'task')}"]
    said = [*notes, f"suspicious tasks, by {check}: {', '.join(counts)}"]
    own = {**result.own, KEY: {"check": os.path.basename(check), "tasks": here, "groups": groups}}
    return replace(result, own=own, notes=[*result.notes, *said])


def _suspicious(path: str) -> tuple[set[str], set[str]]:
    """The tasks where a wrong answer passes, and those where the gold answer fails."""
    right = "expected the output of calipers check BENCHMARK --selftest --format json"
    try:
        with open(path, "rb") as file:
            document = json.loads(file.read())
        probes = [(probe["rate"], probe["wrong"]) for probe in document["selftest"]["probes"]]
        wrong = {
            rate: {str(task) for kind, tasks in probes if kind == rate for task in tasks}
            for rate in ("false positives", "false negatives")
        }
    except OSError as error:
        raise InputError.at(path, f"cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError):
        raise InputError.at(path, "is not the self-test of a benchmark", right) from None
    return wrong["false positives"], wrong["false negatives"]


def _filled(table: Rollouts, tasks: set[str], worth: float) -> Rollouts:
    """The table with this reward for every rollout of some tasks that has one."""
    marked = np.array([task in tasks for task in table.tasks], dtype=bool)[table.task]
    rewards = {
        name: Column(np.where(marked & column.given, worth, column.values), column.given)
        for name, column in table.rewards.items()
    }
    return replace(table, rewards=rewards)


def _ends(name: str, slices: Sequence[Slice]) -> list[float] | None:
    """The lowest and the highest end of the intervals; values where there is none."""
    ends = [
        end
        for each in slices
        if (estimate := each.metrics[name]).value is not None
        for end in (estimate.interval or (estimate.value,))
    ]
    return [min(ends), max(ends)] if ends else None


def _sentence(name: str, group: Slice, bounds: list[float] | None) -> str:
    value = group.metrics[name].value
    if value is None or bounds is None:
        return ""
    return f"{name} {value:.2f}, between {bounds[0]:.2f} and {bounds[1]:.2f} if the suspicious tasks are wrong"
