"""dataset.toml: a dataset's name, its tasks and its files, each with the digest of its content."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from calipers.errors import InputError
from calipers.systems.harbor.tasks.digest import manifest_digest
from calipers.systems.harbor.tasks.toml import Toml, read_toml

DATASET_TOML: Final = "dataset.toml"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Author:
    """Who wrote a dataset or a task."""

    name: str
    email: str | None = None


@dataclass(frozen=True, slots=True)
class Pinned:
    """A task of a dataset, by name; an empty digest has not been taken yet."""

    name: str
    digest: str = ""


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """A file beside the tasks, such as metric.py, by its bare name."""

    path: str
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Identity:
    """What a dataset or a task is called when it travels: ``[dataset]``, ``[task]``."""

    name: str  # org/name
    version: str | None = None
    description: str = ""
    authors: tuple[Author, ...] = ()
    keywords: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _ManifestHead(Identity):
    tasks: tuple[Any, ...] = ()  # Harbor writes an empty list here when a dataset has no tasks


@dataclass(frozen=True, slots=True)
class _Whole:
    dataset: _ManifestHead
    schema_version: str = "1.0"
    metadata: Mapping[str, Any] = field(default_factory=dict)
    tasks: tuple[Pinned, ...] = ()
    files: tuple[PinnedFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Manifest(Identity):
    """What dataset.toml says. Its tasks are in the order of the file."""

    metadata: Mapping[str, Any] = field(default_factory=dict)
    tasks: tuple[Pinned, ...] = ()
    files: tuple[PinnedFile, ...] = ()
    source: Toml = field(repr=False, compare=False, kw_only=True)  # where it was read: it knows the lines

    @property
    def org(self) -> str:
        """The organisation before the slash."""
        return self.name.partition("/")[0]

    @property
    def digest(self) -> str:
        """The hash of its content, by the digests it states."""
        return manifest_digest((pin.digest for pin in self.tasks), {pin.path: pin.digest for pin in self.files})

    @property
    def unknown(self) -> list[str]:
        """The keys that mean nothing, each with its place."""
        return self.source.unknown(_Whole)


def read_manifest(directory: Path) -> Manifest | None:
    """The dataset.toml of a directory, checked; None when it has none."""
    path = directory / DATASET_TOML
    return manifest_of(read_toml(directory, path)) if os.path.lexists(path) else None


def manifest_of(toml: Toml) -> Manifest:
    """What a dataset.toml says; InputError names the line of what cannot be."""
    whole = toml.convert(toml.values, _Whole)
    head = whole.dataset
    _checked(toml, whole)
    return Manifest(
        head.name,
        head.version,
        head.description,
        head.authors,
        head.keywords,
        whole.metadata,
        whole.tasks,
        whole.files,
        source=toml,
    )


def is_name(name: str) -> bool:
    """Whether a name has the form ``org/name``."""
    return _NAME.fullmatch(name) is not None


def checked_name(name: str, location: str) -> str:
    """A name of the form ``org/name``; InputError for any other."""
    if not is_name(name):
        right = "expected org/name, of letters, digits, '.', '_' and '-'"
        raise InputError.at(location, f"the name is {name!r}", right)
    return name


def _checked(toml: Toml, whole: _Whole) -> None:
    checked_name(whole.dataset.name, toml.place(("dataset", "name")))
    if whole.dataset.version == "":
        raise toml.fault(("dataset", "version"), "the version is empty", "expected one such as '1.0.0', or no key")
    _pins(toml, "tasks", "name", [(pin.name, pin.digest) for pin in whole.tasks])
    _pins(toml, "files", "path", [(pin.path, pin.digest) for pin in whole.files])
    for at, file in enumerate(whole.files):
        if file.path in ("", ".", "..", DATASET_TOML) or set(file.path) & set("/\\\0"):
            right = f"expected the bare name of a file beside {DATASET_TOML}, such as metric.py"
            raise toml.fault(("files", at, "path"), f"the path is {file.path!r}", right)


def _pins(toml: Toml, table: str, key: str, pins: Sequence[tuple[str, str]]) -> None:
    seen: dict[str, int] = {}
    for at, (name, digest) in enumerate(pins):
        if table == "tasks" and not is_name(name):
            checked_name(name, toml.place((table, at, key)))
        if digest and not _DIGEST.fullmatch(digest):
            right = "expected sha256: and 64 digits of 0-9a-f, or nothing yet"
            raise toml.fault((table, at, "digest"), f"the digest of {name} is {digest!r}", right)
        if name in seen:
            first = toml.place((table, seen[name])).rpartition(":")[2]
            raise toml.fault((table, at, key), f"{name!r} appears twice, first at line {first}", "expected it once")
        seen[name] = at
