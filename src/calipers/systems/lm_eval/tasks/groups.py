"""Tasks by name: an index of folders, groups and tags, and which tasks a name refers to.

::

    name ──► task                      one leaf
         ──► group ──► its members     tasks, groups, tags, and inline ones, with overrides on the way
         ──► tag   ──► its tasks       by name; a tag is a selector and has no row of its own

The index has the few keys of each file that finding it needs. That of an installed lm-evaluation-harness is kept in
the user's cache, for its version and its very files: to read 14,000 files takes seconds, and to see that none has
changed takes a tenth of one.
"""

from __future__ import annotations

import importlib.util
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import yaml

from calipers.errors import InputError, UnknownName, nearest
from calipers.formats.source import read_up_to
from calipers.systems.lm_eval.tasks.task_file import (
    LARGEST,
    NAMES,
    NEVER_INHERITED,
    Function,
    TaskFields,
    TaskFile,
    included,
    load_file,
    read_task_file,
    shown,
    task_config,
    with_includes,
)

Kind = Literal["task", "group", "class"]
Keys = dict[str, Any]

SKIPPED: Final = ("__pycache__", ".ipynb_checkpoints")
FILES: Final = (".yaml", ".yml")
FORM: Final = 1  # of a kept index; another number is another form, and is not read
LARGEST_KEPT: Final = 64 << 20  # bytes
LISTED: Final = 100  # names at most that an error lists
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


OWN: Final = ("group", "group_alias", "task", "aggregate_metric_list", "metadata", "include", "tag")
AGGREGATING: Final = ("metric", "aggregation", "weight_by_size", "filter_list")  # of an entry of a group's list
UNTRUE: Final = ("false", "no", "off", "0")
DEEPEST: Final = 32  # groups in one another


@dataclass(frozen=True, slots=True)
class Leaf:
    """A task that is asked for."""

    name: str
    file: TaskFile
    config: TaskFields  # of a class, its name alone: the rest is known once it is made
    code: Any = None  # the class that the file names; None: its fields are the task


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """A group that is asked for: a row of its own over the tasks below it."""

    name: str
    alias: str
    members: Sequence[Leaf | TaskGroup]
    aggregate_metric_list: Sequence[Mapping[str, Any]] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


Node = Leaf | TaskGroup


class Tasks:
    """The tasks and groups of some folders; a later folder's name hides the same of an earlier one.

    The folders are looked through once a name is to be found in them: a file that is named by its path needs none.
    """

    def __init__(self, roots: Sequence[Path] = (), *, library: Path | None = None) -> None:
        """``library`` comes before all of them; its index is kept from one command to the next."""
        for root in roots:
            if not os.path.isdir(root):
                raise InputError.at(str(root), "no such folder", "expected a folder of task files")
        self._roots, self._library = roots, library

    @cached_property
    def heads(self) -> Mapping[str, TaskHead]:
        """What there is, by name."""
        names = dict(by_name(kept_heads(self._library))) if self._library else {}
        for root in self._roots:
            names |= by_name(heads(root))
        return names

    @cached_property
    def tags(self) -> Mapping[str, Sequence[str]]:
        """The tasks of each tag."""
        tagged: dict[str, list[str]] = {}
        for name, head in self.heads.items():
            for tag in head.tags:
                tagged.setdefault(tag, []).append(name)
        return tagged

    def has(self, query: str) -> bool:
        """Whether a name, a tag or a pattern is of anything here; what it stands for is not looked at."""
        if any(sign in query for sign in "*?"):
            return any(fnmatchcase(name, query) for name in (*self.heads, *self.tags))
        name = query.partition("@")[0]
        return name in self.heads or name in self.tags

    def find(self, query: str) -> list[Node]:
        """What a path, a name, a tag or a pattern such as ``mmlu_*`` means; ``name@format`` picks a format."""
        if Path(query).suffix in (".yaml", ".yml"):
            return [self._of_file(Path(query), {}, 0)]
        if not self.heads:
            wrong = (
                f"no task, group or tag named {query!r}: lm_eval is not installed, and no folder contains a task file"
            )
            raise UnknownName(f"{wrong}; install lm_eval, or give a folder of tasks to include")
        if any(sign in query for sign in "*?"):
            names = sorted(name for name in (*self.heads, *self.tags) if fnmatchcase(name, query))
            if not names:
                raise self.unknown(query)
            return [node for name in names for node in self._named(name, {}, query, 0)]
        return self._named(query, {}, query, 0)

    def unknown(self, name: str) -> UnknownName:
        """The error for a name that is no task, group or tag; an installed lm-eval has too many names to print."""
        names = (*self.heads, *self.tags)
        hint = "" if len(names) <= LISTED or nearest(name, names) else f"calipers list tasks shows {len(names):,} names"
        return UnknownName.of("task, group or tag", name, names, hint)

    def _named(self, query: str, overrides: Mapping[str, Any], location: str, depth: int) -> list[Node]:
        name, _, chosen = query.partition("@")
        if name in self.heads:
            return [self._of_file(self.heads[name].path, overrides, depth, chosen or None)]
        if name in self.tags:
            tagged = sorted(self.tags[name])
            return [node for task in tagged for node in self._named(task, overrides, location, depth)]
        error = self.unknown(name)
        if location == query:
            raise error
        nowhere = "" if self.heads else "; give the folder of the group's tasks with --include-path"
        raise UnknownName(f"{location}: {error}{nowhere}")

    def _of_file(self, path: Path, overrides: Mapping[str, Any], depth: int, chosen: str | None = None) -> Node:
        file = read_task_file(path)
        if "class" in file.values:
            return _class(file, overrides)
        if isinstance(file.values.get("group"), str):
            return self._group(file, overrides, depth)
        if not isinstance(file.values.get("task"), str):
            raise InputError.at(file.place("task"), "has no task and no group", "expected a name: task: my_task")
        return _leaf(file, overrides, chosen)

    def _group(self, file: TaskFile, overrides: Mapping[str, Any], depth: int, name: str | None = None) -> TaskGroup:
        """``overrides`` come from outside and win over the group's own for its members."""
        if depth > DEEPEST:
            raise InputError.at(file.place("group"), "groups contain each other", "expected groups without a cycle")
        values = file.values
        name = name or str(values["group"])
        settings = {key: value for key, value in values.items() if key not in OWN}
        for key in settings:
            if key not in NAMES:
                known = UnknownName.of("field of a group or task", key, (*OWN, *NAMES))
                raise UnknownName(f"{file.place(key)}: {known}")
        listed, location = values.get("task"), file.place("task")
        if not isinstance(listed, list) or not listed:
            raise InputError.at(location, f"is {shown(listed)}", "expected a list of tasks")
        passed = {**settings, **overrides}
        members = [node for member in listed for node in self._member(file, name, member, passed, location, depth + 1)]
        return TaskGroup(
            name,
            str(values.get("group_alias") or name),
            list({node.name: node for node in members}.values()),  # listed twice is one member, the last, as there
            _entries(file),
            values.get("metadata") or {},
        )

    def _member(
        self, file: TaskFile, group: str, member: Any, passed: Mapping[str, Any], location: str, depth: int
    ) -> list[Node]:
        if isinstance(member, str):
            return self._named(member, passed, location, depth)
        if not isinstance(member, Mapping):
            raise InputError.at(location, f"a member is {shown(member)}", "expected a name or a mapping")
        if isinstance(member.get("group"), str):
            name = str(member["group"])
            if name in self.heads and "task" not in member:
                mine = {key: value for key, value in member.items() if key == "metadata" or key not in OWN}
                return self._named(name, {**passed, **mine}, location, depth)
            inline = TaskFile(file.path, dict(member), {key: file.lines.get("task", "") for key in member})
            return [self._group(inline, passed, depth, f"{group}::{name}")]
        name, mine = str(member.get("task", "")), {key: value for key, value in member.items() if key != "task"}
        if name in self.heads or name in self.tags:
            for key in mine:
                if key not in NAMES and key not in OWN:
                    raise UnknownName(f"{location}: {UnknownName.of('field of a task', str(key), NAMES)}")
            return self._named(name, {**passed, **mine}, location, depth)
        if not name:
            raise InputError.at(location, f"a member is {shown(member)}", "expected task: NAME or group: NAME")
        if not mine.keys() & {"dataset_path", "include", "custom_dataset"} and not passed.keys() & {"dataset_path"}:
            raise UnknownName(f"{location}: {self.unknown(name)}")
        lines = {key: file.lines.get("task", "") for key in member}
        inline = with_includes(TaskFile(file.path, mine, lines), {})
        whole = {**passed, **inline.values, "task": f"{group}::{name}"}
        return [_leaf(TaskFile(file.path, whole, inline.lines), {}, None)]


def _leaf(file: TaskFile, overrides: Mapping[str, Any], chosen: str | None) -> Leaf:
    merged = TaskFile(file.path, {**file.values, **overrides, "task": file.values["task"]}, file.lines)
    return Leaf(str(file.values["task"]), merged, task_config(merged, chosen))


def _class(file: TaskFile, overrides: Mapping[str, Any]) -> Leaf:
    """A task written as a Python class, which is not loaded here: it is code that came with the data."""
    name = file.values.get("task")
    if not isinstance(name, str):
        raise InputError.at(file.place("task"), f"is {shown(name)}", "expected a name: task: my_task")
    merged = TaskFile(file.path, {**file.values, **overrides, "task": name}, file.lines)
    repeats = merged.values.get("repeats")
    config = TaskFields(task=name, repeats=repeats if isinstance(repeats, int) and repeats > 0 else 1)
    return Leaf(name, merged, config, merged.values["class"])


def _entries(file: TaskFile) -> Sequence[Mapping[str, Any]]:
    """What a group aggregates, checked before anything is run: every entry names a metric, and says how.

    lm-evaluation-harness takes a function for the aggregation, never calls it, and takes the mean; so do we. It also
    takes one for the metric, which is the name of no number of any task: such an entry has no value.
    """
    entries, location = file.values.get("aggregate_metric_list"), file.place("aggregate_metric_list")
    several = [] if entries is None else entries if isinstance(entries, list) else [entries]
    for number, entry in enumerate(several):
        here = f"{location}[{number}]"
        if not isinstance(entry, Mapping) or not isinstance(entry.get("metric"), (str, Function)):
            raise InputError.at(here, f"is {shown(entry)}", "expected a mapping with metric: NAME")
        for key in entry:
            if key not in AGGREGATING:
                known = UnknownName.of("key of aggregate_metric_list", str(key), AGGREGATING)
                raise UnknownName(f"{here}: {known}")
        aggregation, weighted = entry.get("aggregation", "mean"), entry.get("weight_by_size", True)
        if aggregation != "mean" and not isinstance(aggregation, Function):
            raise InputError.at(f"{here}.aggregation", f"is {shown(aggregation)}", "expected mean")
        if isinstance(weighted, str) and weighted.strip().lower() in UNTRUE:  # any text is true there
            raise InputError.at(f"{here}.weight_by_size", f"is {shown(weighted)}", "expected true or false")
        pipelines = entry.get("filter_list")
        named = [] if pipelines is None else [pipelines] if isinstance(pipelines, str) else pipelines
        if not isinstance(named, list) or not all(isinstance(pipeline, str) for pipeline in named):
            raise InputError.at(
                f"{here}.filter_list", f"is {shown(pipelines)}", "expected a pipeline, or a list of them"
            )
    named_entries = ({**entry, "metric": str(entry["metric"])} for entry in several)
    return [{**entry, "aggregation": "mean"} if "aggregation" in entry else entry for entry in named_entries]


def leaves(nodes: Sequence[Node]) -> list[Leaf]:
    """The tasks below some nodes, in order; InputError for one that is reached twice."""
    by_name: dict[str, Leaf] = {}
    for leaf in _below(nodes):
        if leaf.name in by_name:
            raise InputError.at(leaf.name, "the task is requested twice", "expected each task once, also inside groups")
        by_name[leaf.name] = leaf
    return list(by_name.values())


def every_group(nodes: Sequence[Node]) -> list[TaskGroup]:
    """The groups among some nodes and below them, the outer before the inner."""
    return [group for node in nodes if isinstance(node, TaskGroup) for group in (node, *every_group(node.members))]


def _below(nodes: Sequence[Node]) -> Iterator[Leaf]:
    for node in nodes:
        if isinstance(node, Leaf):
            yield node
        else:
            yield from _below(node.members)
