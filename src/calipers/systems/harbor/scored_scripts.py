"""Which metric scripts a scoring runs, and what they say about its groups: each value an estimate."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from calipers.errors import InputError
from calipers.reports.result import Group, Result
from calipers.reports.untrusted_text import clean
from calipers.rollouts.column import Bools
from calipers.rollouts.record import CODE
from calipers.rollouts.table import Rollouts
from calipers.stats.estimate import Estimate, Signature
from calipers.systems.harbor.metric_script import Rewards, ScriptError, run_script, sandbox, source_of
from calipers.systems.harbor.wire import JobScripts

CONFIG: Final = "config.json"
ADHOC: Final = "adhoc"  # what Harbor calls the dataset of tasks that belong to none
LONGEST: Final = 64 << 20  # bytes

Datasets = frozenset[str | None] | None
"""The datasets that a script speaks about; None for all."""


def asked_scripts(source: Any, files: Any = (), *, trust: bool = False, reward: str | None = None) -> Scripts | None:
    """The scripts of a scoring, None when there are none; ``reward`` is the only one they are to see.

    InputError for a named script that is not there, or not trusted.
    """
    named = [files] if isinstance(files, (str, os.PathLike)) else files
    wanted: dict[Path, Datasets] = dict.fromkeys(_once(map(Path, named)))
    if wanted and not trust:
        first = next(iter(wanted))
        raise InputError.at(str(first), "a metric script is code", "--trust (trust=True) runs it, in the sandbox")
    lying_there, notes = found_scripts(source)
    wanted |= {path: lying_there[path] for path in _once([*wanted, *lying_there]) if path not in wanted}
    if not trust:
        notes += [f"{path}: lies with the dataset and is not run, as it is code; --trust runs it" for path in wanted]
        wanted = {}
    if not (wanted or notes):
        return None

    return make_scripts(wanted, notes, reward)


def check_ready(datasets: Iterable[str]) -> None:
    """SandboxError where a dataset among these brings a script, and no sandbox can be had for it.

    For runs that will score themselves: it is to be said before they begin, not when they are over.
    """
    from calipers.systems.harbor.tasks.dataset import metric_scripts

    for folder in map(Path, datasets):
        with suppress(InputError):  # what is wrong with a dataset is told by those who read it
            if folder.is_dir() and metric_scripts(folder):
                sandbox()


def found_scripts(source: Any) -> tuple[dict[Path, Datasets], list[str]]:
    """The scripts that belong to the jobs among some paths, each with its datasets; and what is wrong with others.

    A local dataset's ``metric.py`` speaks about that dataset, a job's own ``uv-script`` about all of the job's. What
    is no job, or cannot be read as one, has none: to complain is the readers' task.
    """
    paths = [source] if isinstance(source, (str, os.PathLike)) else source if isinstance(source, (list, tuple)) else []
    scripts: dict[Path, set[str | None]] = {}
    wrong: list[str] = []
    for job in (job for path in paths if isinstance(path, (str, os.PathLike)) for job in _jobs(path)):
        try:
            for script, datasets in _of(job):
                scripts.setdefault(script, set()).update(datasets)
        except InputError as error:
            wrong.append(f"{error}; no metric script of this dataset is run")
    return {script: frozenset(datasets) for script, datasets in scripts.items()}, list(dict.fromkeys(wrong))


def _once(paths: Iterable[Path]) -> Iterable[Path]:
    """The paths without those that are another spelling of an earlier one."""
    first: dict[str, Path] = {}
    for path in paths:
        first.setdefault(os.path.realpath(path), path)
    return first.values()


def _jobs(path: str | os.PathLike[str]) -> Sequence[Path]:
    """The folders of jobs at a path: itself, or those in it."""
    folder = Path(path)
    if not folder.is_dir():
        return []
    if (folder / CONFIG).is_file():
        return [folder]
    return sorted(config.parent for config in folder.glob(f"*/{CONFIG}"))


def _of(job: Path) -> Iterator[tuple[Path, set[str | None]]]:
    try:
        if (job / CONFIG).stat().st_size > LONGEST:
            return
        config = msgspec.json.decode((job / CONFIG).read_bytes(), type=JobScripts)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    names: set[str | None] = set()
    for dataset in config.datasets:
        name = dataset.name or os.path.basename(os.path.normpath(dataset.path or ""))
        names.add(name)
        if dataset.path and (folder := _place(job, dataset.path)) and folder.is_dir():
            from calipers.systems.harbor.tasks.dataset import metric_scripts

            for script in metric_scripts(folder):
                yield script, {name}
    for metric in config.metrics:
        path = metric.kwargs.get("script_path")
        if metric.type == "uv-script" and isinstance(path, str) and (script_path := _place(job, path)):
            yield script_path, names or {ADHOC, None}


def _place(job: Path, path: str) -> Path | None:
    """Where a path of a job's config leads: from the folder it was started in, which is here or above the job."""
    if "\0" in path:
        return None
    starts = (Path(), job.parent, job.parent.parent, job.absolute().parent.parent)  # a job lies in jobs/<name>
    return next((start / path for start in starts if (start / path).exists()), None)


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
        unseen = [f"not run: {left:,} of {len(rollouts):,} rollouts; metric scripts see the others"] if left else []
        notes = [*result.notes, *self.notes, *(unseen if self.scripts else ()), *self.failed]
        return replace(result, groups=groups, notes=notes)

    def _added(self, group: Group, part: Rollouts) -> Group:
        estimates: dict[str, Estimate] = {}
        for script in self.scripts:
            if script.datasets is not None and group.dataset not in script.datasets:
                continue
            try:
                values = _checked(run_script(script.source, rewards_of(part, self.reward)))
                estimates |= {
                    f"{script.label}:{name}": _estimate(script, name, value, part) for name, value in values.items()
                }
            except ScriptError as error:
                title = f" ({group.title})" if group.title else ""
                self.failed.append(f"{script.label}{title}: {error}")
                estimates[script.label] = _estimate(script, "", error, part)
        return replace(group, metrics={**group.metrics, **estimates})


def make_scripts(wanted: Mapping[Path, Datasets], notes: Sequence[str], reward: str | None) -> Scripts:
    """Scripts ready to be run; InputError for one that is not there, SandboxError where there can be no sandbox."""
    sources = [source_of(path) for path in wanted]
    if wanted:
        sandbox()  # or it is said before anything is read that there is none
    made = zip(told_apart(wanted), sources, wanted.values(), strict=True)
    return Scripts([Script(*fields) for fields in made], notes, reward)


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


def _estimate(script: Script, name: str, result: Any, part: Rollouts) -> Estimate:
    """One value of a script, or why there is none; without an interval."""
    seen = finished(part)
    tasks = int(np.count_nonzero(part.by_task.count(seen)))
    value, why = _number(result)
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


def _number(result: Any) -> tuple[float | None, str]:
    """A value as a number, and why it has no interval, or is none."""
    if isinstance(result, ScriptError):
        return None, result.what
    if isinstance(result, (bool, int, float)):
        try:
            number = float(result) + 0.0
        except OverflowError:
            return None, "the script gave a number too large to be shown"
        return number, ONCE if math.isfinite(number) else f"the script gave {number}"
    if isinstance(result, str):
        return None, f"the script gave the text {clean(result)!r}"
    return (
        None,
        f"the script gave {'null' if result is None else 'a list' if isinstance(result, list) else 'an object'}",
    )
