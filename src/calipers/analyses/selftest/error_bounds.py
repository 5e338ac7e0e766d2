"""How far a score moves if its verifier is wrong where ``calipers check --selftest`` found it wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from calipers.analyses.selftest.error_rates import RATES, ErrorRates, allowed_rates, rate_bounds
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
    are 1 for the upper bound. The ends are those of the intervals of both, so that sampling error is in them. Shares of
    passes also get the bounds of `error_rates`: for a verifier that is wrong as often as the self-test allows.
    """
    probes = _probes(check)
    accepts, refuses = (
        {str(task) for each in probes if each["rate"] == rate for task in each["wrong"]} for rate in RATES
    )
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
    rates = allowed_rates(probes, float(known.get("confidence") or result.confidence))
    wide = (
        result
        if rates is None
        else score(table, metrics or None, **{**known, "confidence": rates.confidence_of_shares})
    )
    groups, notes = [], []
    for group, lower, upper, wider in zip(result.groups, low.groups, high.groups, wide.groups, strict=True):
        bounds = {name: _ends(name, (group, lower, upper)) for name in group.metrics}
        by_rates = {} if rates is None else rate_bounds(rates, wider, table)
        who = {"agent": group.agent, "model": group.model, "dataset": group.dataset}
        groups.append({**who, "bounds": bounds, "rate_bounds": by_rates})
        title = f"{group.title}: " if len(result.groups) > 1 else ""
        for name in group.metrics:
            notes += [
                f"{title}{text}" for text in _sentences(name, group, bounds[name], by_rates.get(name), rates) if text
            ]
    counts = [f"a wrong answer passes in {counted(len(here['wrong answer passes']), 'task')}"]
    counts += [f"the gold answer fails in {counted(len(here['gold answer fails']), 'task')}"]
    said = [*notes, f"suspicious tasks, by {check}: {', '.join(counts)}"]
    stated = None if rates is None else asdict(rates)
    own = {**result.own, KEY: {"check": os.path.basename(check), "tasks": here, "rates": stated, "groups": groups}}
    return replace(result, own=own, notes=[*result.notes, *said])


def _probes(path: str) -> list[dict[str, Any]]:
    """The probes of a self-test; InputError where the file is none."""
    right = "expected the output of calipers check BENCHMARK --selftest --format json"
    try:
        with open(path, "rb") as file:
            probes = json.loads(file.read())["selftest"]["probes"]
        for probe in probes:
            known = probe["rate"] in RATES and isinstance(probe["wrong"], list)
            if not known or ("asked" in probe and not 0 <= len(probe["failed"]) <= int(probe["asked"])):
                raise ValueError("a probe is none")
    except OSError as error:
        raise InputError.at(path, f"cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError):
        raise InputError.at(path, "is not the self-test of a benchmark", right) from None
    return list(probes)


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


def _sentences(
    name: str, group: Slice, bounds: list[float] | None, by_rates: list[float] | None, rates: ErrorRates | None
) -> Iterator[str]:
    value = group.metrics[name].value
    if value is None:
        return
    if bounds is not None:
        yield f"{name} {value:.2f}, between {bounds[0]:.2f} and {bounds[1]:.2f} if the suspicious tasks are wrong"
    if by_rates is not None and rates is not None:
        yield (
            f"{name} {value:.2f}, between {by_rates[0]:.2f} and {by_rates[1]:.2f} if up to {rates.false_positives:.1%} "
            f"of wrong answers pass and up to {rates.false_negatives:.1%} of right ones fail"
        )
