"""dataset.toml: a dataset's name, its tasks and its files, each with the digest of its content.

Also TOML files in general, read so that errors name the line, and names of files below a directory.
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


def below(root: Path, name: str, location: str = "") -> Path:
    """The path that a relative name means below a root, whether or not it is there.

    InputError for an absolute name, for ``..``, for a name that no file system has, and for one that
    a link carries out of the root. ``location`` says where the name was given.
    """
    where, right = location or str(root), "expected a path inside its own directory"
    parts = name.split("/")
    if not name or "\0" in name or "\\" in name or name.startswith("/") or ".." in parts or os.path.isabs(name):
        raise InputError.at(where, f"the path {name!r} points outside", right)
    path = root / name
    if not within(root, path):
        raise InputError.at(where, f"the path {name!r} is a link that points outside", right)
    return path


def within(root: Path, path: Path) -> bool:
    """Whether a path, all links followed, lies in a root or is it."""
    real, base = os.path.realpath(path), os.path.realpath(root)
    return real == base or real.startswith(base.rstrip(os.sep) + os.sep)


def regular(root: Path, path: Path) -> bool:
    """Whether a path is a regular file, or a link to one inside the root; InputError for any other kind of file.

    A link to a directory is refused as well: a walk does not follow it, so no digest would cover what it holds.
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


def _refuse(path: Path, wrong: str) -> bool:
    raise InputError.at(str(path), wrong, "expected a regular file in the folder")


T = TypeVar("T")
Steps = tuple[str | int, ...]
"""The way to a value: keys, and positions in lists."""

LARGEST: Final = 64 << 20  # bytes; a dataset of 500,000 tasks
_HEADER: Final = re.compile(r"\s*(\[\[?)\s*([^\[\]#]+?)\s*\]")
_KEY: Final = re.compile(r"\s*((?:[\w-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[\w-]+|\"[^\"]*\"|'[^']*'))*)\s*=")
_AT: Final = re.compile(r"(.*?) \(at (?:line (\d+), column \d+|end of document)\)", re.DOTALL)
_PATH: Final = re.compile(r"(.*?)(?: - at `(?:key in )?\$(.*)`)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Toml:
    """A TOML file: its values, and its text, which knows their lines."""

    path: Path
    text: str
    values: Mapping[str, Any]

    def fault(self, steps: Steps, wrong: str, right: str = "") -> InputError:
        """The error for a value, placed at its line, or at that of the table where it should be."""
        return InputError.at(self.place(steps), wrong, right)

    def place(self, steps: Steps) -> str:
        """``task.toml:7`` for the way to a value."""
        line = line_of(self.text, steps)
        return f"{self.path}:{line}" if line else str(self.path)

    def unknown(self, kind: type) -> list[str]:
        """The keys that a dataclass does not have, each with its place."""
        return [
            f"{self.place(steps)}: the key {named(steps)!r} is unknown and ignored"
            + (f"; did you mean {close!r}?" if close else "")
            for steps, close in unknown_keys(self.values, kind)
        ]

    def convert(self, values: Any, kind: type[T], at: Steps = ()) -> T:
        """The values, which stand at ``at``, as a dataclass; InputError with the line of a wrong one.

        Keys that it does not have are passed over.
        """
        try:
            return msgspec.convert(values, kind)
        except msgspec.ValidationError as error:
            match = _PATH.fullmatch(str(error))
            wrong, way = match.groups() if match else (str(error), "")
            inner = re.findall(r"\.([\w-]+)|\[(\d+)\]", way or "")
            steps = (*at, *(int(index) if index else key for key, index in inner))
            right = f"expected {' or '.join(words)}" if (words := _choices(kind, steps)) else ""
            message = _plain(wrong).replace("invalid enum value", "is")
            raise self.fault(steps, f"{named(steps)}: {message}" if steps else message, right) from None


def read_toml(root: Path, path: Path) -> Toml:
    """A TOML file of a directory; InputError, with the line, for what is no TOML or no plain file of its own."""
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
        what, at = (match[1], match[2]) if match else (str(error), None)
        line = int(at) if at else text.count("\n") + 1
        raise InputError.at(f"{path}:{line}", f"not valid TOML: {what[:1].lower()}{what[1:]}") from None
    except RecursionError:
        raise InputError.at(str(path), "not valid TOML: it is nested too deeply") from None
    except ValueError as error:  # a number of thousands of digits
        raise InputError.at(str(path), f"not valid TOML: {error}") from None


def line_of(text: str, steps: Steps) -> int | None:
    """The line of a value, or of the innermost table on the way to it that has a line of its own.

    >>> line_of("[a]\\nb = 1\\n[[c]]\\n[[c]]\\nd = 2", ("c", 1, "d"))
    5
    """
    counts: dict[Steps, int] = {}
    table: Steps = ()
    best, length = None, 0
    for number, line in enumerate(text.split("\n"), 1):
        if header := _HEADER.match(line):
            table = _within_lists(_keys(header[2]), counts)
            if header[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                table = (*table, counts[table])
            here = table[:-1] if table[:-1] == steps else table  # the list itself stands where its first entry does
        elif key := _KEY.match(line):
            here = (*table, *_keys(key[1]))
        else:
            continue
        if length < len(here) <= len(steps) and steps[: len(here)] == here:
            best, length = number, len(here)
    return best


def _within_lists(keys: Steps, counts: Mapping[Steps, int]) -> Steps:
    """The keys of a header, with the position in every list they pass through: its last one so far."""
    way: Steps = ()
    for position, key in enumerate(keys):
        way = (*way, key)
        if way in counts and position + 1 < len(keys):
            way = (*way, counts[way])
    return way


def _keys(dotted: str) -> Steps:
    return tuple(bare or quoted[1:-1] for bare, quoted in re.findall(r"([\w-]+)|(\"[^\"]*\"|'[^']*')", dotted))


def named(steps: Steps) -> str:
    """A way in words: ``steps[0].agent.timeout_sec``."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")


def _plain(wrong: str) -> str:
    """A sentence of msgspec in the words of TOML."""
    words = {"`": "", "Expected ": "expected ", "str": "text", "int": "an integer", "float": "a number"}
    words |= {"bool": "true or false", "object": "a table", "array": "a list", " | null": "", "Invalid": "invalid"}
    for theirs, ours in words.items():
        wrong = re.sub(rf"\b{theirs}\b", ours, wrong) if theirs.isalpha() else wrong.replace(theirs, ours)
    return wrong.replace("Object missing required field", "it has no").replace(" | ", " or ")


def _choices(kind: Any, steps: Steps) -> list[str]:
    """The words that a value may be, where it is one of a few."""
    for step in steps:
        inner: list[Any] = [hint for hint in (kind, *get_args(kind)) if is_dataclass(hint)]
        kind = _hints(inner[0]).get(str(step)) if inner and not isinstance(step, int) else kind
    literals = [hint for hint in (kind, *get_args(kind)) if get_origin(hint) is Literal]
    return [repr(word) for hint in literals for word in get_args(hint)]


@cache
def _hints(kind: Hashable) -> dict[str, Any]:
    return get_type_hints(kind)


def unknown_keys(values: Any, kind: Any, steps: Steps = ()) -> list[tuple[Steps, str]]:
    """The keys that a dataclass does not have, and the nearest that it does have, tables inside it included."""
    if isinstance(values, list):
        inner = next((arg for arg in get_args(kind) if arg is not Ellipsis), None)
        return [unknown for at, value in enumerate(values) for unknown in unknown_keys(value, inner, (*steps, at))]
    kind = next((hint for hint in (kind, *get_args(kind)) if is_dataclass(hint)), None)
    if kind is None or not isinstance(values, Mapping):
        return []
    hints, unknown = _hints(kind), []
    for key, value in values.items():
        if key in hints:
            unknown += unknown_keys(value, hints[key], (*steps, key))
        else:
            unknown.append(((*steps, key), next(iter(nearest(key, [field.name for field in fields(kind)], 1)), "")))
    return unknown


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
    _checked(toml, whole)
    head = {item.name: getattr(whole.dataset, item.name) for item in fields(Identity)}
    return Manifest(**head, metadata=whole.metadata, tasks=whole.tasks, files=whole.files, source=toml)


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
