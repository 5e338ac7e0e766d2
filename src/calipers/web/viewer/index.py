"""The index of a source's log: the position of each rollout in the log, and the numbers for filters and sorting.

::

    rollouts.jsonl                    the log: one rollout per line
    rollouts.jsonl.calipers-index     a header, then one column after another: start, length, task, reward, ...

The file of an index is mapped into memory, so a million rollouts cost no memory until they are used. The index is built
by the reader of `calipers score`, in one pass, and extended by lines that are appended later. It covers only complete
lines. A log of Calipers is read in place. Rollouts of any other format, and compressed ones, are converted once into a
log in the user's cache folder. A link that leads out of the given paths is not followed.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any, Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from calipers.errors import CalipersError, InputError
from calipers.formats import BAD
from calipers.formats.convert import convert
from calipers.formats.jsonl import JsonLines
from calipers.formats.lines import LineError, read_lines, read_range
from calipers.formats.run_folder import IDENTITY, LOG, PLAN, RESULT, STOPPED, whole
from calipers.formats.source import BOM, LONGEST_LINE, Source
from calipers.rollouts.column import Bools, Column, Ints
from calipers.rollouts.record import BEFORE_ANSWER, FIRST_GAP, FIRST_NIL, GROUP, MISSING, SCORED, UNSTATED, USAGE, label
from calipers.rollouts.table import Labels, Part, Places
from calipers.stores import atomic_file
from calipers.typed import complete

SCHEMA: Final = "calipers.index/1"
SUFFIX: Final = ".calipers-index"
MAGIC: Final = b"calipers-index\n"
KEPT_FROM: Final = 8 << 20  # the index of a log with fewer bytes is not saved, because it is built quickly
CHUNK: Final = 64 << 20  # bytes of lines that one reader collects, so that its memory stays small
CHECKED: Final = 4_096  # bytes at both ends of the indexed part that are hashed, to see whether the log is the same
MOST_SLICES: Final = 6  # keys of metadata by which rollouts can be filtered
MOST_VALUES: Final = 500  # a key with more values identifies rollouts, and is not a slice
MOST_REWARDS: Final = 16
SAMPLED: Final = 1 << 18  # bytes at the beginning of a log that are searched for such keys
LARGEST_HEADER: Final = 64 << 20
ALIGNED: Final = 64  # bytes
MOST_ENTRIES: Final = 100_000  # files of another system's folder that are considered
RUN_FILES: Final = (LOG, PLAN, STOPPED, RESULT, IDENTITY)
MAKER: Final = "calipers.web.viewer.index:lines"
_ROW: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])

Array = NDArray[Any]
Group = tuple[str | None, str | None, str | None]
"""Agent, model, dataset."""

ROW_TYPES: Final = {
    "start": "<u8",  # the offset of the line in the log
    "length": "<u4",  # the length of the line, in bytes
    "line": "<u4",  # the number of the line, from 1
    "task": "<u4",  # the code of the task
    "sample": "<i8",
    "attempt": "<u4",
    "outcome": "|u1",
    "group": "<u2",
    "current": "|u1",  # 0 if a later attempt has replaced the row
}
TASK_TYPES: Final = {"hash": "<u8", "end": "<u8"}  # the hash of a task's name; where the name ends in `names`
TYPES: Final = frozenset((*ROW_TYPES.values(), *TASK_TYPES.values(), "<f8", "<i4", "|u1"))


class _Header(msgspec.Struct, kw_only=True):
    """The header of the file of an index."""

    schema: str
    size: int  # size of the log, in bytes
    end: int  # number of indexed bytes of the log: complete lines
    modified: int  # modification time of the log, in nanoseconds
    inode: int
    ends_sha256: str  # hash of the first and the last indexed bytes
    lines: int
    rows: int
    groups: list[Group]
    slices: dict[str, list[Any]]  # key -> its values, by code
    columns: dict[str, tuple[str, int, int]]  # name -> type, offset after the header, number of values


Kind = Literal["log", "run", "other", "result"]


@dataclass(frozen=True, slots=True)
class RunSource:
    """A path with rollouts, or with a finished result."""

    id: str  # its id in addresses, which is the same at every start
    path: str  # the path without links
    name: str  # the path as the user would type it
    kind: Kind
    root: str  # the given path that contains it

    @property
    def log(self) -> str:
        """The path of the log of its rollouts."""
        if self.kind == "run":
            return os.path.join(self.path, LOG)
        return self.path if self.kind == "log" else os.path.join(cache_folder(), self.id, "records.jsonl")


@dataclass(frozen=True, slots=True)
class LogState:
    """The state of a log, which shows whether the log has changed."""

    size: int
    end: int  # number of bytes in complete lines
    modified: int
    inode: int
    ends_sha256: str

    @classmethod
    def of(cls, path: str, end: int | None = None) -> LogState:
        """The current state of a log. ``end`` is the number of indexed bytes, if known.

        InputError if the log cannot be read.
        """
        try:
            with open(path, "rb") as file:
                status = os.fstat(file.fileno())
                end = settled_end(path, status.st_size) if end is None else min(end, status.st_size)
                digest = hashlib.sha256(file.read(min(CHECKED, end)))
                file.seek(max(end - CHECKED, 0))
                digest.update(file.read(min(CHECKED, end)))
        except OSError as error:
            raise InputError.at(path, f"cannot be read ({error.strerror})") from None
        return cls(status.st_size, end, status.st_mtime_ns, status.st_ino, digest.hexdigest())


def settled_end(path: str, size: int) -> int:
    """The number of bytes in complete lines; a last line without a newline counts if it is a JSON object."""
    if not size:
        return 0
    end = whole(path, size)
    if end == size or size - end > LONGEST_LINE:
        return end
    with open(path, "rb") as file:
        file.seek(end)
        tail = file.read(size - end).strip()
    try:
        _ROW.decode(tail)
    except BAD:
        return end
    return size


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows of a log, with the tasks, groups and slices to which their codes refer."""

    rows: dict[str, Array]
    hash: Array  # [t], the hash of each distinct task
    names: list[bytes]  # [t], the name of each distinct task
    groups: list[Group]
    slices: dict[str, list[Any]]


@dataclass(frozen=True, slots=True)
class IndexPart:
    """The part of a log that one process has read."""

    places: Places  # its only block has the line at which the part begins
    chunks: list[Chunk]
    lines: int


class IndexLines:
    """Reads blocks of lines into chunks of an index: a `JsonLines` reader that also records where each line begins."""

    def __init__(self, path: str, labels: Collection[str], start: int) -> None:
        self.lines = 0
        self._path, self._labels = path, labels
        self._next = start  # the offset of the next block in the log
        self._chunks: list[Chunk] = []
        self._begin()

    def _begin(self) -> None:
        self._reader = JsonLines(self._path, {}, self._labels)
        self._starts: list[Array] = []
        self._before, self._size = self.lines, 0
        self._closed = 1  # 1 if the last line has its newline, else 0

    @contextmanager
    def _line_numbers_of_log(self) -> Iterator[None]:
        """Turn line numbers in errors, which the reader counts from the start of a chunk, into those of the log."""
        try:
            yield
        except LineError as error:
            number, problem, expected = error.args
            raise LineError(self._before + number, problem, expected) from None

    def read(self, block: memoryview) -> None:
        """Read a block of complete lines; LineError for the first line that is not a rollout."""
        with self._line_numbers_of_log():
            self._reader.read(block)
        ends = self._reader.ends
        starts = np.empty(len(ends) + 1, dtype=np.uint64)
        starts[0], starts[1:] = self._next, ends + (self._next + 1)
        self._closed = int(len(ends) > 0 and int(ends[-1]) == len(block) - 1)
        self._starts.append(starts[: len(starts) - self._closed])  # a start after the last newline is the next block's
        self.lines = self._before + self._reader.lines
        self._next += len(block)
        self._size += len(block)
        if self._size >= CHUNK:
            self._finish_chunk()

    def _finish_chunk(self) -> None:
        with self._line_numbers_of_log():
            part = self._reader.finish()
        if len(part):
            starts = np.append(np.concatenate(self._starts), np.uint64(self._next + 1 - self._closed))
            self._chunks.append(_chunk(part, starts, self._before))
        self._begin()

    def finish(self) -> IndexPart:
        """Return everything that was read."""
        lines = self.lines
        self._finish_chunk()
        places = Places(self._path)
        places.add(0, 1)
        return IndexPart(places, self._chunks, lines)


def lines(path: str, names: Mapping[str, str], labels: Collection[str], start: int | None) -> IndexLines:
    """A reader of index chunks whose first block is at offset ``start`` of the log."""
    return IndexLines(path, labels, start or 0)


def _chunk(part: Part, starts: Array, before: int) -> Chunk:
    at = part.places.lines(len(part)) - 1
    rows: dict[str, Array] = {
        "start": starts[at],
        "length": (starts[at + 1] - starts[at] - 1).astype("<u4"),
        "line": (at + before + 1).astype("<u4"),
        "task": part.task.astype("<u4"),
        "sample": part.sample,
        "attempt": np.minimum(part.attempt, 2**32 - 1).astype("<u4"),
        "outcome": part.outcome,
    }
    for name, column in [*part.rewards.items()][:MOST_REWARDS]:
        rows |= {f"reward:{name}": column.values, f"given:reward:{name}": column.given.astype("|u1")}
    for name in USAGE:
        if name in part.columns:
            column = part.columns[name]
            rows |= {f"usage:{name}": column.values, f"given:usage:{name}": column.given.astype("|u1")}
    if part.before_answer is not None:
        rows[BEFORE_ANSWER] = part.before_answer.astype("|u1")
    groups, rows["group"] = _groups(part)
    slices = {}
    for name, labels in part.labels.items():
        if name.startswith("metadata."):
            key = name.removeprefix("metadata.")
            slices[key], rows[f"slice:{key}"] = list(map(label, labels.values)), labels.code.astype("<i4")
    encoded = [task.encode("utf-8", "surrogatepass") for task in part.tasks]
    digests = b"".join(hashlib.blake2b(task, digest_size=8).digest() for task in encoded)
    return Chunk(rows, np.frombuffer(digests, dtype="<u8"), encoded, groups, slices)


def _groups(part: Part) -> tuple[list[Group], Array]:
    """The groups of a part, and the group code of each row."""
    absent = Labels.absent(len(part))
    group_labels = [part.labels.get(name, absent) for name in GROUP]
    code = np.zeros(len(part), dtype=np.int64)
    for labels in group_labels:
        code = code * (len(labels.values) + 1) + labels.code + 1
    _, first, code = np.unique(code, return_index=True, return_inverse=True)
    names = [[*labels.values, None] for labels in group_labels]  # the code of a row without the label is -1, the last
    agent, model, dataset = (
        [values[int(labels.code[row])] for row in first.tolist()]
        for values, labels in zip(names, group_labels, strict=True)
    )
    return list(zip(agent, model, dataset, strict=True)), code.reshape(-1).astype("<u2")


@dataclass(frozen=True, slots=True)
class LogIndex:
    """The indexed rollouts of a log: R rows of T tasks."""

    path: str  # the path of the log
    state: LogState
    lines: int
    groups: Sequence[Group]
    slices: Mapping[str, Sequence[str]]  # key -> its values, by code
    columns: Mapping[str, Array] = field(repr=False)  # of `ROW_TYPES` and `TASK_TYPES`, `names`, rewards and so on

    def __len__(self) -> int:
        return len(self.columns["start"])

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        return len(self.columns["end"])

    @property
    def rewards(self) -> list[str]:
        """The names of the rewards."""
        return [name.removeprefix("reward:") for name in self.columns if name.startswith("reward:")]

    def name(self, task: int) -> str:
        """The id of a task."""
        ends = self.columns["end"]
        start = int(ends[task - 1]) if task else 0
        return bytes(self.columns["names"][start : int(ends[task])]).decode("utf-8", "surrogatepass")

    def names(self) -> list[str]:
        """The ids of all tasks."""
        return [name.decode("utf-8", "surrogatepass") for name in self.encoded_names()]

    def encoded_names(self) -> list[bytes]:
        """The ids of all tasks as they are in the index."""
        blob = bytes(self.columns["names"])
        return [blob[start:end] for start, end in pairwise([0, *self.columns["end"].tolist()])]

    def task(self, name: str) -> int | None:
        """The code of a task; None for an unknown task."""
        digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        codes = np.flatnonzero(self.columns["hash"] == np.frombuffer(digest, dtype="<u8")[0])
        return int(codes[0]) if len(codes) else None

    def number(self, kind: str, name: str) -> Column:
        """A column of numbers of a kind, ``reward`` or ``usage``; only gaps if the log has no such column."""
        values = self.columns.get(f"{kind}:{name}")
        if values is None:
            return Column.gaps(len(self))
        return Column(values, self.columns[f"given:{kind}:{name}"].view(np.bool_))

    @property
    def usual_reward(self) -> str:
        """The reward that is shown by default."""
        rewards = sorted(self.rewards)
        return "reward" if "reward" in rewards or not rewards else rewards[0]

    def outcomes(self) -> NDArray[np.uint8]:
        """The outcome of each row, [R]; a row without a stated outcome is scored if it has a reward, else missing."""
        outcome: NDArray[np.uint8] = self.columns["outcome"]
        unstated = outcome == UNSTATED
        if not unstated.any():
            return outcome
        rewarded = np.zeros(len(self), dtype=bool)
        for name in self.rewards:
            rewarded |= self.number("reward", name).given
        return np.where(unstated, np.where(rewarded, SCORED, MISSING), outcome).astype(np.uint8)

    def contributions(self) -> Column:
        """The contribution of each row to metrics of the usual reward, [R], by the rules of `ledger.contributed`."""
        outcome, column = self.outcomes(), self.number("reward", self.usual_reward)
        numbered = outcome < FIRST_GAP
        nil = numbered & (outcome >= FIRST_NIL)
        zero = numbered & (outcome != SCORED) & (~column.given | nil)
        return Column(np.where(zero, 0.0, column.values), (column.given & numbered) | zero)

    def current(self) -> Bools:
        """A mask of the rows that no later attempt has replaced, [R]."""
        flags: Bools = self.columns["current"].view(np.bool_)
        return flags

    def part(self) -> Part:
        """The rows as the part that a reader would return, without slices, for a table of rollouts."""
        places = Places(self.path)
        places.add(0, self.columns["line"])
        groups = self.columns["group"]
        labels = {}
        for at, name in enumerate(GROUP):
            values = list(dict.fromkeys(group[at] for group in self.groups if group[at] is not None))
            code = np.array([-1 if group[at] is None else values.index(group[at]) for group in self.groups])
            if values:  # all rows of a single group share one code
                codes = code[groups] if len(code) > 1 else np.broadcast_to(code, len(self))
                labels[name] = Labels(codes, values)
        return Part(
            places=places,
            tasks=self.names(),
            task=self.columns["task"].astype(np.int64),
            sample=np.asarray(self.columns["sample"], dtype=np.int64),
            attempt=self.columns["attempt"],
            outcome=np.asarray(self.columns["outcome"]),
            rewards={name: self.number("reward", name) for name in self.rewards},
            columns={name: self.number("usage", name) for name in USAGE if f"usage:{name}" in self.columns},
            labels=labels,
            before_answer=self.columns[BEFORE_ANSWER].view(np.bool_) if BEFORE_ANSWER in self.columns else None,
        )

    def save(self, target: str, mode: int = 0o600) -> None:
        """Write the index atomically; OSError if it cannot be written."""
        offset, columns = 0, {}
        for name, array in self.columns.items():
            columns[name] = (array.dtype.str, offset, len(array))
            offset += -(-array.nbytes // ALIGNED) * ALIGNED
        header = msgspec.json.encode(
            _Header(
                schema=SCHEMA,
                **asdict(self.state),
                lines=self.lines,
                rows=len(self),
                groups=list(self.groups),
                slices={key: list(values) for key, values in self.slices.items()},
                columns=columns,
            )
        )
        with atomic_file(target, mode) as file:
            file.write(MAGIC + len(header).to_bytes(8, "little") + header)
            file.write(bytes(-file.tell() % ALIGNED))
            for array in self.columns.values():
                file.write(np.ascontiguousarray(array).data)
                file.write(bytes(-array.nbytes % ALIGNED))


def load_index(path: str, target: str) -> LogIndex | None:
    """The index in a file, mapped into memory; None if there is no usable index."""
    try:
        with open(target, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if file.read(len(MAGIC)) != MAGIC:
                return None
            length = int.from_bytes(file.read(8), "little")
            if length > min(size, LARGEST_HEADER):
                return None
            header = msgspec.json.decode(file.read(length), type=complete(_Header))
        first = -(-(len(MAGIC) + 8 + length) // ALIGNED) * ALIGNED
        if header.schema != SCHEMA or any(kind not in TYPES for kind, _, _ in header.columns.values()):
            return None
        columns = {
            name: np.memmap(target, kind, "r", first + offset, (count,)) if count else np.zeros(0, dtype=kind)
            for name, (kind, offset, count) in header.columns.items()
        }
    except (OSError, ValueError, *BAD):  # ValueError: shorter than its header says
        return None
    state = LogState(header.size, header.end, header.modified, header.inode, header.ends_sha256)
    index = LogIndex(path, state, header.lines, header.groups, header.slices, columns)
    return index if _sound(index, header.rows) else None


def _sound(index: LogIndex, rows: int) -> bool:
    """Whether the columns have consistent lengths, and the last row is inside the log."""
    columns = index.columns
    if not {*ROW_TYPES, *TASK_TYPES, "names"} <= columns.keys():
        return False
    of_tasks = {*TASK_TYPES, "names"}
    if any(len(array) != rows for name, array in columns.items() if name not in of_tasks):
        return False
    if not rows:
        return True
    last = int(columns["start"][-1]) + int(columns["length"][-1])
    return (
        last <= index.state.end
        and len(columns["hash"]) == index.tasks
        and len(columns["names"]) == int(columns["end"][-1])
    )


def is_fresh(index: LogIndex, state: LogState) -> bool:
    """Whether an index matches the current state of its log."""
    known = index.state
    same = (known.size, known.modified, known.inode) == (state.size, state.modified, state.inode)
    return same and known.ends_sha256 == LogState.of(index.path, known.end).ends_sha256


def has_grown(index: LogIndex) -> bool:
    """Whether the indexed part of the log is unchanged, so that the index can be extended."""
    now = LogState.of(index.path, index.state.end)
    known = index.state
    return now.inode == known.inode and now.size >= known.end and now.ends_sha256 == known.ends_sha256 and known.end > 0


def build(path: str) -> LogIndex:
    """Index a log from its first byte; InputError for the first line that is not a rollout."""
    state = LogState.of(path)
    keys = slice_keys(path)
    parts: list[IndexPart] = []
    if state.end:
        with _UpTo(path, state.end) as source:
            parts = read_lines(MAKER, source, {}, keys, lambda size: None)
    chunks = [chunk for part in _numbered(parts) for chunk in part]
    index = _index(path, state, chunks, sum(part.lines for part in parts))
    return replace(index, slices={key: index.slices[key] for key in keys if key in index.slices})  # in the log's order


def _numbered(parts: Iterable[IndexPart]) -> Iterator[list[Chunk]]:
    """The chunks of each part, with line numbers counted from the beginning of the log."""
    for part in parts:
        first = int(part.places.lines(1)[0])
        for chunk in part.chunks:
            chunk.rows["line"] = chunk.rows["line"] + np.uint32(first - 1)
        yield part.chunks


def extend(index: LogIndex) -> LogIndex:
    """The index with the lines that were appended to its log; the same index if there are none."""
    state = LogState.of(index.path)
    if state.end <= index.state.end:
        return index
    appended = {"path": index.path, "start": index.state.end, "end": state.end}
    part, lines_read = read_range(maker=MAKER, **appended, names={}, labels=[*index.slices], words={})
    if isinstance(part, LineError):
        raise part.at(index.path, index.lines)
    for chunk in part.chunks:
        chunk.rows["line"] = chunk.rows["line"] + np.uint32(index.lines)
    before = Chunk(
        {name: array for name, array in index.columns.items() if name not in (*TASK_TYPES, "names", "current")},
        index.columns["hash"],
        index.encoded_names(),
        list(index.groups),
        {key: list(values) for key, values in index.slices.items()},
    )
    return _index(index.path, state, [before, *part.chunks], index.lines + lines_read)


class _UpTo(Source):
    """A log up to the end of its last complete line, even if lines are appended during reading."""

    def __init__(self, path: str, end: int) -> None:
        super().__init__(path)
        self.size = self._left = end

    def readinto_hashed(self, buffer: memoryview) -> int:
        return self.readinto(buffer)  # the hash is not needed


def slice_keys(path: str) -> list[str]:
    """The keys of metadata by which rollouts can be filtered: those with few texts, integers or booleans as values."""
    with open(path, "rb") as file:
        head = file.read(SAMPLED).removeprefix(BOM)
    values_of: dict[str, set[Any]] = {}
    counts: dict[str, int] = {}
    for line in head.split(b"\n")[:-1]:
        try:
            metadata = msgspec.json.decode(_ROW.decode(line).get("metadata", b"{}"))
        except BAD:
            continue
        for key, value in metadata.items() if isinstance(metadata, dict) else ():
            if isinstance(value, (str, bool, int)) and len(str(value)) <= 80 and "." not in key and key:
                values_of.setdefault(key, set()).add(value)
                counts[key] = counts.get(key, 0) + 1
    few = [key for key, values in values_of.items() if len(values) <= max(20, counts[key] // 4) and '"' not in key]
    return [key for key in few if key.isprintable() and "\\" not in key][:MOST_SLICES]


def _index(path: str, state: LogState, chunks: Sequence[Chunk], lines_read: int) -> LogIndex:
    """Combine the chunks of a log into one index."""
    columns: dict[str, Array] = {}
    sizes = [len(chunk.rows["start"]) for chunk in chunks]
    code_of, columns["hash"], columns["names"], columns["end"] = _tasks(chunks)
    groups: dict[Group, int] = {}
    slices: dict[str, dict[str, int]] = {}
    for chunk, codes in zip(chunks, code_of, strict=True):
        chunk.rows["task"] = codes[chunk.rows["task"]]
        group_codes = np.array([groups.setdefault(group, len(groups)) for group in chunk.groups], dtype="<u2")
        chunk.rows["group"] = group_codes[chunk.rows["group"]]
        for key, values in chunk.slices.items():
            known = slices.setdefault(key, {})
            codes = np.array([*(known.setdefault(value, len(known)) for value in values), -1], dtype="<i4")
            chunk.rows[f"slice:{key}"] = codes[chunk.rows[f"slice:{key}"]]
    kept = {key: values for key, values in slices.items() if len(values) <= MOST_VALUES}
    dropped = {f"slice:{key}" for key in slices if key not in kept}
    for name in dict.fromkeys(name for chunk in chunks for name in chunk.rows):
        if name not in dropped:
            kind = np.dtype(ROW_TYPES.get(name) or next(c.rows[name].dtype for c in chunks if name in c.rows))
            fill = -1 if name.startswith("slice:") else 0
            pieces = [
                chunk.rows.pop(name) if name in chunk.rows else np.full(size, fill, dtype=kind)
                for chunk, size in zip(chunks, sizes, strict=True)
            ]
            columns[name] = np.concatenate(pieces).astype(kind, copy=False)
    for name, kind_name in ROW_TYPES.items():
        columns.setdefault(name, np.zeros(0, dtype=kind_name))
    columns["current"] = _current(columns).astype("|u1")
    ordered = {key: list(values) for key, values in kept.items()}
    return LogIndex(path, state, lines_read, list(groups), ordered, columns)


def _tasks(chunks: Sequence[Chunk]) -> tuple[list[Array], Array, Array, Array]:
    """The codes of each chunk's tasks among all tasks; then the hashes, the names and the ends of names of all tasks.

    Tasks are numbered by their first appearance.
    """
    hashes = np.concatenate([chunk.hash for chunk in chunks]) if chunks else np.zeros(0, dtype="<u8")
    distinct, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    code = np.empty(len(distinct), dtype="<u4")
    code[order] = np.arange(len(distinct), dtype="<u4")
    codes = code[inverse.reshape(-1)]
    cuts = np.cumsum([len(chunk.hash) for chunk in chunks])[:-1]
    all_names = [name for chunk in chunks for name in chunk.names]
    names = [all_names[index] for index in first[order].tolist()]
    ends = np.cumsum([len(name) for name in names], dtype="<u8") if names else np.zeros(0, dtype="<u8")
    blob = np.frombuffer(b"".join(names), dtype="|u1")
    return (np.split(codes, cuts) if chunks else []), distinct[order], blob, ends


def _current(columns: Mapping[str, Array]) -> Bools:
    """A mask of the rows that no later attempt, or later line of the same attempt, has replaced, [R]."""
    rows = len(columns["start"])
    current = np.ones(rows, dtype=bool)
    if not rows:
        return current
    keys: Ints = columns["task"].astype(np.int64) * (int(columns["group"].max()) + 1) + columns["group"]
    sample = columns["sample"]
    if int(sample.max()) < 2**31:
        joint = keys * (int(sample.max()) + 1) + sample
        if bool((joint[1:] > joint[:-1]).all()) or len(np.unique(joint)) == rows:
            return current
    order = np.lexsort((np.arange(rows), columns["attempt"], sample, keys))
    same = (np.diff(keys[order]) == 0) & (np.diff(sample[order]) == 0)
    current[order[:-1][same]] = False
    return current


def cache_folder() -> str:
    """The folder for converted logs, and for indexes that cannot be written beside their log."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "calipers", "view")


def stamp(source: RunSource) -> str:
    """A hash that changes if any file of a source changes."""
    digest = hashlib.sha256()
    paths = [source.path]
    if os.path.isdir(source.path):
        names = RUN_FILES if source.kind == "run" else ()
        paths = [os.path.join(source.path, name) for name in names] or [
            os.path.join(root, name) for root, _, files in os.walk(source.path) for name in sorted(files)
        ]
    for path in paths[:MOST_ENTRIES]:
        with suppress(OSError):
            status = os.stat(path)
            digest.update(
                f"{path}\0{status.st_size}\0{status.st_mtime_ns}\0{status.st_ino}\0".encode("utf-8", "replace")
            )
    return digest.hexdigest()


def current_index(source: RunSource, known: LogIndex | None = None) -> LogIndex:
    """The current index of a source: the known one, a saved one, an extended one, or a new one.

    InputError if the source cannot be read. A log of another format is converted again if its source has changed.
    """
    log = _converted(source) if source.kind == "other" else confined_log(source)
    if known is None:
        for target in _targets(source, log):
            if (known := load_index(log, target)) is not None:
                break
    state = LogState.of(log)
    if known is not None and is_fresh(known, state):
        return known
    # a shorter log is indexed again, because its slices are not final until SAMPLED bytes are written
    if known is not None and known.state.end >= SAMPLED and has_grown(known):
        index = extend(known)
        worth_saving = index.state.end - known.state.end > index.state.end // 8
    else:
        index, worth_saving = build(log), True
    if worth_saving and index.state.end >= KEPT_FROM:
        index = kept(index, source)
    return index


def kept_index(source: RunSource) -> LogIndex | None:
    """The saved index, if it matches the current log; None if it must be built or extended."""
    if source.kind == "other":
        return None
    log = confined_log(source)
    for target in _targets(source, log):
        if (index := load_index(log, target)) is not None and is_fresh(index, LogState.of(log)):
            return index
    return None


def confined_log(source: RunSource) -> str:
    """The log of a source; InputError if it has become a link that leads out of the given paths, or no regular file."""
    path = source.log
    if not os.path.lexists(path):  # a run that has not started
        return path
    real = confined(path, source.root)
    if not stat.S_ISREG(os.stat(real).st_mode):
        raise InputError.at(path, "is not a regular file", "expected a log")
    return real


def kept(index: LogIndex, source: RunSource) -> LogIndex:
    """Save the index beside its log, or else in the cache folder; return the saved index, or this one if both fail."""
    mode = stat.S_IMODE(os.stat(index.path).st_mode) & 0o666
    for target in _targets(source, index.path):
        with suppress(OSError):
            if target.startswith(cache_folder()):
                os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
            index.save(target, mode)
            return load_index(index.path, target) or index
    return index


def _targets(source: RunSource, log: str) -> list[str]:
    """The possible paths of an index: beside its log, and in the cache folder."""
    return [log + SUFFIX, os.path.join(cache_folder(), source.id, os.path.basename(log) + SUFFIX)]


def _converted(source: RunSource) -> str:
    """Convert a source of another format to a log in the cache folder, unless that is up to date; return its path."""
    target, mark = source.log, os.path.join(os.path.dirname(source.log), "stamp")
    now = stamp(source)
    with suppress(OSError), open(mark) as file:
        if file.read() == now and os.path.exists(target):
            return target
    folder = os.path.dirname(target)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        raise InputError.at(folder, f"cannot be written ({error.strerror})", "set XDG_CACHE_HOME") from None
    convert(source.path, target, force=True)
    os.chmod(target, 0o600)
    with open(mark, "w") as file:
        file.write(now)
    return target


def confined(path: str, root: str) -> str:
    """The path without links; InputError if it is neither ``root`` nor inside it."""
    real = os.path.realpath(path)
    if real != root and not real.startswith(os.path.join(root, "")):
        raise InputError.at(path, "is a link that leads out of the paths given", "give its target, too")
    return real


def child(source: dict[str, Any]) -> None:
    """Build an index and save it where the viewer finds it; this is the main function of a child process."""
    with suppress(CalipersError):
        current_index(RunSource(**source))
