"""Reads dataset.toml: a dataset's name, its tasks and its files, each with the digest of its content.

Also reads any TOML file so that errors name the line, checks paths below a directory, and computes digests.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tomllib
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from calipers.errors import InputError, nearest
from calipers.formats.source import read_up_to
from calipers.typed import complete


def below(root: Path, name: str, location: str = "") -> Path:
    """The path of a relative name below a root, whether or not it exists.

    InputError for an absolute name, for ``..``, for a name that is no valid file name, and for a link that leads out
    of the root. ``location`` is the place of the name, for the error.
    """
    location, expected = location or str(root), "expected a path inside its own directory"
    parts = name.split("/")
    if not name or "\0" in name or "\\" in name or name.startswith("/") or ".." in parts or os.path.isabs(name):
        raise InputError.at(location, f"the path {name!r} points outside", expected)
    path = root / name
    if not within(root, path):
        raise InputError.at(location, f"the path {name!r} is a link that points outside", expected)
    return path


def within(root: Path, path: Path) -> bool:
    """Whether a path, with all links followed, is a root or lies in it."""
    real, base = os.path.realpath(path), os.path.realpath(root)
    return real == base or real.startswith(base.rstrip(os.sep) + os.sep)


def regular(root: Path, path: Path) -> bool:
    """True for a regular file, or a link to one inside the root; InputError for anything else.

    A link to a directory is refused as well: walking a directory does not follow it, so no digest would cover its
    files.
    """
    try:
        mode = os.lstat(path).st_mode
        if not stat.S_ISLNK(mode):
            return stat.S_ISREG(mode) or _refuse(path, "is not a regular file")
        if not within(root, path):
            return _refuse(path, f"is a link out of {root}")
        return stat.S_ISREG(os.stat(path).st_mode) or _refuse(path, "is a link to something that is not a file")
    except OSError as error:
        return _refuse(path, f"cannot be read ({error.strerror})")


def _refuse(path: Path, message: str) -> bool:
    raise InputError.at(str(path), message, "expected a regular file in the folder")


T = TypeVar("T")
KeyPath = tuple[str | int, ...]
"""The path to a value in a TOML document: keys, and positions in lists."""

LARGEST: Final = 64 << 20  # bytes; enough for a dataset of 500,000 tasks
_HEADER: Final = re.compile(r"\s*(\[\[?)\s*([^\[\]#]+?)\s*\]")
_KEY: Final = re.compile(r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*=")
_AT: Final = re.compile(r"(.*?) \(at (?:line (\d+), column \d+|end of document)\)", re.DOTALL)
_PATH: Final = re.compile(r"(.*?)(?: - at `(?:key in )?\$(.*)`)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Toml:
    """A TOML file: its values, and its text, in which the lines of values are found."""

    path: Path
    text: str
    values: Mapping[str, Any]

    def error_at(self, keys: KeyPath, message: str, expected: str = "") -> InputError:
        """An InputError at the line of a value, or of the table where the value should be."""
        return InputError.at(self.location(keys), message, expected)

    def location(self, keys: KeyPath) -> str:
        """The file and line of a value, such as ``task.toml:7``."""
        line = line_of(self.text, keys)
        return f"{self.path}:{line}" if line else str(self.path)

    def unknown(self, kind: type) -> list[str]:
        """A note with the location of each key that a dataclass does not have."""
        return [
            f"{self.location(keys)}: the key {dotted(keys)!r} is unknown and ignored"
            + (f"; did you mean {close!r}?" if close else "")
            for keys, close in unknown_keys(self.values, kind)
        ]

    def convert(self, values: Any, kind: type[T], at: KeyPath = ()) -> T:
        """The values at a key path as a dataclass; InputError with the line of an invalid value.

        Keys that the dataclass does not have are ignored.
        """
        try:
            return msgspec.convert(values, complete(kind))
        except msgspec.ValidationError as error:
            match = _PATH.fullmatch(str(error))
            reason, path = match.groups() if match else (str(error), "")
            inner = re.findall(r"\.([\w-]+)|\[(\d+)\]", path or "")
            keys = (*at, *(int(index) if index else key for key, index in inner))
            expected = f"expected {' or '.join(choices)}" if (choices := _choices(kind, keys)) else ""
            message = _plain(reason).replace("invalid enum value", "is")
            raise self.error_at(keys, f"{dotted(keys)}: {message}" if keys else message, expected) from None


def read_toml(root: Path, path: Path) -> Toml:
    """A TOML file of a directory; InputError, with the line, if it is not valid TOML or not a regular file in it."""
    regular(root, path)
    try:
        with open(path, "rb") as file:
            raw = read_up_to(file, LARGEST + 1)
    except OSError as error:
        raise InputError.at(str(path), f"cannot be read ({error.strerror})") from None
    if len(raw) > LARGEST:
        raise InputError.at(str(path), f"is larger than {LARGEST >> 20} MiB", "expected a file of settings")
    try:
        text = raw.decode()
        return Toml(path, text, tomllib.loads(text))
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError.at(f"{path}:{line}", "is not UTF-8", "expected UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        match = _AT.fullmatch(str(error))
        reason, number = (match[1], match[2]) if match else (str(error), None)
        line = int(number) if number else text.count("\n") + 1
        raise InputError.at(f"{path}:{line}", f"not valid TOML: {reason[:1].lower()}{reason[1:]}") from None
    except RecursionError:
        raise InputError.at(str(path), "not valid TOML: it is nested too deeply") from None
    except ValueError as error:  # a number of thousands of digits
        raise InputError.at(str(path), f"not valid TOML: {error}") from None


def line_of(text: str, keys: KeyPath) -> int | None:
    """The line of a value, or else of the innermost table around it that has a line of its own.

    >>> line_of("[a]\\nb = 1\\n[[c]]\\n[[c]]\\nd = 2", ("c", 1, "d"))
    5
    """
    positions: dict[KeyPath, int] = {}  # of the last table of each list so far
    table: KeyPath = ()
    best_line, best_length = None, 0
    for number, line in enumerate(text.split("\n"), 1):
        if header := _HEADER.match(line):
            table = _with_positions(_split(header[2]), positions)
            if header[1] == "[[":
                positions[table] = positions.get(table, -1) + 1
                table = (*table, positions[table])
            path = table[:-1] if table[:-1] == keys else table  # a list has the line of its first table
        elif key := _KEY.match(line):
            path = (*table, *_split(key[1]))
        else:
            continue
        if best_length < len(path) <= len(keys) and keys[: len(path)] == path:
            best_line, best_length = number, len(path)
    return best_line


def _with_positions(keys: KeyPath, positions: Mapping[KeyPath, int]) -> KeyPath:
    """The keys of a header, with the position of the last table after each list that they pass through."""
    path: KeyPath = ()
    for number, key in enumerate(keys, 1):
        path = (*path, key)
        if path in positions and number < len(keys):
            path = (*path, positions[path])
    return path


def _split(key: str) -> KeyPath:
    return tuple(bare or quoted[1:-1] for bare, quoted in re.findall(r"([\w-]+)|(\"[^\"]*\"|'[^']*')", key))


def dotted(keys: KeyPath) -> str:
    """A key path as text, such as ``steps[0].agent.timeout_sec``."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).removeprefix(".")


def _plain(reason: str) -> str:
    """An error message of msgspec in the terms of TOML."""
    words = {"`": "", "Expected ": "expected ", "str": "text", "int": "an integer", "float": "a number"}
    words |= {"bool": "true or false", "object": "a table", "array": "a list", " | null": "", "Invalid": "invalid"}
    for theirs, ours in words.items():
        reason = re.sub(rf"\b{theirs}\b", ours, reason) if theirs.isalpha() else reason.replace(theirs, ours)
    return reason.replace("Object missing required field", "it has no").replace(" | ", " or ")


def _choices(kind: Any, keys: KeyPath) -> list[str]:
    """The words that the value at a key path may be; none if its type is not a Literal."""
    for key in keys:
        inner: list[Any] = [hint for hint in (kind, *get_args(kind)) if is_dataclass(hint)]
        kind = _hints(inner[0]).get(str(key)) if inner and not isinstance(key, int) else kind
    literals = [hint for hint in (kind, *get_args(kind)) if get_origin(hint) is Literal]
    return [repr(word) for hint in literals for word in get_args(hint)]


@cache
def _hints(kind: Hashable) -> dict[str, Any]:
    return get_type_hints(kind)


def unknown_keys(values: Any, kind: Any, keys: KeyPath = ()) -> list[tuple[KeyPath, str]]:
    """The keys that a dataclass does not have, each with the nearest one that it has; nested tables included."""
    if isinstance(values, list):
        inner = next((arg for arg in get_args(kind) if arg is not Ellipsis), None)
        return [unknown for at, value in enumerate(values) for unknown in unknown_keys(value, inner, (*keys, at))]
    kind = next((hint for hint in (kind, *get_args(kind)) if is_dataclass(hint)), None)
    if kind is None or not isinstance(values, Mapping):
        return []
    hints, unknown = _hints(kind), []
    for key, value in values.items():
        if key in hints:
            unknown += unknown_keys(value, hints[key], (*keys, key))
        else:
            unknown.append(((*keys, key), next(iter(nearest(key, [field.name for field in fields(kind)], 1)), "")))
    return unknown


if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

TASK_TOML: Final = "task.toml"
FILES: Final = ("README.md", "instruction.md", TASK_TOML, "trajectory.json")  # of a task, for its digest
FOLDERS: Final = ("environment", "solution", "steps", "tests")  # likewise
IGNORE: Final = ".gitignore"
DEFAULT_IGNORE: Final = ("__pycache__/", "*.pyc", ".DS_Store", "*.swp", "*.swo", "*~")  # for a task without .gitignore
PREFIX: Final = "sha256:"
DATASET_TOML: Final = "dataset.toml"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


def task_digest(directory: str | os.PathLike[str]) -> str:
    """A task's digest: ``sha256:`` and the hash of lines ``path NUL sha256hex LF``, one per file, sorted by path.

    The files are those of `task_files`. Their modes and times do not count, nor does the name of the directory.
    """
    root = Path(directory)
    total = hashlib.sha256()
    for name in task_files(root):
        total.update(f"{name}\0{file_digest(root / name).removeprefix(PREFIX)}\n".encode(errors="surrogateescape"))
    return PREFIX + total.hexdigest()


def manifest_digest(tasks: Iterable[str], files: Mapping[str, str] | None = None) -> str:
    """A dataset's digest: 64 hex digits, from the digests of its tasks and the names and digests of its files.

    The order and the names of the tasks do not count.

    >>> manifest_digest(["sha256:" + "b" * 64, "sha256:" + "a" * 64])[:8]
    'b1da1a17'
    """
    text = ",".join(sorted(digest.removeprefix(PREFIX) for digest in tasks))
    if files:
        text += ";" + ",".join(sorted(f"{path}:{digest.removeprefix(PREFIX)}" for path, digest in files.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def file_digest(path: Path) -> str:
    """A file's digest: ``sha256:`` and the hash of its bytes."""
    try:
        with open(path, "rb") as file:
            return PREFIX + hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError.at(str(path), f"cannot be read ({error.strerror})") from None


def task_files(directory: str | os.PathLike[str]) -> list[str]:
    """The files that a task's digest covers, as sorted POSIX paths, without those that its ``.gitignore`` names.

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
        return _spec(DEFAULT_IGNORE)
    regular(root, path)
    try:
        return _spec(tuple(path.read_text(encoding="utf-8").splitlines()))
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or not a pattern
        raise InputError.at(str(path), f"cannot be read ({error})", "expected gitignore's patterns") from None


@lru_cache(16)  # most tasks of a dataset ignore the same files
def _spec(lines: tuple[str, ...]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(lines)


def _unreadable(error: OSError) -> None:
    raise InputError.at(str(error.filename), f"cannot be read ({error.strerror})") from None


@dataclass(frozen=True, slots=True)
class Author:
    """An author of a dataset or a task."""

    name: str
    email: str | None = None


@dataclass(frozen=True, slots=True)
class Pinned:
    """A task that dataset.toml lists, by name; the digest is empty if it was not computed yet."""

    name: str
    digest: str = ""


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """A file that dataset.toml lists, such as metric.py; its path is a bare file name."""

    path: str
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Identity:
    """The name and description of a dataset or a task: its table ``[dataset]`` or ``[task]``."""

    name: str  # org/name
    version: str | None = None
    description: str = ""
    authors: tuple[Author, ...] = ()
    keywords: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _ManifestHead(Identity):
    tasks: tuple[Any, ...] = ()  # Harbor writes an empty list here when a dataset has no tasks


@dataclass(frozen=True, slots=True)
class _ManifestFile:
    dataset: _ManifestHead
    schema_version: str = "1.0"
    metadata: Mapping[str, Any] = field(default_factory=dict)
    tasks: tuple[Pinned, ...] = ()
    files: tuple[PinnedFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Manifest(Identity):
    """The content of a dataset.toml, with tasks in the order of the file."""

    metadata: Mapping[str, Any] = field(default_factory=dict)
    tasks: tuple[Pinned, ...] = ()
    files: tuple[PinnedFile, ...] = ()
    source: Toml = field(repr=False, compare=False, kw_only=True)  # for the lines of errors

    @property
    def org(self) -> str:
        """The organisation: the part of the name before the slash."""
        return self.name.partition("/")[0]

    @property
    def digest(self) -> str:
        """The dataset's digest, from the digests that the file states."""
        return manifest_digest((pin.digest for pin in self.tasks), {pin.path: pin.digest for pin in self.files})

    @property
    def unknown(self) -> list[str]:
        """A note on each unknown key, with its location."""
        return self.source.unknown(_ManifestFile)


def read_manifest(directory: Path) -> Manifest | None:
    """The validated dataset.toml of a directory; None if there is no such file."""
    path = directory / DATASET_TOML
    return manifest_of(read_toml(directory, path)) if os.path.lexists(path) else None


def manifest_of(toml: Toml) -> Manifest:
    """The manifest in a dataset.toml; InputError names the line of an invalid value."""
    file = toml.convert(toml.values, _ManifestFile)
    _check(toml, file)
    head = {item.name: getattr(file.dataset, item.name) for item in fields(Identity)}
    return Manifest(**head, metadata=file.metadata, tasks=file.tasks, files=file.files, source=toml)


def is_name(name: str) -> bool:
    """Whether a name has the form ``org/name``."""
    return _NAME.fullmatch(name) is not None


def checked_name(name: str, location: str) -> str:
    """The name, if it has the form ``org/name``; InputError otherwise."""
    if not is_name(name):
        expected = "expected org/name, of letters, digits, '.', '_' and '-'"
        raise InputError.at(location, f"the name is {name!r}", expected)
    return name


def _check(toml: Toml, file: _ManifestFile) -> None:
    checked_name(file.dataset.name, toml.location(("dataset", "name")))
    if file.dataset.version == "":
        raise toml.error_at(("dataset", "version"), "the version is empty", "expected one such as '1.0.0', or no key")
    _check_pins(toml, "tasks", "name", [(pin.name, pin.digest) for pin in file.tasks])
    _check_pins(toml, "files", "path", [(pin.path, pin.digest) for pin in file.files])
    for at, pin in enumerate(file.files):
        if pin.path in ("", ".", "..", DATASET_TOML) or set(pin.path) & set("/\\\0"):
            expected = f"expected the bare name of a file beside {DATASET_TOML}, such as metric.py"
            raise toml.error_at(("files", at, "path"), f"the path is {pin.path!r}", expected)


def _check_pins(toml: Toml, table: str, key: str, pins: Sequence[tuple[str, str]]) -> None:
    first: dict[str, int] = {}
    for at, (name, digest) in enumerate(pins):
        if table == "tasks" and not is_name(name):
            checked_name(name, toml.location((table, at, key)))
        if digest and not _DIGEST.fullmatch(digest):
            expected = "expected sha256: and 64 digits of 0-9a-f, or nothing yet"
            raise toml.error_at((table, at, "digest"), f"the digest of {name} is {digest!r}", expected)
        if name in first:
            line = toml.location((table, first[name])).rpartition(":")[2]
            raise toml.error_at((table, at, key), f"{name!r} appears twice, first at line {line}", "expected it once")
        first[name] = at
