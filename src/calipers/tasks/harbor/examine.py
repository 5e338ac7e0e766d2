"""Is a dataset right: its tasks, their names, what dataset.toml says about them, and its metric."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from calipers.errors import InputError
from calipers.tasks.harbor.dataset import Dataset, read_dataset, wrong_names
from calipers.tasks.harbor.digest import manifest_digest
from calipers.tasks.harbor.manifest import Manifest
from calipers.tasks.harbor.pins import Drift, drift, refreshed, replace_file
from calipers.tasks.harbor.task import BUILDS, TaskDirectory, is_task


@dataclass(frozen=True, slots=True)
class Examined:
    """A dataset and everything that was found about it."""

    name: str
    version: str | None
    tasks: int  # those that are right
    digest: str  # of its content: `manifest_digest`, or that of one task; "" while something is wrong or not written
    faults: tuple[str, ...]
    notes: tuple[str, ...]
    changes: tuple[str, ...] = ()  # what was mended


def examine(directory: str | os.PathLike[str], fix: bool = False) -> Examined:
    """Everything wrong with a dataset's directory, or with that of one task.

    ``fix`` first brings dataset.toml in line with the directory, as ``harbor sync`` does: digests are
    taken anew, tasks and a metric.py that it does not name are added. It mends nothing else.
    """
    dataset = read_dataset(directory)
    faults = [*dataset.faults, *wrong_names(dataset)]
    digests = _digests(dataset, faults)
    notes = [note for task in dataset.tasks for note in (*task.unknown, *_about(task))]
    if dataset.passed_over:
        notes.append(f"{dataset.path}: no tasks, for want of a task.toml: {', '.join(dataset.passed_over)}")
    if not dataset.tasks and not dataset.faults:
        faults.append(f"{dataset.path}: holds no tasks; expected subdirectories with a task.toml")
    manifest, sound = dataset.manifest, sum(map(bool, digests.values()))
    if is_task(dataset.path):
        (name, digest), *_ = digests.items()
        return Examined(name, None, sound, digest, tuple(faults), tuple(notes))
    if manifest is None:
        digest = "" if faults else manifest_digest(digests.values())
        return Examined(dataset.name, None, sound, digest, tuple(faults), tuple(notes))
    found = drift(dataset.path, manifest, digests)
    if fix and found.changes:
        text = refreshed(manifest, {**found.tasks, **found.new_tasks}, {**found.files, **found.new_files})
        replace_file(manifest.source.path, text)
        return replace(examine(directory), changes=tuple(found.changes))
    faults += [*found.wrong, *_stale(manifest, found)]
    notes += [*manifest.unknown, *_unwritten(manifest, found)]
    digest = "" if faults or found.changes else manifest.digest
    return Examined(manifest.name, manifest.version, sound, digest, tuple(faults), tuple(notes))


def _digests(dataset: Dataset, faults: list[str]) -> dict[str, str]:
    """The digest of every task by name; "" where its files cannot be read or do not stay inside it."""
    digests: dict[str, str] = {}
    for name, task in dataset.by_name.items():
        try:
            digests[name] = task.digest
        except InputError as error:
            digests[name] = ""
            faults.append(str(error))
    return digests


def _about(task: TaskDirectory) -> list[str]:
    if task.needs_image:
        return []
    return [f"{task.path / 'environment'}: has neither of {' and '.join(BUILDS)}; no image can be built from it"]


def _stale(manifest: Manifest, found: Drift) -> list[str]:
    """A digest that is written down and wrong, each with its place."""
    wrong: Mapping[str, str] = {**found.tasks, **found.files}
    pins = [(("tasks", at), one.name, one.digest) for at, one in enumerate(manifest.tasks)]
    pins += [(("files", at), one.path, one.digest) for at, one in enumerate(manifest.files)]
    right = "calipers check --fix writes it down"
    return [
        f"{manifest.source.place((*steps, 'digest'))}: the digest of {name} is {digest}, not {wrong[name]}; {right}"
        for steps, name, digest in pins
        if name in wrong and digest
    ]


def _unwritten(manifest: Manifest, found: Drift) -> list[str]:
    """What dataset.toml leaves open and ought not to."""
    path = manifest.source.path
    pins = [(one.name, one.digest) for one in manifest.tasks] + [(one.path, one.digest) for one in manifest.files]
    notes = [f"{path}: {name} has no digest yet" for name, digest in pins if not digest]
    notes += [f"{path}: does not name {name}, which lies there" for name in (*found.new_tasks, *found.new_files)]
    if manifest.version is None:
        notes.append(f"{path}: has no version; publishing gives it the next number")
    return notes
