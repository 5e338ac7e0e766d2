"""Harbor's registry.json: which datasets there are, in which versions, and where their tasks lie.

A registry is a directory with that file. `calipers.tasks.harbor.publish` writes one; one written
by others is read too, as far as its tasks lie in that directory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from calipers.errors import InputError, UnknownName
from calipers.tasks.harbor.dataset import METRIC
from calipers.tasks.harbor.digest import PREFIX, file_digest, task_digest
from calipers.tasks.harbor.manifest import Manifest, read_manifest
from calipers.tasks.harbor.paths import below, regular
from calipers.tasks.harbor.task import TaskDirectory, read_task

REGISTRY_JSON: Final = "registry.json"
REGISTRY: Final = os.path.join(".calipers", "registry")  # where nobody says another
SCRIPT: Final = "uv-script"
_SPEC: Final = re.compile(r"(?P<name>[^@\s]+/[^@\s/]+)(?:@(?P<version>[^@\s]+))?")
_OBJECT: Final = re.compile(r"objects/(?P<hex>[0-9a-f]{64})/[^/]+")


class Located(msgspec.Struct, omit_defaults=True):
    """A task of an entry: where it lies, below the registry or in a repository."""

    name: str
    path: str
    git_url: str | None = None
    git_commit_id: str | None = None


class Entry(msgspec.Struct):
    """One version of one dataset. The last two keys are ours; Harbor has no need of them."""

    name: str
    version: str
    description: str = ""
    tasks: list[Located] = []
    metrics: list[dict[str, Any]] = []
    digest: str = ""  # of the whole content, as `manifest_digest` has it
    files: str = ""  # the directory of its dataset.toml and its files


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
    found = _SPEC.fullmatch(spec)
    if not found:
        raise InputError.at(repr(spec), "names no dataset", "expected org/name or org/name@version")
    root, entries = read_registry(REGISTRY if registry is None else registry)
    known = {entry.name for entry in entries}
    if found["name"] not in known:
        raise UnknownName.of(f"dataset in {root}", found["name"], known)
    versions = {entry.version: entry for entry in entries if entry.name == found["name"]}
    version = found["version"] or pick_version(list(versions))
    if version not in versions:
        hint = f"its versions are {', '.join(versions)}"
        raise UnknownName.of(f"version of {found['name']}", version, versions, hint)
    return _located(root, versions[version])


def read_registry(registry: str | os.PathLike[str]) -> tuple[Path, list[Entry]]:
    """A registry's directory and its entries; InputError where there is none, or two have one name and version."""
    given = Path(registry)
    path = given if given.is_file() else given / REGISTRY_JSON
    if not os.path.lexists(path):
        raise InputError.at(str(given), "is no registry", f"expected a directory with {REGISTRY_JSON}")
    regular(path.parent, path)
    try:
        entries = msgspec.json.decode(path.read_bytes(), type=list[Entry])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        right = "expected Harbor's list of datasets, each with a name, a version and tasks"
        raise InputError.at(str(path), f"cannot be read ({error})", right) from None
    seen: set[tuple[str, str]] = set()
    for entry in entries:
        if (entry.name, entry.version) in seen:
            raise InputError.at(str(path), f"{entry.name}@{entry.version} stands twice", "expected it once")
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


def _located(root: Path, entry: Entry) -> DatasetAt:
    place = f"{root / REGISTRY_JSON}: {entry.name}@{entry.version}"
    folder = below(root, entry.files, place) if entry.files else root
    manifest = _pinned(folder, entry, place) if entry.files else None
    pins = {one.name: one.digest for one in manifest.tasks} if manifest else {}
    tasks = tuple(_task(root, one, pins.get(one.name, ""), place) for one in entry.tasks)
    if manifest and set(pins) != {one.name for one in entry.tasks}:
        raise InputError.at(place, "its tasks are not those of its dataset.toml", "publish it again")
    scripts = [one for one in entry.metrics if one.get("type") == SCRIPT]
    script = _script(root, scripts[0], place) if scripts else None
    pinned = manifest is None or METRIC in {file.path for file in manifest.files}
    if manifest and script and not (pinned and script == folder / METRIC):
        raise InputError.at(place, f"its metric is {script}", f"expected the {METRIC} that its dataset.toml names")
    metrics = tuple(one for one in entry.metrics if one.get("type") != SCRIPT)
    return DatasetAt(folder, tasks, script, entry.name, entry.version, metrics, entry.digest)


def _pinned(folder: Path, entry: Entry, place: str) -> Manifest:
    """The dataset.toml of a version, once its files and the whole have the digests that are written down."""
    manifest = read_manifest(folder)
    if manifest is None or (manifest.name, manifest.version) != (entry.name, entry.version):
        raise InputError.at(place, f"{folder} holds no dataset.toml of it", "publish it again")
    for file in manifest.files:
        _same(below(folder, file.path, place), file_digest(below(folder, file.path, place)), file.digest)
    if manifest.digest != entry.digest:
        raise InputError.at(place, f"its digest is {entry.digest}, and {manifest.digest} by its dataset.toml")
    return manifest


def _task(root: Path, located: Located, pin: str, place: str) -> TaskDirectory:
    if located.git_url:
        right = "fetch it and give its directory; Calipers fetches nothing"
        raise InputError.at(place, f"the task {located.name!r} lies in the repository {located.git_url}", right)
    path = below(root, located.path, place)
    stated = _OBJECT.fullmatch(located.path)
    for digest in {pin, PREFIX + stated["hex"] if stated else ""} - {""}:
        _same(path, task_digest(path), digest)
    return read_task(path)


def _script(root: Path, metric: Mapping[str, Any], place: str) -> Path:
    kwargs = metric.get("kwargs")
    name = kwargs.get("script_path") if isinstance(kwargs, Mapping) else None
    if not isinstance(name, str):
        raise InputError.at(place, "a metric of type uv-script has no script_path", f"expected one such as {METRIC}")
    path = below(root, name, place)
    regular(root, path)
    return path


def _same(path: Path, found: str, stated: str) -> None:
    if found != stated:
        right = "it was changed after it was published; publish it into a fresh registry"
        raise InputError.at(str(path), f"its digest is {found}, not {stated}", right)
