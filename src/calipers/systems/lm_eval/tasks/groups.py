"""Finds tasks by name: an index of the tasks, groups and tags in folders, and the tasks that a name refers to.

::

    name ──► task                      one leaf
         ──► group ──► its members     tasks, groups and tags by name or inline, with overrides
         ──► tag   ──► its tasks       by name; a tag only selects tasks and has no row of its own

The index contains only the keys of a file that are needed to find it. The index of an installed lm-evaluation-harness
is stored in the user's cache, together with its version and a digest of its files, because reading 14,000 files takes
seconds, and checking that none has changed takes a tenth of a second.
"""

from __future__ import annotations

import importlib.util
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property, partial
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import yaml

from calipers.errors import InputError, UnknownName, nearest
from calipers.formats.source import read_up_to
from calipers.stores import atomic_path
from calipers.systems.lm_eval.tasks import (
    LARGEST,
    NAMES,
    NEVER_INHERITED,
    SAFE_LOADER,
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
from calipers.typed import complete

Kind = Literal["task", "group", "class"]
Keys = dict[str, Any]

SKIPPED: Final = ("__pycache__", ".ipynb_checkpoints")
FILES: Final = (".yaml", ".yml")
INDEX_FORMAT: Final = 1  # version of the cached index; an index of another version is not read
MAX_INDEX_BYTES: Final = 64 << 20
MAX_LISTED: Final = 100  # names in an error message
_KEYS: Final = re.compile(
    rb"^(task|group|tag|class|include)[ \t]*:(?=[ \t\r\n]).*\n(?:(?:[ \t#-].*)?\r?\n)*", re.MULTILINE
)
_SIMPLE: Final = re.compile(rb"^(?:[\w-]+[ \t]*:|[ \t#-]|\r?$)")
_WORD: Final = rb"[A-Za-z_][\w./-]*"  # a text that YAML reads as text, except for _NOT_TEXT
_LINE: Final = re.compile(rb"\w+[ \t]*:[ \t]+(" + _WORD + rb")[ \t]*\r?\n(?:[ \t]*(?:#.*)?\r?\n)*")
_LIST: Final = re.compile(rb"\w+[ \t]*:[ \t]*\r?\n((?:  - " + _WORD + rb"[ \t]*\r?\n)+)\s*")
_NOT_TEXT: Final = frozenset((b"true", b"false", b"yes", b"no", b"on", b"off", b"null"))


@dataclass(frozen=True, slots=True)
class TaskHead:
    """The entry of a task file in the index."""

    file: str
    kind: Kind
    name: str
    tags: Sequence[str]

    @property
    def path(self) -> Path:
        """The path of the file."""
        return Path(self.file)


def heads(root: Path) -> Iterator[TaskHead]:
    """Every task and group below a folder, sorted by path; other files, and files that are not YAML, are ignored."""
    included_keys: dict[str, Keys] = {}
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = sorted(name for name in subfolders if name not in SKIPPED)
        for name in sorted(names):
            if name.endswith(FILES):
                try:
                    head = _head(os.path.join(folder, name), included_keys)
                except InputError:
                    continue  # a broken file is an error only if it is requested, as in lm-evaluation-harness
                if head is not None:
                    yield head


def by_name(heads: Iterable[TaskHead]) -> dict[str, TaskHead]:
    """The first entry of each name."""
    names: dict[str, TaskHead] = {}
    for head in heads:
        names.setdefault(head.name, head)
    return names


def is_task_file(path: str | Path) -> bool:
    """Whether a path is a file of a task or group of lm-evaluation-harness, and not a configuration of Calipers."""
    if Path(path).suffix not in FILES or not os.path.isfile(path):
        return False
    try:
        return _head(str(path), {}) is not None
    except InputError:
        return False


def _head(path: str, included_keys: dict[str, Keys]) -> TaskHead | None:
    """The index entry of a file with its includes; None for a file that is neither a task nor a group."""
    keys = _keys(path, included_keys, ())
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


def _keys(path: str, included_keys: dict[str, Keys], reached: tuple[str, ...]) -> Keys:
    """The index keys of a file and its includes; ``included_keys`` caches those of included files, which many share."""
    own_keys = dict(_own_keys(path))
    names = own_keys.pop("include", None)
    if not names:
        return own_keys
    keys: Keys = {}
    reached = (*reached, os.path.realpath(path))
    for name in names if isinstance(names, list) else [names]:
        other = os.path.normpath(os.path.join(os.path.dirname(path), str(name)))
        if other not in included_keys and os.path.isfile(other):
            if os.path.realpath(other) in reached:
                continue
            included_keys[other] = _keys(other, included_keys, reached)
        keys |= {key: value for key, value in included_keys.get(other, {}).items() if key != NEVER_INHERITED}
    return keys | own_keys


def _own_keys(path: str) -> Keys:
    """The index keys of a file; a simple file is searched for them, any other is parsed completely."""
    try:
        with open(path, "rb") as stream:
            content = read_up_to(stream, LARGEST) + b"\n"
        if all(map(_SIMPLE.match, content.split(b"\n", 50)[:50])):
            matches = list(_KEYS.finditer(content))
            keys = _plain_keys(matches)
            if keys is None:
                keys = yaml.load(b"".join(match[0] for match in matches).replace(b"!function", b""), SAFE_LOADER) or {}
            return keys if isinstance(keys, dict) else {}
    except (OSError, yaml.YAMLError, ValueError, RecursionError):
        pass
    file = load_file(Path(path))
    keys = {key: value for key, value in file.values.items() if key in ("task", "group", "tag", "class")}
    return {**keys, "include": included(file)}


def _plain_keys(matches: Sequence[re.Match[bytes]]) -> Keys | None:
    """The keys if each is a plain word or a list of plain words, as in nearly all files; None if YAML must parse it."""
    keys: Keys = {}
    for match in matches:
        if line := _LINE.fullmatch(match[0]):
            words = [line[1]]
        elif items := _LIST.fullmatch(match[0]):
            words = [item.strip()[2:] for item in items[1].splitlines()]
        else:
            return None
        if any(word.lower() in _NOT_TEXT for word in words):
            return None
        texts = [word.decode("ascii") for word in words]
        keys[match[1].decode()] = texts[0] if line else texts
    return keys


def installed() -> Path | None:
    """The task folder of an installed lm-evaluation-harness, which is not imported; None if it is not installed."""
    try:
        spec = importlib.util.find_spec("lm_eval")
    except (ImportError, ValueError):
        return None
    packages = list(spec.submodule_search_locations or ()) if spec else []
    folder = Path(packages[0]) / "tasks" if packages else None
    return folder if folder and folder.is_dir() else None


class _CachedIndex(msgspec.Struct):
    """The file of a cached index; paths are relative to the folder."""

    form: int
    version: str
    folder: str
    files: str  # a digest of the path, size and modification time of every file
    heads: list[tuple[str, Kind, str, list[str]]]


def indexed_heads(root: Path) -> list[TaskHead]:
    """The index entries of an installed library, from the index in the user's cache if the files are unchanged.

    If the cached index cannot be read, was written by another user or is out of date, it is made and written again. If
    it cannot be written, it is made each time.
    """
    folder, version = str(root.resolve()), _version()
    path, files = _index_path(folder, version), _digest(folder)
    index = _read_index(path)
    key = INDEX_FORMAT, version, folder, files
    if index is not None and (index.form, index.version, index.folder, index.files) == key:
        return [TaskHead(os.path.join(root, name), kind, task, tags) for name, kind, task, tags in index.heads]
    entries = list(heads(root))
    rows = [(os.path.relpath(head.file, root), head.kind, head.name, list(head.tags)) for head in entries]
    write_cached(path, msgspec.json.encode(_CachedIndex(*key, rows)))
    return entries


def _version() -> str:
    try:
        return metadata.version("lm_eval")
    except metadata.PackageNotFoundError:
        return "unknown"


def _index_path(folder: str, version: str) -> Path:
    key = sha256(f"{version}\0{folder}".encode(errors="surrogateescape")).hexdigest()[:16]
    return cache_folder() / f"index-{key}.json"


def cache_folder() -> Path:
    """The user's folder for files that can be made again."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return home / "calipers" / "lm_eval"


def _digest(folder: str) -> str:
    """The path, size and modification time of all files below a folder, as a digest.

    Python and Markdown files are ignored; any other file may be included by a task file.
    """
    lines, folders = [], [folder]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir():
                    folders += [] if entry.name in SKIPPED or entry.is_symlink() else [entry.path]
                elif not entry.name.endswith((".py", ".md")):
                    status = entry.stat()
                    lines.append(f"{entry.path}\0{status.st_size}\0{status.st_mtime_ns}")
    return sha256("\n".join(sorted(lines)).encode(errors="surrogateescape")).hexdigest()


def _read_index(path: Path) -> _CachedIndex | None:
    content = read_cached(path, MAX_INDEX_BYTES)
    try:
        index = None if content is None else msgspec.json.decode(content, type=complete(_CachedIndex))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return index if index is not None and all(_is_below(name) for name, *_ in index.heads) else None


def read_cached(path: Path, max_bytes: int) -> bytes | None:
    """The bytes of a file in the user's cache; None if it is missing or too large, or if another user can write it."""
    try:
        with open(path, "rb", opener=_opener) as stream:
            status = os.fstat(stream.fileno())
            is_owner = not hasattr(os, "getuid") or status.st_uid == os.getuid()
            if not is_owner or status.st_mode & 0o022 or not stat.S_ISREG(status.st_mode):
                return None
            return read_up_to(stream, max_bytes)
    except (OSError, ValueError):
        return None


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # do not wait for a writer if the file is a pipe


def _is_below(name: str) -> bool:
    return not os.path.isabs(name) and ".." not in Path(name).parts


def write_cached(path: Path, content: bytes) -> None:
    """Write a file to the user's cache atomically, if it can be written; only the user may read it."""
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with atomic_path(path) as temporary, open(temporary, "xb", opener=partial(os.open, mode=0o600)) as stream:
            stream.write(content)


GROUP_FIELDS: Final = ("group", "group_alias", "task", "aggregate_metric_list", "metadata", "include", "tag")
AGGREGATE_KEYS: Final = ("metric", "aggregation", "weight_by_size", "filter_list")  # of aggregate_metric_list entries
FALSE_WORDS: Final = ("false", "no", "off", "0")
MAX_DEPTH: Final = 32  # of nested groups


@dataclass(frozen=True, slots=True)
class Leaf:
    """A requested task."""

    name: str
    file: TaskFile
    config: TaskFields  # for a class only its name and repeats; the rest is known once it is created
    code: Any = None  # the class that the file names; None if the task is defined by fields


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """A requested group, which has its own row over the tasks below it."""

    name: str
    alias: str
    members: Sequence[Leaf | TaskGroup]
    aggregate_metric_list: Sequence[Mapping[str, Any]] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


Node = Leaf | TaskGroup


class Tasks:
    """The tasks and groups in folders; a name in a later folder overrides the same name in an earlier one.

    The folders are read when a name is looked up for the first time; a task file given by its path needs no index.
    """

    def __init__(self, roots: Sequence[Path] = (), *, library: Path | None = None) -> None:
        """``library`` is the first folder; its index is cached on disk."""
        for root in roots:
            if not os.path.isdir(root):
                raise InputError.at(str(root), "no such folder", "expected a folder of task files")
        self._roots, self._library = roots, library

    @cached_property
    def heads(self) -> Mapping[str, TaskHead]:
        """The tasks and groups, by name."""
        names = by_name(indexed_heads(self._library)) if self._library else {}
        for root in self._roots:
            names |= by_name(heads(root))
        return names

    @cached_property
    def tags(self) -> Mapping[str, Sequence[str]]:
        """The names of the tasks of each tag."""
        tagged: dict[str, list[str]] = {}
        for name, head in self.heads.items():
            for tag in head.tags:
                tagged.setdefault(tag, []).append(name)
        return tagged

    def has(self, query: str) -> bool:
        """Whether a name, tag or pattern matches anything; the files are not read."""
        if any(sign in query for sign in "*?"):
            return any(fnmatchcase(name, query) for name in (*self.heads, *self.tags))
        name = query.partition("@")[0]
        return name in self.heads or name in self.tags

    def find(self, query: str) -> list[Node]:
        """The tasks and groups of a path, name, tag or pattern such as ``mmlu_*``; ``name@format`` selects a format."""
        if Path(query).suffix in FILES:
            return [self._from_file(Path(query), {}, 0)]
        if not self.heads:
            problem = (
                f"no task, group or tag named {query!r}: lm_eval is not installed, and no folder contains a task file"
            )
            raise UnknownName(f"{problem}; install lm_eval, or give a folder of tasks to include")
        if any(sign in query for sign in "*?"):
            names = sorted(name for name in (*self.heads, *self.tags) if fnmatchcase(name, query))
            if not names:
                raise self.unknown(query)
            return [node for name in names for node in self._named(name, {}, query, 0)]
        return self._named(query, {}, query, 0)

    def unknown(self, name: str) -> UnknownName:
        """The error for an unknown name; it does not list the names if there are many, as with an installed lm-eval."""
        names = (*self.heads, *self.tags)
        hint = ""
        if len(names) > MAX_LISTED and not nearest(name, names):
            hint = f"calipers list tasks shows {len(names):,} names"
        return UnknownName.of("task, group or tag", name, names, hint)

    def _named(self, query: str, overrides: Mapping[str, Any], location: str, depth: int) -> list[Node]:
        name, _, chosen = query.partition("@")
        if name in self.heads:
            return [self._from_file(self.heads[name].path, overrides, depth, chosen or None)]
        if name in self.tags:
            tagged = sorted(self.tags[name])
            return [node for task in tagged for node in self._named(task, overrides, location, depth)]
        raise self.unknown(name) if location == query else self._unknown_member(name, location)

    def _unknown_member(self, name: str, location: str) -> UnknownName:
        advice = "" if self.heads else "; give the folder of the group's tasks with --include-path"
        return UnknownName(f"{location}: {self.unknown(name)}{advice}")

    def _from_file(self, path: Path, overrides: Mapping[str, Any], depth: int, chosen: str | None = None) -> Node:
        file = read_task_file(path)
        if "class" in file.values:
            return _class_leaf(file, overrides)
        if isinstance(file.values.get("group"), str):
            return self._group(file, overrides, depth)
        if not isinstance(file.values.get("task"), str):
            raise InputError.at(file.location("task"), "has no task and no group", "expected a name: task: my_task")
        return _leaf(file, overrides, chosen)

    def _group(self, file: TaskFile, overrides: Mapping[str, Any], depth: int, name: str | None = None) -> TaskGroup:
        """The group of a file; for its members, ``overrides`` have precedence over the group's own fields."""
        if depth > MAX_DEPTH:
            raise InputError.at(file.location("group"), "groups contain each other", "expected groups without a cycle")
        values = file.values
        name = name or str(values["group"])
        settings = {key: value for key, value in values.items() if key not in GROUP_FIELDS}
        for key in settings:
            if key not in NAMES:
                known = UnknownName.of("field of a group or task", key, (*GROUP_FIELDS, *NAMES))
                raise UnknownName(f"{file.location(key)}: {known}")
        listed, location = values.get("task"), file.location("task")
        if not isinstance(listed, list) or not listed:
            raise InputError.at(location, f"is {shown(listed)}", "expected a list of tasks")
        inherited = {**settings, **overrides}
        nodes = [node for each in listed for node in self._member(file, name, each, inherited, location, depth + 1)]
        return TaskGroup(
            name,
            str(values.get("group_alias") or name),
            list({node.name: node for node in nodes}.values()),  # the last of members with one name, as in lm-eval
            aggregate_entries(file),
            values.get("metadata") or {},
        )

    def _member(
        self, file: TaskFile, group: str, member: Any, inherited: Mapping[str, Any], location: str, depth: int
    ) -> list[Node]:
        """The nodes of a member of a group: a name, a name with further fields, or a task or group defined inline."""
        if isinstance(member, str):
            return self._named(member, inherited, location, depth)
        if not isinstance(member, Mapping):
            raise InputError.at(location, f"a member is {shown(member)}", "expected a name or a mapping")
        lines = {key: file.lines.get("task", "") for key in member}
        if isinstance(member.get("group"), str):
            name = str(member["group"])
            if name in self.heads and "task" not in member:
                own = {key: value for key, value in member.items() if key == "metadata" or key not in GROUP_FIELDS}
                return self._named(name, {**inherited, **own}, location, depth)
            return [self._group(TaskFile(file.path, dict(member), lines), inherited, depth, f"{group}::{name}")]
        name, own = str(member.get("task", "")), {key: value for key, value in member.items() if key != "task"}
        if name in self.heads or name in self.tags:
            for key in own:
                if key not in NAMES and key not in GROUP_FIELDS:
                    raise UnknownName(f"{location}: {UnknownName.of('field of a task', str(key), NAMES)}")
            return self._named(name, {**inherited, **own}, location, depth)
        if not name:
            raise InputError.at(location, f"a member is {shown(member)}", "expected task: NAME or group: NAME")
        if not own.keys() & {"dataset_path", "include", "custom_dataset"} and "dataset_path" not in inherited:
            raise self._unknown_member(name, location)
        inline = with_includes(TaskFile(file.path, own, lines), {})
        values = {**inherited, **inline.values, "task": f"{group}::{name}"}
        return [_leaf(TaskFile(file.path, values, inline.lines), {}, None)]


def _leaf(file: TaskFile, overrides: Mapping[str, Any], chosen: str | None) -> Leaf:
    merged = TaskFile(file.path, {**file.values, **overrides, "task": file.values["task"]}, file.lines)
    return Leaf(str(file.values["task"]), merged, task_config(merged, chosen))


def _class_leaf(file: TaskFile, overrides: Mapping[str, Any]) -> Leaf:
    """A task that is a Python class, which is not loaded here, because it is code that came with the data."""
    name = file.values.get("task")
    if not isinstance(name, str):
        raise InputError.at(file.location("task"), f"is {shown(name)}", "expected a name: task: my_task")
    merged = TaskFile(file.path, {**file.values, **overrides, "task": name}, file.lines)
    repeats = merged.values.get("repeats")
    config = TaskFields(task=name, repeats=repeats if isinstance(repeats, int) and repeats > 0 else 1)
    return Leaf(name, merged, config, merged.values["class"])


def aggregate_entries(file: TaskFile) -> Sequence[Mapping[str, Any]]:
    """The entries of a group's aggregate_metric_list; InputError for an entry that is not valid.

    For the aggregation lm-evaluation-harness accepts a function, but never calls it and uses the mean; so do we. It
    also accepts a function for the metric; as no task has a metric of this name, such an entry has no value.
    """
    listed, location = file.values.get("aggregate_metric_list"), file.location("aggregate_metric_list")
    entries = [] if listed is None else listed if isinstance(listed, list) else [listed]
    for number, entry in enumerate(entries):
        where = f"{location}[{number}]"
        if not isinstance(entry, Mapping) or not isinstance(entry.get("metric"), (str, Function)):
            raise InputError.at(where, f"is {shown(entry)}", "expected a mapping with metric: NAME")
        for key in entry:
            if key not in AGGREGATE_KEYS:
                known = UnknownName.of("key of aggregate_metric_list", str(key), AGGREGATE_KEYS)
                raise UnknownName(f"{where}: {known}")
        aggregation, weighted = entry.get("aggregation", "mean"), entry.get("weight_by_size", True)
        if aggregation != "mean" and not isinstance(aggregation, Function):
            raise InputError.at(f"{where}.aggregation", f"is {shown(aggregation)}", "expected mean")
        if isinstance(weighted, str) and weighted.strip().lower() in FALSE_WORDS:  # any text is true in lm-eval
            raise InputError.at(f"{where}.weight_by_size", f"is {shown(weighted)}", "expected true or false")
        filter_list = entry.get("filter_list")
        pipelines = [] if filter_list is None else [filter_list] if isinstance(filter_list, str) else filter_list
        if not isinstance(pipelines, list) or not all(isinstance(pipeline, str) for pipeline in pipelines):
            expected = "expected a pipeline, or a list of them"
            raise InputError.at(f"{where}.filter_list", f"is {shown(filter_list)}", expected)
    return [
        {**entry, "metric": str(entry["metric"]), **({"aggregation": "mean"} if "aggregation" in entry else {})}
        for entry in entries
    ]


def leaves(nodes: Sequence[Node]) -> list[Leaf]:
    """The tasks below the nodes, in order; InputError for a task that is reached twice."""
    by_name: dict[str, Leaf] = {}
    for leaf in _below(nodes):
        if leaf.name in by_name:
            raise InputError.at(leaf.name, "the task is requested twice", "expected each task once, also inside groups")
        by_name[leaf.name] = leaf
    return list(by_name.values())


def every_group(nodes: Sequence[Node]) -> list[TaskGroup]:
    """The groups among the nodes and below them, outer groups before inner ones."""
    return [group for node in nodes if isinstance(node, TaskGroup) for group in (node, *every_group(node.members))]


def _below(nodes: Sequence[Node]) -> Iterator[Leaf]:
    for node in nodes:
        if isinstance(node, Leaf):
            yield node
        else:
            yield from _below(node.members)
