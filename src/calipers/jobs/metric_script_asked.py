"""Which metric scripts a scoring runs: those the user names, and those that lie in the datasets of a Harbor job.

A script is code. One that is named needs trust; one that is found without it is told of and not run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from calipers.errors import InputError

if TYPE_CHECKING:
    from calipers.jobs.metric_script_result import Scripts

CONFIG: Final = "config.json"
ADHOC: Final = "adhoc"  # what Harbor calls the dataset of tasks that belong to none
LONGEST: Final = 64 << 20  # bytes

Datasets = frozenset[str | None] | None
"""The datasets that a script speaks about; None for all."""


class _Dataset(msgspec.Struct):
    path: str | None = None
    name: str | None = None


class _Metric(msgspec.Struct):
    type: str = "mean"
    kwargs: dict[str, Any] = msgspec.field(default_factory=dict)


class _Config(msgspec.Struct):
    """A job's ``config.json``, as far as it says where a script could be."""

    datasets: list[_Dataset] = msgspec.field(default_factory=list)
    metrics: list[_Metric] = msgspec.field(default_factory=list)


def asked_scripts(source: Any, files: Any = (), *, trust: bool = False, reward: str | None = None) -> Scripts | None:
    """The scripts of a scoring, None when there are none; ``reward`` is the only one they are to see.

    InputError for a named script that is not there, or not trusted.
    """
    named = [files] if isinstance(files, (str, os.PathLike)) else files
    wanted: dict[Path, Datasets] = dict.fromkeys(_once(map(Path, named)))
    if wanted and not trust:
        first = next(iter(wanted))
        raise InputError.at(str(first), "a metric script is code", "--trust (trust=True) runs it, in the sandbox")
    found, notes = found_scripts(source)
    wanted |= {path: found[path] for path in _once([*wanted, *found]) if path not in wanted}
    if not trust:
        notes += [f"{path}: lies with the dataset and is not run, as it is code; --trust runs it" for path in wanted]
        wanted = {}
    if not (wanted or notes):
        return None
    from calipers.jobs.metric_script_result import make_scripts

    return make_scripts(wanted, notes, reward)


def check_ready(datasets: Iterable[str]) -> None:
    """SandboxError where a dataset among these brings a script, and no sandbox can be had for it.

    For runs that will score themselves: it is to be said before they begin, not when they are over.
    """
    from calipers.tasks.harbor.dataset import metric_scripts

    for folder in map(Path, datasets):
        with suppress(InputError):  # what is wrong with a dataset is told by those who read it
            if folder.is_dir() and metric_scripts(folder):
                from calipers.jobs.metric_script import sandbox

                sandbox()


def found_scripts(source: Any) -> tuple[dict[Path, Datasets], list[str]]:
    """The scripts that belong to the jobs among some paths, each with its datasets; and what is wrong with others.

    A local dataset's ``metric.py`` speaks about that dataset, a job's own ``uv-script`` about all of the job's. What
    is no job, or cannot be read as one, has none: to complain is the readers' task.
    """
    paths = [source] if isinstance(source, (str, os.PathLike)) else source if isinstance(source, (list, tuple)) else []
    found: dict[Path, set[str | None]] = {}
    wrong: list[str] = []
    for job in (job for path in paths if isinstance(path, (str, os.PathLike)) for job in _jobs(path)):
        try:
            for script, datasets in _of(job):
                found.setdefault(script, set()).update(datasets)
        except InputError as error:
            wrong.append(f"{error}; no metric script of this dataset is run")
    return {script: frozenset(datasets) for script, datasets in found.items()}, list(dict.fromkeys(wrong))


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
        config = msgspec.json.decode((job / CONFIG).read_bytes(), type=_Config)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    names: set[str | None] = set()
    for dataset in config.datasets:
        name = dataset.name or os.path.basename(os.path.normpath(dataset.path or ""))
        names.add(name)
        if dataset.path and (folder := _place(job, dataset.path)) and folder.is_dir():
            from calipers.tasks.harbor.dataset import metric_scripts

            for script in metric_scripts(folder):
                yield script, {name}
    for metric in config.metrics:
        path = metric.kwargs.get("script_path")
        if metric.type == "uv-script" and isinstance(path, str) and (place := _place(job, path)):
            yield place, names or {ADHOC, None}


def _place(job: Path, path: str) -> Path | None:
    """Where a path of a job's config leads: from the folder it was started in, which is here or above the job."""
    if "\0" in path:
        return None
    starts = (Path(), job.parent, job.parent.parent, job.absolute().parent.parent)  # a job lies in jobs/<name>
    return next((start / path for start in starts if (start / path).exists()), None)
