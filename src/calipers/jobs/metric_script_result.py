"""What metric scripts say about the groups of a result: each value an estimate, each failure told and nothing lost.

The values of ``metric.py`` stand in a group as ``metric.py:mean``, which is no name of a metric of ours; two scripts
of one name are told apart by their folders, ``easy/metric.py:mean``. A script that fails stands there as
``metric.py``, without a value.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from calipers.jobs.metric_script import Rewards, ScriptError, run_script, sandbox, source_of
from calipers.jobs.metric_script_asked import Datasets
from calipers.reports.result import Group, Result
from calipers.reports.safe import clean
from calipers.rollouts.column import Bools
from calipers.rollouts.record import CODE
from calipers.rollouts.table import Rollouts
from calipers.stats.estimate import Estimate, Signature

MOST_VALUES: Final = 1000
LONGEST_NAME: Final = 200
TRIAL_TIME: Final = "trial_s"  # the column that only a finished trial has
ONCE: Final = "a metric script is run once, over all rewards"


@dataclass(frozen=True, slots=True)
class Script:
    """A script and the groups it speaks about: those of these datasets, or all."""

    label: str
    source: bytes
    datasets: Datasets


@dataclass(frozen=True, slots=True)
class Scripts:
    """The scripts of one scoring: called with a result, it adds what they say; `failed` tells what went wrong."""

    scripts: Sequence[Script]
    notes: Sequence[str]  # of scripts that were found and not run
    reward: str | None  # the only reward they are given
    failed: list[str] = field(default_factory=list)

    def __call__(self, result: Result, rollouts: Rollouts) -> Result:
        """The result with the values of every script in its groups."""
        groups = [self._added(group, part) for group, part in zip(result.groups, rollouts.groups(), strict=True)]
        left = len(rollouts) - int(np.count_nonzero(finished(rollouts)))
        said = [f"not run: {left:,} of {len(rollouts):,} rollouts; metric scripts see the others"] if left else []
        notes = [*result.notes, *self.notes, *(said if self.scripts else ()), *self.failed]
        return replace(result, groups=groups, notes=notes)

    def _added(self, group: Group, part: Rollouts) -> Group:
        told: dict[str, Estimate] = {}
        for script in self.scripts:
            if script.datasets is not None and group.dataset not in script.datasets:
                continue
            try:
                values = _checked(run_script(script.source, rewards_of(part, self.reward)))
                told |= {
                    f"{script.label}:{name}": _estimate(script, name, found, part) for name, found in values.items()
                }
            except ScriptError as error:
                title = f" ({group.title})" if group.title else ""
                self.failed.append(f"{script.label}{title}: {error}")
                told[script.label] = _estimate(script, "", error, part)
        return replace(group, metrics={**group.metrics, **told})


def make_scripts(wanted: Mapping[Path, Datasets], notes: Sequence[str], reward: str | None) -> Scripts:
    """Scripts ready to be run; InputError for one that is not there, SandboxError where there can be no sandbox."""
    sources = [source_of(path) for path in wanted]
    if wanted:
        sandbox()  # or it is said before anything is read that there is none
    made = zip(told_apart(wanted), sources, wanted.values(), strict=True)
    return Scripts([Script(*one) for one in made], notes, reward)


def rewards_of(part: Rollouts, only: str | None = None) -> Iterator[Rewards]:
    """The rewards of each finished rollout of a group, in the order of tasks and samples, as Harbor hands them over.

    They are what was recorded, whatever the outcome: a script sees the reward beside an exception too. None for a
    rollout without any, whoever is to blame. One that was never finished is left out.
    """
    columns = {key: column.take(finished(part)) for key, column in sorted(part.rewards.items()) if only in (None, key)}
    rows = int(np.count_nonzero(finished(part)))
    values = {key: column.values.tolist() for key, column in columns.items()}
    given = {key: column.given.tolist() for key, column in columns.items()}
    for row in range(rows):
        yield {key: values[key][row] for key in columns if given[key][row]} or None


def finished(part: Rollouts) -> Bools:
    """Which rollouts are finished, [R]: all that were run; a trial of Harbor's, also when no verifier was."""
    timed = part.columns.get(TRIAL_TIME)
    was_run: Bools = part.outcome != CODE["not_run"]
    return was_run if timed is None else was_run | timed.given


def told_apart(wanted: Mapping[Path, Datasets]) -> list[str]:
    """The name of each script, with as many of its folders as it takes to tell it from all it could meet in a group.

    >>> told_apart({Path("a/metric.py"): None, Path("b/metric.py"): None, Path("b/f1.py"): None})
    ['a/metric.py', 'b/metric.py', 'f1.py']
    """
    parts = {path: path.absolute().parts for path in wanted}
    names = []
    for path, mine in wanted.items():
        others = [
            other for other, its in wanted.items() if other != path and (mine is None or its is None or mine & its)
        ]
        depths = range(1, len(parts[path]))
        alone = (depth for depth in depths if all(parts[other][-depth:] != parts[path][-depth:] for other in others))
        names.append("/".join(parts[path][-next(alone, len(parts[path])) :]))
    return names


def _checked(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values, if their names can stand in a result."""
    if len(values) > MOST_VALUES:
        raise ScriptError(f"metric.json has {len(values):,} values; expected at most {MOST_VALUES:,}", "no_object")
    for name in values:
        if len(name) > LONGEST_NAME or not name.isprintable():
            wrong = f"metric.json names a value {clean(name)!r}"
            raise ScriptError(f"{wrong}; expected at most {LONGEST_NAME} characters that can be shown", "no_object")
    return values


def _estimate(script: Script, name: str, found: Any, part: Rollouts) -> Estimate:
    """One value of a script, or why there is none; without an interval."""
    seen = finished(part)
    tasks = int(np.count_nonzero(part.by_task.count(seen)))
    value, why = _number(found)
    sha256 = hashlib.sha256(script.source).hexdigest()
    return Estimate(
        value=value,
        stderr=None,
        interval=None,
        method=None,
        tasks=tasks,
        samples=int(np.count_nonzero(seen)),
        undefined_tasks=len(part.tasks) - tasks,
        bounds=None,
        higher_is_better=None,
        why=why,
        made=Signature("metric_script", settings=(*((name,) if name else ()), f"sha256:{sha256[:16]}", "gaps:null")),
    )


def _number(found: Any) -> tuple[float | None, str]:
    """A value as a number, and why it has no interval, or is none."""
    if isinstance(found, ScriptError):
        return None, found.what
    if isinstance(found, (bool, int, float)):
        try:
            number = float(found) + 0.0
        except OverflowError:
            return None, "the script gave a number too large to be shown"
        return number, ONCE if math.isfinite(number) else f"the script gave {number}"
    if isinstance(found, str):
        return None, f"the script gave the text {clean(found)!r}"
    return None, f"the script gave {'null' if found is None else 'a list' if isinstance(found, list) else 'an object'}"
