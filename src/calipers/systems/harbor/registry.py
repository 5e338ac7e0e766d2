"""Reads Harbor's registry.json, the list of datasets and their versions, and publishes datasets into it."""

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

from calipers.errors import InputError, UnknownName
from calipers.formats import BAD
from calipers.systems.harbor.dataset import METRIC, drift, read_dataset, refreshed, replace_file, wrong_names
from calipers.systems.harbor.manifest import (
    DATASET_TOML,
    IGNORE,
    PREFIX,
    Manifest,
    below,
    file_digest,
    manifest_of,
    read_manifest,
    regular,
    task_digest,
    task_files,
)
from calipers.systems.harbor.task import HARBORIGNORE, TaskDirectory, is_task, read_task
from calipers.systems.harbor.wire import SCRIPT, RegistryEntry, RegistryTask
from calipers.tasks.store import ROOT, make_root
from calipers.typed import complete

REGISTRY_JSON: Final = "registry.json"
REGISTRY: Final = os.path.join(".calipers", "registry")  # the default registry
_SPEC: Final = re.compile(r"(?P<name>[^@\s]+/[^@\s/]+)(?:@(?P<version>[^@\s]+))?")
_OBJECT: Final = re.compile(r"objects/(?P<hex>[0-9a-f]{64})/[^/]+")


@dataclass(frozen=True, slots=True)
class DatasetAt:
    """A version of a dataset in a registry; all files match their digests."""

    path: Path  # the directory with its dataset.toml and files; the registry's directory if it has none
    tasks: tuple[TaskDirectory, ...]
    metric_script: Path | None
    name: str
    version: str
    metrics: tuple[Mapping[str, Any], ...] = ()  # of registry.json, except scripts, such as {"type": "mean"}
    digest: str = ""  # "" if the registry states none, so that nothing could be verified


def is_spec(text: str) -> bool:
    """Whether a text has the form ``org/name`` or ``org/name@version``."""
    return _SPEC.fullmatch(text) is not None and not text.startswith((".", "/"))


def resolve(spec: str, registry: str | os.PathLike[str] | None = None) -> DatasetAt:
    """The dataset ``org/name`` or ``org/name@version`` in a registry, given as a directory or a registry.json.

    InputError if the dataset does not exist, lies outside the registry, has to be downloaded, or does not match its
    digest.
    """
    match = _SPEC.fullmatch(spec)
    if not match:
        raise InputError.at(repr(spec), "does not name a dataset", "expected org/name or org/name@version")
    root, entries = read_registry(REGISTRY if registry is None else registry)
    known = {entry.name for entry in entries}
    if match["name"] not in known:
        raise UnknownName.of(f"dataset in {root}", match["name"], known)
    versions = {entry.version: entry for entry in entries if entry.name == match["name"]}
    version = match["version"] or pick_version(list(versions))
    if version not in versions:
        hint = f"its versions are {', '.join(versions)}"
        raise UnknownName.of(f"version of {match['name']}", version, versions, hint)
    return _verified(root, versions[version])


def read_registry(registry: str | os.PathLike[str]) -> tuple[Path, list[RegistryEntry]]:
    """A registry's directory and entries; InputError for no registry, and for two entries of one name and version."""
    given = Path(registry)
    path = given if os.path.isfile(given) else given / REGISTRY_JSON
    if not os.path.lexists(path):
        raise InputError.at(str(given), "is not a registry", f"expected a directory with {REGISTRY_JSON}")
    regular(path.parent, path)
    try:
        entries = msgspec.json.decode(path.read_bytes(), type=complete(list[RegistryEntry]))
    except (OSError, *BAD) as error:
        expected = "expected Harbor's list of datasets, each with a name, a version and tasks"
        raise InputError.at(str(path), f"cannot be read ({error})", expected) from None
    seen: set[tuple[str, str]] = set()
    for entry in entries:
        if (entry.name, entry.version) in seen:
            raise InputError.at(str(path), f"{entry.name}@{entry.version} appears twice", "expected it once")
        seen.add((entry.name, entry.version))
    return path.parent, entries


def pick_version(versions: Sequence[str]) -> str:
    """The default version: ``head``; else the highest PEP 440 version; else the last version in alphabetical order.

    If any version is a PEP 440 version, versions that are not are ignored.

    >>> pick_version(["1.9", "1.10", "1.10rc1", "junk"])
    '1.10'
    """
    from packaging.version import InvalidVersion, Version

    if not versions:
        raise InputError("there is no version to pick; expected at least one")
    if "head" in versions:
        return "head"
    numbered: list[tuple[Version, str]] = []
    for version in versions:
        try:
            numbered.append((Version(version), version))
        except InvalidVersion:
            continue
    return max(numbered)[1] if numbered else max(versions)


def _verified(root: Path, entry: RegistryEntry) -> DatasetAt:
    """The dataset of an entry; InputError if a file does not match its digest."""
    location = f"{root / REGISTRY_JSON}: {entry.name}@{entry.version}"
    folder = below(root, entry.files, location) if entry.files else root
    manifest = _pinned(folder, entry, location) if entry.files else None
    pins = {item.name: item.digest for item in manifest.tasks} if manifest else {}
    tasks = tuple(_task(root, item, pins.get(item.name, ""), location) for item in entry.tasks)
    if manifest and set(pins) != {item.name for item in entry.tasks}:
        raise InputError.at(location, "its tasks differ from those of its dataset.toml", "publish it again")
    scripts = [item for item in entry.metrics if item.get("type") == SCRIPT]
    script = _script(root, scripts[0], location) if scripts else None
    if manifest and script and not (script == folder / METRIC and METRIC in {file.path for file in manifest.files}):
        raise InputError.at(location, f"its metric is {script}", f"expected the {METRIC} that its dataset.toml names")
    metrics = tuple(item for item in entry.metrics if item.get("type") != SCRIPT)
    return DatasetAt(folder, tasks, script, entry.name, entry.version, metrics, entry.digest)


def _pinned(folder: Path, entry: RegistryEntry, location: str) -> Manifest:
    """The dataset.toml of a version; InputError if its files or its total do not match the stated digests."""
    manifest = read_manifest(folder)
    if manifest is None or (manifest.name, manifest.version) != (entry.name, entry.version):
        raise InputError.at(location, f"{folder} contains no dataset.toml for it", "publish it again")
    for file in manifest.files:
        path = below(folder, file.path, location)
        _check_digest(path, file_digest(path), file.digest)
    if manifest.digest != entry.digest:
        raise InputError.at(location, f"its digest is {entry.digest}, but its dataset.toml gives {manifest.digest}")
    return manifest


def _task(root: Path, task: RegistryTask, pin: str, location: str) -> TaskDirectory:
    """A task of an entry; InputError if it does not match the digest in dataset.toml or in its own path."""
    if task.git_url:
        hint = "clone it and give its directory; Calipers downloads nothing"
        raise InputError.at(location, f"the task {task.name!r} is in the repository {task.git_url}", hint)
    path = below(root, task.path, location)
    in_path = _OBJECT.fullmatch(task.path)
    for digest in {pin, PREFIX + in_path["hex"] if in_path else ""} - {""}:
        _check_digest(path, task_digest(path), digest)
    return read_task(path)


def _script(root: Path, metric: Mapping[str, Any], location: str) -> Path:
    kwargs = metric.get("kwargs")
    name = kwargs.get("script_path") if isinstance(kwargs, Mapping) else None
    if not isinstance(name, str):
        raise InputError.at(location, "a metric of type uv-script has no script_path", f"expected one such as {METRIC}")
    path = below(root, name, location)
    regular(root, path)
    return path


def _check_digest(path: Path, digest: str, stated: str) -> None:
    if digest != stated:
        hint = "it was changed after it was published; publish it into a fresh registry"
        raise InputError.at(str(path), f"its digest is {digest}, not {stated}", hint)


_VERSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")

Status = Literal["created", "updated", "unchanged"]


@dataclass(frozen=True, slots=True)
class PublishedDataset:
    """A published version of a dataset, and whether publishing changed the registry."""

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
    """Copy the tasks and files that a dataset.toml lists into a registry, under its name and version.

    First, the digests in dataset.toml are computed again, and an unlisted metric.py is added to it, because it
    determines the numbers; unlisted tasks are excluded with a note. Publishing the same content under the same version
    changes nothing; other content under that version is an error. A dataset without a version gets the number after
    the last one, or the last one if its content is the same.
    """
    source, root = Path(directory), Path(REGISTRY if registry is None else registry)
    original, manifest, tasks, notes = _ready(source)
    if registry is None:
        make_root(Path(ROOT), root)
    with _locked(root):
        entries = read_registry(root)[1] if os.path.lexists(root / REGISTRY_JSON) else []
        versions = {entry.version: entry for entry in entries if entry.name == manifest.name}
        version = manifest.version or _number(versions, manifest.digest)
        if version in versions:
            _check_same_content(versions[version], manifest, root)
            status: Status = "unchanged"
        else:
            _add_entry(root, _copied(root, source, manifest, version, tasks))
            status = "updated" if versions else "created"
    if manifest.source.text != original.source.text:
        replace_file(original.source.path, manifest.source.text)
    files = tuple(file.path for file in manifest.files)
    return PublishedDataset(manifest.name, version, manifest.digest, status, len(tasks), files, root, tuple(notes))


def _ready(source: Path) -> tuple[Manifest, Manifest, dict[str, TaskDirectory], list[str]]:
    """The manifest of a dataset as it is and updated from its directory, the tasks that it lists, and notes."""
    if is_task(source):
        raise InputError.at(str(source), "is a task", "publish the dataset that contains the task")
    dataset = read_dataset(source)
    original = dataset.manifest
    if original is None:
        hint = f"calipers init --dataset ORG/NAME -o {source} writes one"
        raise InputError.at(str(source), f"has no {DATASET_TOML}", hint)
    if original.version is not None and not _VERSION.fullmatch(original.version):
        expected = "expected letters, digits, '.', '_', '+' and '-', such as '1.0.0'"
        raise original.source.error_at(("dataset", "version"), f"the version is {original.version!r}", expected)
    if faults := [*dataset.faults, *wrong_names(dataset)]:
        raise InputError(_first(faults))
    drifted = drift(source, original, {name: task.digest for name, task in dataset.by_name.items()})
    if drifted.errors:
        raise InputError(_first(drifted.errors))
    notes = [f"{name}: has no entry in {original.source.path} and is excluded" for name in drifted.new_tasks]
    drifted = replace(drifted, new_tasks={})
    manifest = original
    if drifted.changes:
        text = refreshed(original, drifted.tasks, {**drifted.files, **drifted.new_files})
        manifest = manifest_of(replace(original.source, text=text, values=tomllib.loads(text)))
        notes += [f"{original.source.path}: {change}" for change in drifted.changes]
    if not manifest.tasks:
        hint = f"calipers check --fix {source} adds the tasks in the folder"
        raise InputError.at(str(manifest.source.path), "lists no tasks", hint)
    listed = {pin.name for pin in manifest.tasks}
    return original, manifest, {name: task for name, task in dataset.by_name.items() if name in listed}, notes


def _first(faults: Sequence[str]) -> str:
    more = f" (and {len(faults) - 1} more; calipers check lists them)" if len(faults) > 1 else ""
    return faults[0] + more


def _number(versions: Mapping[str, RegistryEntry], digest: str) -> str:
    """The version for a dataset that does not state one."""
    last = max((int(version) for version in versions if re.fullmatch(r"[1-9][0-9]{0,8}", version)), default=0)
    return str(last if last and versions[str(last)].digest == digest else last + 1)


def _check_same_content(entry: RegistryEntry, manifest: Manifest, root: Path) -> None:
    names = {task.name for task in manifest.tasks}  # no digest covers them
    if entry.digest != manifest.digest or {task.name for task in entry.tasks} != names:
        message = f"{entry.name}@{entry.version} is in {root} with other content"
        location = manifest.source.location(("dataset", "version"))
        raise InputError.at(location, message, "increase the version: a published version cannot change")


def _copied(
    root: Path, source: Path, manifest: Manifest, version: str, tasks: Mapping[str, TaskDirectory]
) -> RegistryEntry:
    """Copy the tasks and files of a version into the registry, and return its entry for registry.json."""
    entries = [RegistryTask(pin.name, _stored(root, tasks[pin.name], pin.digest)) for pin in manifest.tasks]
    files = "/".join(("datasets", *manifest.name.split("/"), version))
    with _new_folder(below(root, files)) as folder:
        for file in manifest.files:
            path = below(source, file.path)
            regular(source, path)
            shutil.copy(path, folder / file.path)
        text = refreshed(manifest, {}, {}, version)
        (folder / DATASET_TOML).write_text(text, encoding="utf-8")
        if any(file_digest(folder / file.path) != file.digest for file in manifest.files):
            raise _changing(source)
    has_script = any(file.path == METRIC for file in manifest.files)
    metrics = [{"type": SCRIPT, "kwargs": {"script_path": f"{files}/{METRIC}"}}] if has_script else []
    return RegistryEntry(manifest.name, version, manifest.description, entries, metrics, manifest.digest, files)


def _add_entry(root: Path, entry: RegistryEntry) -> None:
    """Add an entry to registry.json; all other content of the file stays unchanged."""
    path = root / REGISTRY_JSON
    entries: list[Any] = msgspec.json.decode(path.read_bytes()) if path.exists() else []
    raw = msgspec.json.format(msgspec.json.encode([*entries, entry]), indent=2)
    replace_file(path, raw.decode() + "\n")


def _stored(root: Path, task: TaskDirectory, digest: str) -> str:
    """The folder of a task among the registry's objects; copies the task there unless the folder exists."""
    folder = f"objects/{digest.removeprefix(PREFIX)}/{Path(os.path.abspath(task.path)).name}"
    path = below(root, folder)
    if path.is_dir():
        _check_copy(path, task, digest)
        return folder
    ignore_files = [name for name in (IGNORE, HARBORIGNORE) if os.path.lexists(task.path / name)]
    with _new_folder(path) as copy:
        for name in (*task_files(task.path), *ignore_files):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            regular(task.path, task.path / name)
            shutil.copy(task.path / name, copy / name)
        if task_digest(copy) != digest:
            raise _changing(task.path)
    return folder


def _changing(path: Path) -> InputError:
    return InputError.at(str(path), "changed while it was being published", "expected files that do not change")


def _check_copy(copy: Path, task: TaskDirectory, digest: str) -> None:
    """InputError if a copy in the registry differs from its digest, or its ignore files differ from the task's."""
    if task_digest(copy) != digest:
        raise InputError.at(str(copy), f"does not match its digest, {digest}", "it was changed; delete it")
    for name in (IGNORE, HARBORIGNORE):  # no digest covers these two
        texts = [path.read_bytes() if (path := at / name).is_file() else b"" for at in (task.path, copy)]
        if texts[0] != texts[1]:
            message = f"differs from the one in {copy}, although all other files are the same"
            raise InputError.at(str(task.path / name), message, "no digest covers it; change another file too")


@contextmanager
def _new_folder(target: Path) -> Iterator[Path]:
    """A temporary directory that is renamed to ``target`` on success, and removed on failure."""
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=target.parent))
    try:
        yield fresh
        fresh.chmod(0o755)
        if target.is_dir():  # an interrupted publication left it, so no entry refers to it
            shutil.rmtree(target)
        os.rename(fresh, target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Hold the registry's lock; InputError if the registry cannot be written."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        with open(root / ".lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        message = f"cannot be read or written ({error.strerror or error})"
        raise InputError.at(str(error.filename or root), message, "expected a writable place to publish to") from None
