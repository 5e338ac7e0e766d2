"""A dataset in a directory: its tasks are its subdirectories, its metric lies beside them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from calipers.errors import InputError
from calipers.tasks.harbor.manifest import DATASET_TOML, Manifest, is_name, read_manifest
from calipers.tasks.harbor.paths import below, regular
from calipers.tasks.harbor.task import TaskDirectory, is_task, read_task
from calipers.tasks.jsonl import TASKS

METRIC: Final = "metric.py"
ADHOC: Final = "adhoc"  # what Harbor calls the dataset of a task that is given by itself
_NO_TASKS: Final = ("__pycache__", "jobs", "node_modules", "runs")  # nobody wonders why these are no tasks


@dataclass(frozen=True, slots=True)
class Dataset:
    """The tasks of one directory, sorted by name, and whatever stands there that is none."""

    path: Path
    name: str  # of dataset.toml, else the directory's own
    tasks: tuple[TaskDirectory, ...]
    faults: tuple[str, ...]  # subdirectories that mean to be tasks, and why each is none
    passed_over: tuple[str, ...]  # names of subdirectories that do not mean to be one
    manifest: Manifest | None

    def full_name(self, task: TaskDirectory) -> str:
        """A task's name with an organisation before it: its own, else that of the dataset."""
        org = self.manifest.org if self.manifest else ""
        return task.name if "/" in task.name or not org else f"{org}/{task.name}"

    @property
    def by_name(self) -> dict[str, TaskDirectory]:
        """The tasks by their full names; without those that `wrong_names` tells of."""
        found: dict[str, TaskDirectory] = {}
        for task in self.tasks:
            if self.can_name(task):
                found.setdefault(self.full_name(task), task)
        return found

    def can_name(self, task: TaskDirectory) -> bool:
        """Whether the dataset.toml, if there is one, could hold the name of a task."""
        return self.manifest is None or is_name(self.full_name(task))


def is_dataset(directory: str | os.PathLike[str]) -> bool:
    """Whether a directory is a dataset of Harbor's kind: it has a dataset.toml, or a task in it, or is one task.

    One with a tasks.jsonl is a benchmark of EvSys' kind, whatever else lies in it.
    """
    root = Path(directory)
    if not os.path.isdir(root) or os.path.lexists(root / TASKS):
        return False
    return os.path.lexists(root / DATASET_TOML) or is_task(root) or any(is_task(one) for one in _subdirectories(root))


def read_dataset(directory: str | os.PathLike[str], verified: bool = True) -> Dataset:
    """The dataset in a directory, or the one task that the directory is.

    A subdirectory with a task.toml means to be a task; one that is no valid task is among the
    faults, and so is a link. What dataset.toml says about tasks is not consulted: the directory
    holds what it holds. InputError for a directory that cannot be read, and for a wrong dataset.toml.
    """
    root = Path(directory)
    if not os.path.isdir(root):
        raise InputError.at(str(root), "no such directory", "expected a directory of tasks")
    if is_task(root):
        return Dataset(root, ADHOC, (read_task(root, verified),), (), (), None)
    manifest = read_manifest(root)
    tasks: list[TaskDirectory] = []
    faults: list[str] = []
    passed_over: list[str] = []
    for one in _subdirectories(root):
        if not os.access(one, os.R_OK | os.X_OK):
            faults.append(f"{one}: cannot be read (Permission denied); expected a directory one may look into")
        elif not is_task(one):
            passed_over += [one.name] if one.name not in _NO_TASKS else []
        elif os.path.islink(one):
            faults.append(f"{one}: is a link; expected a directory of its own")
        else:
            try:
                tasks.append(read_task(one, verified))
            except InputError as error:
                faults.append(str(error))
    name = manifest.name if manifest else Path(os.path.abspath(root)).name
    return Dataset(root, name, tuple(tasks), tuple(faults), tuple(passed_over), manifest)


def wrong_names(dataset: Dataset) -> list[str]:
    """An error for every task whose name another one has, or which dataset.toml could not hold."""
    seen: dict[str, Path] = {}
    faults: list[str] = []
    for task in dataset.tasks:
        name = dataset.full_name(task)
        first = seen.setdefault(name, task.path)
        if first is not task.path:
            faults.append(f"{task.path}: is named {name!r}, as {first} is; expected names of their own")
        elif not dataset.can_name(task):
            right = "give it a name in [task] of its task.toml: org/name, of letters, digits, '.', '_' and '-'"
            faults.append(f"{task.path}: is named {name!r}; {right}")
    return faults


def metric_scripts(directory: str | os.PathLike[str]) -> list[Path]:
    """The metric.py of a dataset's directory, named in dataset.toml or lying there; none is an empty list.

    InputError for one that is named and not there, and for a link that leads out of the directory.
    """
    root = Path(directory)
    manifest = read_manifest(root)
    path = below(root, METRIC)
    if os.path.lexists(path):
        return [path] if regular(root, path) else []
    for at, file in enumerate(manifest.files if manifest else ()):
        if manifest and file.path == METRIC:
            place = manifest.source.place(("files", at, "path"))
            raise InputError.at(place, f"names {METRIC}, which is not there", "write it, or take the entry out")
    return []


def _subdirectories(root: Path) -> list[Path]:
    try:
        return sorted(one for one in root.iterdir() if not one.name.startswith(".") and os.path.isdir(one))
    except OSError as error:
        raise InputError.at(str(root), f"cannot be read ({error.strerror})") from None
