"""Harbor's registry.json: which datasets there are, in which versions; and a dataset published into it for good."""

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

REGISTRY_JSON: Final = "registry.json"
REGISTRY: Final = os.path.join(".calipers", "registry")  # where nobody says another
_SPEC: Final = re.compile(r"(?P<name>[^@\s]+/[^@\s/]+)(?:@(?P<version>[^@\s]+))?")
_OBJECT: Final = re.compile(r"objects/(?P<hex>[0-9a-f]{64})/[^/]+")


@dataclass(frozen=True, slots=True)
class DatasetAt:
    """A version of a dataset, found and checked: every file is what its digest says."""

    path: Path  # the directory with its dataset.toml and its files; the registry's own where it has none
    tasks: tuple[TaskDirectory, ...]
    metric_script: Path | None
    name: str
    version: str
    metrics: tuple[Mapping[str, Any], ...] = ()  # those of registry.json that are no script, such as {"type": "mean"}
    digest: str = ""  # "" when the registry pins nothing: then nothing could be checked


def is_spec(text: str) -> bool:
    """Whether a text has the form ``org/name`` or ``org/name@version``."""
    return _SPEC.fullmatch(text) is not None and not text.startswith((".", "/"))


def resolve(spec: str, registry: str | os.PathLike[str] | None = None) -> DatasetAt:
    """The dataset that ``org/name`` or ``org/name@version`` means in a registry: its directory, or its registry.json.

    InputError for what is not there, lies outside the registry, has to be fetched, or is not what its digest says.
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
    return _located(root, versions[version])


def read_registry(registry: str | os.PathLike[str]) -> tuple[Path, list[RegistryEntry]]:
    """A registry's directory and its entries; InputError where there is none, or two have one name and version."""
    given = Path(registry)
    path = given if given.is_file() else given / REGISTRY_JSON
    if not os.path.lexists(path):
        raise InputError.at(str(given), "is not a registry", f"expected a directory with {REGISTRY_JSON}")
    regular(path.parent, path)
    try:
        entries = msgspec.json.decode(path.read_bytes(), type=list[RegistryEntry])
    except (OSError, *BAD) as error:
        right = "expected Harbor's list of datasets, each with a name, a version and tasks"
        raise InputError.at(str(path), f"cannot be read ({error})", right) from None
    seen: set[tuple[str, str]] = set()
    for entry in entries:
        if (entry.name, entry.version) in seen:
            raise InputError.at(str(path), f"{entry.name}@{entry.version} appears twice", "expected it once")
        seen.add((entry.name, entry.version))
    return path.parent, entries


def pick_version(versions: Sequence[str]) -> str:
    """The version that a dataset's bare name means: ``head``; else the highest by PEP 440; else the last by letters.

    Once a single version is one of PEP 440, those that are not are passed over.

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


def _located(root: Path, entry: RegistryEntry) -> DatasetAt:
    location = f"{root / REGISTRY_JSON}: {entry.name}@{entry.version}"
    folder = below(root, entry.files, location) if entry.files else root
    manifest = _pinned(folder, entry, location) if entry.files else None
    pins = {item.name: item.digest for item in manifest.tasks} if manifest else {}
    tasks = tuple(_task(root, item, pins.get(item.name, ""), location) for item in entry.tasks)
    if manifest and set(pins) != {item.name for item in entry.tasks}:
        raise InputError.at(location, "its tasks differ from those of its dataset.toml", "publish it again")
    scripts = [item for item in entry.metrics if item.get("type") == SCRIPT]
    script = _script(root, scripts[0], location) if scripts else None
    pinned = manifest is None or METRIC in {file.path for file in manifest.files}
    if manifest and script and not (pinned and script == folder / METRIC):
        raise InputError.at(location, f"its metric is {script}", f"expected the {METRIC} that its dataset.toml names")
    metrics = tuple(item for item in entry.metrics if item.get("type") != SCRIPT)
    return DatasetAt(folder, tasks, script, entry.name, entry.version, metrics, entry.digest)


def _pinned(folder: Path, entry: RegistryEntry, location: str) -> Manifest:
    """The dataset.toml of a version, once its files and the whole have the digests that are written down."""
    manifest = read_manifest(folder)
    if manifest is None or (manifest.name, manifest.version) != (entry.name, entry.version):
        raise InputError.at(location, f"{folder} contains no dataset.toml for it", "publish it again")
    for file in manifest.files:
        path = below(folder, file.path, location)
        _same(path, file_digest(path), file.digest)
    if manifest.digest != entry.digest:
        raise InputError.at(location, f"its digest is {entry.digest}, but its dataset.toml gives {manifest.digest}")
    return manifest


def _task(root: Path, located: RegistryTask, pin: str, location: str) -> TaskDirectory:
    if located.git_url:
        right = "clone it and give its directory; Calipers downloads nothing"
        raise InputError.at(location, f"the task {located.name!r} is in the repository {located.git_url}", right)
    path = below(root, located.path, location)
    stated = _OBJECT.fullmatch(located.path)
    for digest in {pin, PREFIX + stated["hex"] if stated else ""} - {""}:
        _same(path, task_digest(path), digest)
    return read_task(path)


def _script(root: Path, metric: Mapping[str, Any], location: str) -> Path:
    kwargs = metric.get("kwargs")
    name = kwargs.get("script_path") if isinstance(kwargs, Mapping) else None
    if not isinstance(name, str):
        raise InputError.at(location, "a metric of type uv-script has no script_path", f"expected one such as {METRIC}")
    path = below(root, name, location)
    regular(root, path)
    return path


def _same(path: Path, digest: str, stated: str) -> None:
    if digest != stated:
        right = "it was changed after it was published; publish it into a fresh registry"
        raise InputError.at(str(path), f"its digest is {digest}, not {stated}", right)


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
    files = tuple(file.path for file in manifest.files)
    return PublishedDataset(manifest.name, version, manifest.digest, status, len(tasks), files, root, tuple(notes))


def _ready(source: Path) -> tuple[Manifest, Manifest, dict[str, TaskDirectory], list[str]]:
    """The manifest of a dataset, the same in line with its directory, and by name the tasks that it names."""
    if is_task(source):
        raise InputError.at(str(source), "is a task", "publish the dataset that contains the task")
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
    drifted = drift(source, manifest, {name: task.digest for name, task in dataset.by_name.items()})
    if drifted.wrong:
        raise InputError(_first(drifted.wrong))
    notes = [f"{name}: has no entry in {manifest.source.path} and is excluded" for name in drifted.new_tasks]
    drifted = replace(drifted, new_tasks={})
    given = manifest
    if drifted.changes:
        text = refreshed(given, drifted.tasks, {**drifted.files, **drifted.new_files})
        manifest = manifest_of(replace(given.source, text=text, values=tomllib.loads(text)))
        notes += [f"{given.source.path}: {change}" for change in drifted.changes]
    if not manifest.tasks:
        right = f"calipers check --fix {source} adds the tasks in the folder"
        raise InputError.at(str(manifest.source.path), "lists no tasks", right)
    named = {pin.name for pin in manifest.tasks}
    return given, manifest, {name: task for name, task in dataset.by_name.items() if name in named}, notes


def _first(faults: Sequence[str]) -> str:
    more = f" (and {len(faults) - 1} more; calipers check lists them)" if len(faults) > 1 else ""
    return faults[0] + more


def _number(mine: Mapping[str, RegistryEntry], digest: str) -> str:
    """The version of a dataset that states none."""
    numbers = sorted(int(version) for version in mine if re.fullmatch(r"[1-9][0-9]{0,8}", version))
    last = str(numbers[-1]) if numbers else ""
    return last if last and mine[last].digest == digest else str(numbers[-1] + 1 if numbers else 1)


def _same_content(entry: RegistryEntry, manifest: Manifest, root: Path) -> None:
    names = {task.name for task in manifest.tasks}  # no digest covers them
    if entry.digest != manifest.digest or {task.name for task in entry.tasks} != names:
        wrong = f"{entry.name}@{entry.version} is in {root} with other content"
        location = manifest.source.place(("dataset", "version"))
        raise InputError.at(location, wrong, "increase the version: a published version cannot change")


def _entry(
    root: Path, source: Path, manifest: Manifest, version: str, tasks: Mapping[str, TaskDirectory]
) -> RegistryEntry:
    """Put everything of a version in its place; its entry for registry.json."""
    located = []
    for pin in manifest.tasks:
        name = _stored(root, tasks[pin.name], pin.digest)
        located.append(RegistryTask(pin.name, name))
    files = "/".join(("datasets", *manifest.name.split("/"), version))
    with _beside(below(root, files)) as folder:
        for file in manifest.files:
            path = below(source, file.path)
            regular(source, path)
            shutil.copy(path, folder / file.path)
        text = refreshed(manifest, {}, {}, version)
        (folder / DATASET_TOML).write_text(text, encoding="utf-8")
        if any(file_digest(folder / file.path) != file.digest for file in manifest.files):
            raise _moving(source)
    scripts = [{"type": SCRIPT, "kwargs": {"script_path": f"{files}/{METRIC}"}}]
    named = any(file.path == METRIC for file in manifest.files)
    return RegistryEntry(
        manifest.name, version, manifest.description, located, scripts if named else [], manifest.digest, files
    )


def _list(root: Path, entry: RegistryEntry) -> None:
    """Add an entry to registry.json; what others wrote into it stays as it is."""
    path = root / REGISTRY_JSON
    before: list[Any] = msgspec.json.decode(path.read_bytes()) if path.exists() else []
    raw = msgspec.json.format(msgspec.json.encode([*before, entry]), indent=2)
    replace_file(path, raw.decode() + "\n")


def _stored(root: Path, task: TaskDirectory, digest: str) -> str:
    """The place of a task among the objects; it is copied there unless its content is there already."""
    folder = f"objects/{digest.removeprefix(PREFIX)}/{Path(os.path.abspath(task.path)).name}"
    path = below(root, folder)
    rules = [name for name in (IGNORE, HARBORIGNORE) if os.path.lexists(task.path / name)]
    if path.is_dir():
        _unchanged(path, task, digest)
        return folder
    with _beside(path) as copy:
        for name in (*task_files(task.path), *rules):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            regular(task.path, task.path / name)
            shutil.copy(task.path / name, copy / name)
        if task_digest(copy) != digest:
            raise _moving(task.path)
    return folder


def _moving(path: Path) -> InputError:
    return InputError.at(str(path), "changed while it was being published", "expected files that do not change")


def _unchanged(copy: Path, task: TaskDirectory, digest: str) -> None:
    if task_digest(copy) != digest:
        raise InputError.at(str(copy), f"does not match its digest, {digest}", "it was changed; delete it")
    for name in (IGNORE, HARBORIGNORE):  # no digest covers these two
        ours, theirs = (path.read_bytes() if (path := at / name).is_file() else b"" for at in (task.path, copy))
        if ours != theirs:
            wrong = f"differs from the one in {copy}, although all other files are the same"
            raise InputError.at(str(task.path / name), wrong, "no digest covers it; change another file too")


@contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A fresh directory that takes its place when all went well, and is gone when not."""
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=target.parent))
    try:
        yield fresh
        fresh.chmod(0o755)
        if target.is_dir():  # an unfinished publication left it: no entry names it
            shutil.rmtree(target)
        os.rename(fresh, target)
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
        raise InputError.at(str(error.filename or root), wrong, "expected a writable place to publish to") from None
