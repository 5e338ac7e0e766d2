"""A dataset into a registry: a directory in which what is once published never changes.

::

    registry.json                              Harbor's list of datasets; paths are relative to this directory
    objects/<64 digits>/<task>/...             a task's files, under the digest of their content
    datasets/<org>/<name>/<version>/           dataset.toml with every digest, and metric.py

A task that two datasets or two versions share is there once. Everything is written beside its
place and renamed into it; registry.json is replaced last, under a lock.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from calipers.errors import InputError
from calipers.tasks.harbor.dataset import METRIC, read_dataset, wrong_names
from calipers.tasks.harbor.digest import IGNORE, PREFIX, file_digest, task_digest, task_files
from calipers.tasks.harbor.manifest import DATASET_TOML, Manifest, manifest_of
from calipers.tasks.harbor.paths import below, regular
from calipers.tasks.harbor.pins import drift, refreshed, replace_file
from calipers.tasks.harbor.registry import REGISTRY, REGISTRY_JSON, SCRIPT, Entry, Located, read_registry
from calipers.tasks.harbor.task import TaskDirectory, is_task
from calipers.tasks.harbor.upload import HARBORIGNORE
from calipers.tasks.store import ROOT, make_root

_VERSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")

Status = Literal["created", "updated", "unchanged"]


@dataclass(frozen=True, slots=True)
class PublishedDataset:
    """A version of a dataset in a registry, and what publishing did to it."""

    name: str
    version: str
    digest: str
    status: Status
    tasks: int
    files: tuple[str, ...]
    registry: Path
    notes: tuple[str, ...] = ()


def publish_dataset(
    directory: str | os.PathLike[str], registry: str | os.PathLike[str] | None = None
) -> PublishedDataset:
    """Put the tasks and files that a dataset.toml names into a registry, under its name and version.

    Digests in dataset.toml are taken anew first, and a metric.py that lies there is added to it, as it
    decides the numbers; tasks that it does not name stay out, and a note says so. The same content
    under the same version changes nothing; other content under it is refused. A dataset without a
    version gets the number after the last, unless the last holds the same.
    """
    source, root = Path(directory), Path(REGISTRY if registry is None else registry)
    given, manifest, tasks, notes = _ready(source)
    if registry is None:
        make_root(Path(ROOT), root)
    with _locked(root):
        entries = read_registry(root)[1] if os.path.lexists(root / REGISTRY_JSON) else []
        mine = {entry.version: entry for entry in entries if entry.name == manifest.name}
        version = manifest.version or _number(mine, manifest.digest)
        if version in mine:
            _same_content(mine[version], manifest, root)
            status: Status = "unchanged"
        else:
            _list(root, _entry(root, source, manifest, version, tasks))
            status = "updated" if mine else "created"
    if manifest.source.text != given.source.text:
        replace_file(given.source.path, manifest.source.text)
    files = tuple(one.path for one in manifest.files)
    return PublishedDataset(manifest.name, version, manifest.digest, status, len(tasks), files, root, tuple(notes))


def _ready(source: Path) -> tuple[Manifest, Manifest, dict[str, TaskDirectory], list[str]]:
    """The manifest of a dataset, the same in line with its directory, and by name the tasks that it names."""
    if is_task(source):
        raise InputError.at(str(source), "is a task", "a task is published with the dataset that it lies in")
    dataset = read_dataset(source)
    manifest = dataset.manifest
    if manifest is None:
        right = f"calipers init --dataset ORG/NAME -o {source} writes one"
        raise InputError.at(str(source), f"has no {DATASET_TOML}", right)
    if manifest.version is not None and not _VERSION.fullmatch(manifest.version):
        right = "expected letters, digits, '.', '_', '+' and '-', such as '1.0.0'"
        raise manifest.source.fault(("dataset", "version"), f"the version is {manifest.version!r}", right)
    if faults := [*dataset.faults, *wrong_names(dataset)]:
        raise InputError(_first(faults))
    found = drift(source, manifest, {name: task.digest for name, task in dataset.by_name.items()})
    if found.wrong:
        raise InputError(_first(found.wrong))
    notes = [f"{name}: has no entry in {manifest.source.path} and is left out" for name in found.new_tasks]
    found = replace(found, new_tasks={})
    given = manifest
    if found.changes:
        text = refreshed(given, found.tasks, {**found.files, **found.new_files})
        manifest = manifest_of(replace(given.source, text=text, values=tomllib.loads(text)))
        notes += [f"{given.source.path}: {change}" for change in found.changes]
    if not manifest.tasks:
        right = f"calipers check --fix {source} adds those that lie there"
        raise InputError.at(str(manifest.source.path), "names no tasks", right)
    named = {one.name for one in manifest.tasks}
    return given, manifest, {name: task for name, task in dataset.by_name.items() if name in named}, notes


def _first(faults: Sequence[str]) -> str:
    more = f" (and {len(faults) - 1} more; calipers check lists them)" if len(faults) > 1 else ""
    return faults[0] + more


def _number(mine: Mapping[str, Entry], digest: str) -> str:
    """The version of a dataset that states none."""
    numbers = sorted(int(version) for version in mine if re.fullmatch(r"[1-9][0-9]{0,8}", version))
    last = str(numbers[-1]) if numbers else ""
    return last if last and mine[last].digest == digest else str(numbers[-1] + 1 if numbers else 1)


def _same_content(entry: Entry, manifest: Manifest, root: Path) -> None:
    names = {one.name for one in manifest.tasks}  # no digest covers them
    if entry.digest != manifest.digest or {one.name for one in entry.tasks} != names:
        wrong = f"{entry.name}@{entry.version} is in {root} with other content"
        place = manifest.source.place(("dataset", "version"))
        raise InputError.at(place, wrong, "raise the version: what is published does not change")


def _entry(root: Path, source: Path, manifest: Manifest, version: str, tasks: Mapping[str, TaskDirectory]) -> Entry:
    """Put everything of a version in its place; its entry for registry.json."""
    located = []
    for one in manifest.tasks:
        name = _stored(root, tasks[one.name], one.digest)
        located.append(Located(one.name, name))
    files = "/".join(("datasets", *manifest.name.split("/"), version))
    with _beside(below(root, files)) as folder:
        for file in manifest.files:
            path = below(source, file.path)
            regular(source, path)
            shutil.copy(path, folder / file.path)
        text = refreshed(manifest, {}, {}, version)
        (folder / DATASET_TOML).write_text(text, encoding="utf-8")
        if any(file_digest(folder / file.path) != file.digest for file in manifest.files):
            raise InputError.at(str(source), "changed while it was published", "expected files nobody writes to")
    scripts = [{"type": SCRIPT, "kwargs": {"script_path": f"{files}/{METRIC}"}}]
    named = any(file.path == METRIC for file in manifest.files)
    return Entry(
        manifest.name, version, manifest.description, located, scripts if named else [], manifest.digest, files
    )


def _list(root: Path, entry: Entry) -> None:
    """Add an entry to registry.json; what others wrote into it stays as it is."""
    path = root / REGISTRY_JSON
    before: list[Any] = msgspec.json.decode(path.read_bytes()) if path.exists() else []
    raw = msgspec.json.format(msgspec.json.encode([*before, entry]), indent=2)
    replace_file(path, raw.decode() + "\n")


def _stored(root: Path, task: TaskDirectory, digest: str) -> str:
    """The place of a task among the objects; it is copied there unless its content is there already."""
    folder = f"objects/{digest.removeprefix(PREFIX)}/{Path(os.path.abspath(task.path)).name}"
    place = below(root, folder)
    rules = [name for name in (IGNORE, HARBORIGNORE) if os.path.lexists(task.path / name)]
    if place.is_dir():
        _unchanged(place, task, digest)
        return folder
    with _beside(place) as copy:
        for name in (*task_files(task.path), *rules):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            regular(task.path, task.path / name)
            shutil.copy(task.path / name, copy / name)
        if task_digest(copy) != digest:
            raise InputError.at(str(task.path), "changed while it was published", "expected files nobody writes to")
    return folder


def _unchanged(place: Path, task: TaskDirectory, digest: str) -> None:
    if task_digest(place) != digest:
        raise InputError.at(str(place), f"is not what its digest says, {digest}", "it was changed; remove it")
    for name in (IGNORE, HARBORIGNORE):  # no digest covers these two
        ours, theirs = (one.read_bytes() if (one := at / name).is_file() else b"" for at in (task.path, place))
        if ours != theirs:
            wrong = f"differs from that of {place}, whose other files are the same"
            raise InputError.at(str(task.path / name), wrong, "no digest covers it; change another file too")


@contextmanager
def _beside(place: Path) -> Iterator[Path]:
    """A fresh directory that takes its place when all went well, and is gone when not."""
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=place.parent))
    try:
        yield fresh
        fresh.chmod(0o755)
        if place.is_dir():  # an unfinished publication left it: no entry names it
            shutil.rmtree(place)
        os.rename(fresh, place)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """The registry, to oneself; InputError when it cannot be written."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        with open(root / ".lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        wrong = f"cannot be read or written ({error.strerror or error})"
        raise InputError.at(str(error.filename or root), wrong, "expected a place to publish to") from None
