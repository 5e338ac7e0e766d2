"""dataset.toml: a dataset's name, its tasks and its files, each with the digest of its content."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from calipers.errors import InputError
from calipers.systems.harbor.tasks.toml import Toml, read_toml, regular

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

TASK_TOML: Final = "task.toml"
FILES: Final = ("README.md", "instruction.md", TASK_TOML, "trajectory.json")
FOLDERS: Final = ("environment", "solution", "steps", "tests")
IGNORE: Final = ".gitignore"
UNASKED: Final = ("__pycache__/", "*.pyc", ".DS_Store", "*.swp", "*.swo", "*~")  # where no .gitignore says otherwise
PREFIX: Final = "sha256:"
DATASET_TOML: Final = "dataset.toml"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


def task_digest(directory: str | os.PathLike[str]) -> str:
    """``sha256:`` and the hash of a task's files: of lines ``path NUL sha256hex LF``, sorted by path.

    The files are those of `task_files`. Their modes and times do not count, nor does the name of the directory.
    """
    root = Path(directory)
    whole = hashlib.sha256()
    for name in task_files(root):
        whole.update(f"{name}\0{file_digest(root / name).removeprefix(PREFIX)}\n".encode(errors="surrogateescape"))
    return PREFIX + whole.hexdigest()


def manifest_digest(tasks: Iterable[str], files: Mapping[str, str] | None = None) -> str:
    """The hash of a dataset, from the digests of its tasks and, by name, of its files: 64 bare digits.

    Neither the order nor the names of the tasks count.

    >>> manifest_digest(["sha256:" + "b" * 64, "sha256:" + "a" * 64])[:8]
    'b1da1a17'
    """
    text = ",".join(sorted(digest.removeprefix(PREFIX) for digest in tasks))
    if files:
        text += ";" + ",".join(sorted(f"{path}:{digest.removeprefix(PREFIX)}" for path, digest in files.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def file_digest(path: Path) -> str:
    """``sha256:`` and the hash of one file's bytes."""
    try:
        with open(path, "rb") as file:
            return PREFIX + hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError.at(str(path), f"cannot be read ({error.strerror})") from None


def task_files(directory: str | os.PathLike[str]) -> list[str]:
    """The files that make a task what it is, as sorted POSIX paths; what its ``.gitignore`` names is not among them.

    InputError for a directory without task.toml, and for a link that leads out of the task.
    """
    root = Path(directory)
    if not os.path.isfile(root / TASK_TOML):
        raise InputError.at(str(root), f"is not a task: it has no {TASK_TOML}", "expected a directory with one")
    ignored = _ignored(root)
    kept = [name for name in _candidates(root) if not ignored.match_file(name)]
    return sorted(name for name in kept if regular(root, root / name))


def _candidates(root: Path) -> Iterator[str]:
    yield from (name for name in FILES if os.path.lexists(root / name))
    for folder in FOLDERS:
        if os.path.islink(root / folder):
            yield folder  # it is refused: see `regular`
            continue
        if not os.path.lexists(root / folder):
            continue
        for here, folders, files in os.walk(root / folder, onerror=_unreadable):
            below = Path(here).relative_to(root).as_posix()
            links = [name for name in folders if os.path.islink(os.path.join(here, name))]
            yield from (f"{below}/{name}" for name in (*files, *links))


def _ignored(root: Path) -> GitIgnoreSpec:
    path = root / IGNORE
    if not os.path.lexists(path):
        return _spec(UNASKED)
    regular(root, path)
    try:
        return _spec(tuple(path.read_text(encoding="utf-8").splitlines()))
    except (OSError, ValueError) as error:  # ValueError: no UTF-8, or no pattern
        raise InputError.at(str(path), f"cannot be read ({error})", "expected gitignore's patterns") from None


@lru_cache(16)  # the tasks of a dataset mostly ignore the same files
def _spec(lines: tuple[str, ...]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(lines)


def _unreadable(error: OSError) -> None:
    raise InputError.at(str(error.filename), f"cannot be read ({error.strerror})") from None


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
