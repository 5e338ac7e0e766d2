"""Which tasks and groups there are below a folder: the few keys of each file that finding it needs.

The index of an installed lm-evaluation-harness is kept in the user's cache, for its version and its very files: to
read 14,000 files takes seconds, and to see that none has changed takes a tenth of one.
"""

from __future__ import annotations

import importlib.util
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import yaml

from calipers.errors import InputError
from calipers.systems.lm_eval.tasks.task_file import LARGEST, NEVER_INHERITED, included, load_file
from calipers.tasks.lines import read_up_to

Kind = Literal["task", "group", "class"]
Keys = dict[str, Any]

SKIPPED: Final = ("__pycache__", ".ipynb_checkpoints")
FILES: Final = (".yaml", ".yml")
FORM: Final = 1  # of a kept index; another number is another form, and is not read
LARGEST_KEPT: Final = 64 << 20  # bytes
_KEYS: Final = re.compile(
    rb"^(task|group|tag|class|include)[ \t]*:(?=[ \t\r\n]).*\n(?:(?:[ \t#-].*)?\r?\n)*", re.MULTILINE
)
_SIMPLE: Final = re.compile(rb"^(?:[\w-]+[ \t]*:|[ \t#-]|\r?$)")
_WORD: Final = rb"[A-Za-z_][\w./-]*"  # a text that YAML takes for nothing else, but for the words below
_LINE: Final = re.compile(rb"\w+[ \t]*:[ \t]+(" + _WORD + rb")[ \t]*\r?\n(?:[ \t]*(?:#.*)?\r?\n)*")
_LIST: Final = re.compile(rb"\w+[ \t]*:[ \t]*\r?\n((?:  - " + _WORD + rb"[ \t]*\r?\n)+)\s*")
_OTHERWISE: Final = frozenset((b"true", b"false", b"yes", b"no", b"on", b"off", b"null"))


@dataclass(frozen=True, slots=True)
class TaskHead:
    """What a file is, as far as finding it goes."""

    file: str
    kind: Kind
    name: str
    tags: Sequence[str]

    @property
    def path(self) -> Path:
        """Where it is."""
        return Path(self.file)


def heads(root: Path) -> Iterator[TaskHead]:
    """Every task and group below a folder, by path; a file that is neither, or is no YAML, is passed over."""
    read: dict[str, Keys] = {}
    for folder, below, names in os.walk(root):
        below[:] = sorted(name for name in below if name not in SKIPPED)
        for name in sorted(names):
            if name.endswith(FILES):
                try:
                    head = _head(os.path.join(folder, name), read)
                except InputError:
                    continue  # as in lm-evaluation-harness: a broken file says so when it is asked for
                if head is not None:
                    yield head


def by_name(several: Iterable[TaskHead]) -> Mapping[str, TaskHead]:
    """The first of each name."""
    names: dict[str, TaskHead] = {}
    for head in several:
        names.setdefault(head.name, head)
    return names


def is_task_file(path: Path) -> bool:
    """Whether a YAML file is a task or a group of lm-evaluation-harness."""
    try:
        return _head(str(path), {}) is not None
    except InputError:
        return False


def _head(path: str, read: dict[str, Keys]) -> TaskHead | None:
    """The head of a file, its includes counted in; None for a file that is no task and no group."""
    keys = _keys(path, read, ())
    name, group = keys.get("task"), keys.get("group")
    if isinstance(keys.get("class"), str) or ("class" in keys and "task" in keys):
        return TaskHead(path, "class", str(keys.get("task", Path(path).stem)), _tags(keys))
    if isinstance(group, str):
        return TaskHead(path, "group", group, ())
    if isinstance(name, str):
        return TaskHead(path, "task", name, _tags(keys))
    return None


def _tags(keys: Keys) -> Sequence[str]:
    tags = keys.get("tag")
    return tuple(str(tag) for tag in (tags if isinstance(tags, list) else [tags] if tags else ()))


def _keys(path: str, read: dict[str, Keys], reached: tuple[str, ...]) -> Keys:
    """The few keys of a file and of what it includes; ``read`` keeps those of included files, which many share."""
    keys_of_file = dict(_few(path))
    names = keys_of_file.pop("include", None)
    if not names:
        return keys_of_file
    keys: Keys = {}
    reached = (*reached, os.path.realpath(path))
    for name in names if isinstance(names, list) else [names]:
        other = os.path.normpath(os.path.join(os.path.dirname(path), str(name)))
        if other not in read and os.path.isfile(other):
            if os.path.realpath(other) in reached:
                continue
            read[other] = _keys(other, read, reached)
        keys |= {key: value for key, value in read.get(other, {}).items() if key != NEVER_INHERITED}
    return keys | keys_of_file


def _few(path: str) -> Keys:
    try:
        with open(path, "rb") as stream:
            content = read_up_to(stream, LARGEST) + b"\n"
        if all(map(_SIMPLE.match, content.split(b"\n", 50)[:50])):
            pieces = list(_KEYS.finditer(content))
            keys = _plain(pieces)
            if keys is None:
                keys = yaml.load(b"".join(piece[0] for piece in pieces).replace(b"!function", b""), _Plain) or {}
            return keys if isinstance(keys, dict) else {}
    except (OSError, yaml.YAMLError, ValueError, RecursionError):
        pass
    whole = load_file(Path(path))
    kept = {key: value for key, value in whole.values.items() if key in ("task", "group", "tag", "class")}
    return {**kept, "include": included(whole)}


_Plain: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _plain(pieces: Sequence[re.Match[bytes]]) -> Keys | None:
    """The keys where each is a plain word or a list of them, as nearly all are; None where only YAML can say."""
    keys: Keys = {}
    for piece in pieces:
        if line := _LINE.fullmatch(piece[0]):
            words = [line[1]]
        elif listed := _LIST.fullmatch(piece[0]):
            words = [item.strip()[2:] for item in listed[1].splitlines()]
        else:
            return None
        if any(word.lower() in _OTHERWISE for word in words):
            return None
        texts = [word.decode("ascii") for word in words]
        keys[piece[1].decode()] = texts[0] if line else texts
    return keys


def installed() -> Path | None:
    """The task folder of an installed lm-evaluation-harness; it is found, not imported."""
    try:
        spec = importlib.util.find_spec("lm_eval")
    except (ImportError, ValueError):
        return None
    places = list(spec.submodule_search_locations or ()) if spec else []
    folder = Path(places[0]) / "tasks" if places else None
    return folder if folder and folder.is_dir() else None


class _KeptIndex(msgspec.Struct):
    """The file of a kept index; paths are from the folder."""

    form: int
    version: str
    folder: str
    files: str  # a digest of every file's path, size and time
    heads: list[tuple[str, Kind, str, list[str]]]


def kept_heads(root: Path) -> list[TaskHead]:
    """The heads of an installed library, from the index that an earlier command kept where it is of these very files.

    What cannot be read, was written by somebody else or is about other files is made anew; where nothing can be
    kept, the index is made each time.
    """
    folder, version = str(root.resolve()), _version()
    path, files = _kept_path(folder, version), _digest(folder)
    kept = _read(path)
    if kept is not None and (kept.form, kept.version, kept.folder, kept.files) == (FORM, version, folder, files):
        return [TaskHead(os.path.join(root, name), kind, task, tags) for name, kind, task, tags in kept.heads]
    made = list(heads(root))
    rows = [(os.path.relpath(head.file, root), head.kind, head.name, list(head.tags)) for head in made]
    keep_file(path, msgspec.json.encode(_KeptIndex(FORM, version, folder, files, rows)))
    return made


def _version() -> str:
    try:
        return metadata.version("lm_eval")
    except metadata.PackageNotFoundError:
        return "unknown"


def _kept_path(folder: str, version: str) -> Path:
    key = sha256(f"{version}\0{folder}".encode(errors="surrogateescape")).hexdigest()[:16]
    return cache_folder() / f"index-{key}.json"


def cache_folder() -> Path:
    """Where files are kept that can be made again, for this user."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return home / "calipers" / "lm_eval"


def _digest(folder: str) -> str:
    """Of all files below a folder but Python's own, as an included file has any name: path, size and time of each."""
    whole, rest = [], [folder]
    while rest:
        with suppress(OSError), os.scandir(rest.pop()) as entries:
            for entry in entries:
                if entry.is_dir():
                    rest += [] if entry.name in SKIPPED or entry.is_symlink() else [entry.path]
                elif not entry.name.endswith((".py", ".md")):
                    status = entry.stat()
                    whole.append(f"{entry.path}\0{status.st_size}\0{status.st_mtime_ns}")
    return sha256("\n".join(sorted(whole)).encode(errors="surrogateescape")).hexdigest()


def _read(path: Path) -> _KeptIndex | None:
    content = read_kept(path, LARGEST_KEPT)
    try:
        kept = None if content is None else msgspec.json.decode(content, type=_KeptIndex)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return kept if kept is not None and all(_is_below(name) for name, *_ in kept.heads) else None


def read_kept(path: Path, most: int) -> bytes | None:
    """The bytes of a kept file; None where there is none, it is too large, or somebody else can write it."""
    try:
        with open(path, "rb", opener=_opener) as stream:
            status = os.fstat(stream.fileno())
            mine = not hasattr(os, "getuid") or status.st_uid == os.getuid()
            if not mine or status.st_mode & 0o022 or not stat.S_ISREG(status.st_mode):
                return None
            return read_up_to(stream, most)
    except (OSError, ValueError):
        return None


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # a pipe of that name is not waited for


def _is_below(name: str) -> bool:
    return not os.path.isabs(name) and ".." not in Path(name).parts


def keep_file(path: Path, content: bytes) -> None:
    """Keep a file for this user alone: whole or not at all, whoever else writes it at the same time."""
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        number, beside = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")  # readable by the user alone
        try:
            with os.fdopen(number, "wb") as stream:
                stream.write(content)
            os.replace(beside, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(beside)
            raise
