"""The index of a source's log: where each rollout stands in it, and the numbers by which rollouts are found.

::

    rollouts.jsonl                    the log: a rollout a line
    rollouts.jsonl.calipers-index     a header, then a column after the other: start, length, task, reward, ...

An index is read by mapping the file, so that a million rollouts cost no memory until they are looked at. It is built by
the reader that `calipers score` uses, in the same pass, and extended by the lines that were appended since. It knows
whole lines only. A log of Calipers is read where it lies; rollouts of any other format, and packed ones, are converted
once into a log in the user's cache folder. A link that leads out of the paths given is not followed.
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
from calipers.rollouts.record import FIRST_GAP, FIRST_NIL, GROUP, MISSING, SCORED, UNSTATED, USAGE, label
from calipers.rollouts.table import Labels, Part, Places
from calipers.stores import atomic_file

SCHEMA: Final = "calipers.index/1"
SUFFIX: Final = ".calipers-index"
MAGIC: Final = b"calipers-index\n"
KEPT_FROM: Final = 8 << 20  # bytes of a log; the index of a smaller one is built again in no time
CHUNK: Final = 64 << 20  # bytes of lines that one reader gathers, so that its memory stays small
CHECKED: Final = 4_096  # bytes at either end of what was indexed that say whether the log is still the same
MOST_SLICES: Final = 6  # keys of metadata by which rollouts can be filtered
MOST_VALUES: Final = 500  # values of such a key; one with more tells rollouts apart and is no slice
MOST_REWARDS: Final = 16
SAMPLED: Final = 1 << 18  # bytes at the beginning in which such keys are looked for
LARGEST_HEADER: Final = 64 << 20
ALIGNED: Final = 64  # bytes
MOST_ENTRIES: Final = 100_000  # files of another system's folder that are looked at
RUN_FILES: Final = (LOG, PLAN, STOPPED, RESULT, IDENTITY)
MAKER: Final = "calipers.web.viewer.index:lines"
_ROW: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])

Array = NDArray[Any]
Group = tuple[str | None, str | None, str | None]
"""Agent, model, dataset."""

ROW_TYPES: Final = {
    "start": "<u8",  # the byte of the log at which the line begins
    "length": "<u4",  # of the line, in bytes
    "line": "<u4",  # its number, from 1
    "task": "<u4",  # a code of the task
    "sample": "<i8",
    "attempt": "<u4",
    "outcome": "|u1",
    "group": "<u2",
    "current": "|u1",  # 0 where a later attempt has replaced it
}
TASK_TYPES: Final = {"hash": "<u8", "end": "<u8"}  # of the task's name; the byte of `names` at which it ends
TYPES: Final = frozenset((*ROW_TYPES.values(), *TASK_TYPES.values(), "<f8", "<i4", "|u1"))


class _Header(msgspec.Struct, kw_only=True):
    """What an index says of itself and of its log."""

    schema: str
    size: int  # of the log
    end: int  # bytes of it that are indexed: whole lines
    modified: int  # nanoseconds
    inode: int
    ends_sha256: str  # of the first and the last bytes of what is indexed
    lines: int
    rows: int
    groups: list[Group]
    slices: dict[str, list[Any]]  # key -> its values, by code
    columns: dict[str, tuple[str, int, int]]  # name -> type, first byte after the header, number


Kind = Literal["log", "run", "other", "result"]


@dataclass(frozen=True, slots=True)
class RunSource:
    """One path that holds rollouts, or a finished result."""

    id: str  # in addresses; the same at every start
    path: str  # without links
    name: str  # as the user would type it
    kind: Kind
    root: str  # the path given that it lies under

    @property
    def log(self) -> str:
        """The log of its rollouts."""
        if self.kind == "run":
            return os.path.join(self.path, LOG)
        return self.path if self.kind == "log" else os.path.join(cache_folder(), self.id, "records.jsonl")


@dataclass(frozen=True, slots=True)
class LogState:
    """What tells a log from what it was before."""

    size: int
    end: int  # bytes of whole lines
    modified: int
    inode: int
    ends_sha256: str

    @classmethod
    def of(cls, path: str, end: int | None = None) -> LogState:
        """The state of a log now; ``end``, where it is known how much of it is indexed. InputError if it is gone."""
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
    """How many of a log's first bytes are whole lines; a last line without its newline is one if it is an object."""
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
    """Some rows of a log, and the tasks, groups and slices that their codes are of."""

    rows: dict[str, Array]
    hash: Array  # [t] of each distinct task
    names: list[bytes]  # [t]
    groups: list[Group]
    slices: dict[str, list[Any]]


@dataclass(frozen=True, slots=True)
class IndexPart:
    """What one process has read of a log."""

    places: Places  # its only block says on which line it begins
    chunks: list[Chunk]
    lines: int


class IndexLines:
    """Blocks of lines into chunks of an index: `JsonLines`, and where each line begins."""

    def __init__(self, path: str, labels: Collection[str], start: int) -> None:
        self.lines = 0
        self._path, self._labels = path, labels
        self._next = start  # the byte of the log at which the next block begins
        self._chunks: list[Chunk] = []
        self._begin()

    def _begin(self) -> None:
        self._reader = JsonLines(self._path, {}, self._labels)
        self._starts: list[Array] = []
        self._before, self._size = self.lines, 0
        self._closed = 1  # whether the last line has its newline

    @contextmanager
    def _lines_of_the_log(self) -> Iterator[None]:
        """Errors of the reader, which counts the lines of a chunk, by their lines in the log."""
        try:
            yield
        except LineError as error:
            number, wrong, right = error.args
            raise LineError(self._before + number, wrong, right) from None

    def read(self, block: memoryview) -> None:
        """Take in some whole lines; LineError for the first that is no rollout."""
        with self._lines_of_the_log():
            self._reader.read(block)
        ends = self._reader.ends
        starts = np.empty(len(ends) + 1, dtype=np.uint64)
        starts[0], starts[1:] = self._next, ends + (self._next + 1)
        self._closed = int(len(ends) > 0 and int(ends[-1]) == len(block) - 1)
        self._starts.append(starts[: len(starts) - self._closed])  # where a line ends, that of the next block begins
        self.lines = self._before + self._reader.lines
        self._next += len(block)
        self._size += len(block)
        if self._size >= CHUNK:
            self._finish_chunk()

    def _finish_chunk(self) -> None:
        with self._lines_of_the_log():
            part = self._reader.finish()
        if len(part):
            starts = np.append(np.concatenate(self._starts), np.uint64(self._next + 1 - self._closed))
            self._chunks.append(_chunk(part, starts, self._before))
        self._begin()

    def finish(self) -> IndexPart:
        """Everything that was read."""
        lines = self.lines
        self._finish_chunk()
        places = Places(self._path)
        places.add(0, 1)
        return IndexPart(places, self._chunks, lines)


def lines(path: str, names: Mapping[str, str], labels: Collection[str], start: int | None) -> IndexLines:
    """A reader of an index, wherever in the file its lines stand."""
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
    """The groups of a part, and the code of each row."""
    nothing = Labels.absent(len(part))
    each = [part.labels.get(name, nothing) for name in GROUP]
    code = np.zeros(len(part), dtype=np.int64)
    for labels in each:
        code = code * (len(labels.values) + 1) + labels.code + 1
    _, first, code = np.unique(code, return_index=True, return_inverse=True)
    names = [[*labels.values, None] for labels in each]  # -1, of a row without the label, is the last
    agent, model, dataset = (
        [known[int(labels.code[row])] for row in first.tolist()] for known, labels in zip(names, each, strict=True)
    )
    return list(zip(agent, model, dataset, strict=True)), code.reshape(-1).astype("<u2")


@dataclass(frozen=True, slots=True)
class LogIndex:
    """The rollouts of a log that was read up to a byte, R rows of T tasks."""

    path: str  # of the log
    state: LogState
    lines: int
    groups: Sequence[Group]
    slices: Mapping[str, Sequence[str]]  # key -> its values, by code
    columns: Mapping[str, Array] = field(repr=False)  # as `ROW_TYPES`, `TASK_TYPES`, and names

    def __len__(self) -> int:
        return len(self.columns["start"])

    @property
    def tasks(self) -> int:
        """How many tasks there are."""
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
        ends = [0, *self.columns["end"].tolist()]
        blob = bytes(self.columns["names"])
        return [blob[start:end].decode("utf-8", "surrogatepass") for start, end in pairwise(ends)]

    def task(self, name: str) -> int | None:
        """The code of a task; None where there is no such task."""
        digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        found = np.flatnonzero(self.columns["hash"] == np.frombuffer(digest, dtype="<u8")[0])
        return int(found[0]) if len(found) else None

    def number(self, kind: str, name: str) -> Column:
        """A column of numbers, ``reward`` or ``usage``; all gaps where the log has none."""
        values = self.columns.get(f"{kind}:{name}")
        if values is None:
            return Column.gaps(len(self))
        return Column(values, self.columns[f"given:{kind}:{name}"].view(np.bool_))

    @property
    def usual_reward(self) -> str:
        """The reward that is shown where nobody picks one."""
        rewards = sorted(self.rewards)
        return "reward" if "reward" in rewards or not rewards else rewards[0]

    def outcomes(self) -> NDArray[np.uint8]:
        """The outcome of each row, [R]; where the log says none, its reward does."""
        outcome: NDArray[np.uint8] = self.columns["outcome"]
        unstated = outcome == UNSTATED
        if not unstated.any():
            return outcome
        rewarded = np.zeros(len(self), dtype=bool)
        for name in self.rewards:
            rewarded |= self.number("reward", name).given
        return np.where(unstated, np.where(rewarded, SCORED, MISSING), outcome).astype(np.uint8)

    def contributions(self) -> Column:
        """What each row contributes to the usual reward metric, [R], as `ledger.contributed` has it."""
        outcome, column = self.outcomes(), self.number("reward", self.usual_reward)
        numbered = outcome < FIRST_GAP
        nil = numbered & (outcome >= FIRST_NIL)
        zero = numbered & (outcome != SCORED) & (~column.given | nil)
        return Column(np.where(zero, 0.0, column.values), (column.given & numbered) | zero)

    def current(self) -> Bools:
        """The rows that no later attempt has replaced, [R]."""
        flags: Bools = self.columns["current"].view(np.bool_)
        return flags

    def part(self, slices: Collection[str] = ()) -> Part:
        """The rows as a reader gives them, with some slices, for everything that a table of rollouts is for."""
        places = Places(self.path)
        places.add(0, self.columns["line"])
        groups = self.columns["group"]
        labels = {}
        for at, name in enumerate(GROUP):
            values = list(dict.fromkeys(group[at] for group in self.groups if group[at] is not None))
            code = np.array([-1 if group[at] is None else values.index(group[at]) for group in self.groups])
            if values:  # of one group, one code serves all rows
                codes = code[groups] if len(code) > 1 else np.broadcast_to(code, len(self))
                labels[name] = Labels(codes, values)
        for key in slices:
            labels[f"metadata.{key}"] = Labels(self.columns[f"slice:{key}"].astype(np.int64), self.slices[key])
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
        )

    def save(self, target: str, mode: int = 0o600) -> None:
        """Write the index, whole or not at all; OSError where it cannot be."""
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
    """The index in a file, mapped; None where there is none that can be used."""
    try:
        with open(target, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if file.read(len(MAGIC)) != MAGIC:
                return None
            length = int.from_bytes(file.read(8), "little")
            if length > min(size, LARGEST_HEADER):
                return None
            header = msgspec.json.decode(file.read(length), type=_Header)
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
    """Whether the columns fit each other, and every row lies within the log."""
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
    """Whether an index is of the log as it is now."""
    known = index.state
    same = (known.size, known.modified, known.inode) == (state.size, state.modified, state.inode)
    return same and known.ends_sha256 == LogState.of(index.path, known.end).ends_sha256


def has_grown(index: LogIndex) -> bool:
    """Whether the log only has more lines than the index."""
    now = LogState.of(index.path, index.state.end)
    known = index.state
    return now.inode == known.inode and now.size >= known.end and now.ends_sha256 == known.ends_sha256 and known.end > 0


def build(path: str) -> LogIndex:
    """Index a log from its first byte; InputError for the first line that is no rollout."""
    state = LogState.of(path)
    keys = slice_keys(path)
    parts: list[IndexPart] = []
    if state.end:
        with _UpTo(path, state.end) as source:
            parts = read_lines(MAKER, source, {}, keys, lambda size: None)
    chunks = [chunk for part in _numbered(parts) for chunk in part]
    index = _index(path, state, chunks, sum(part.lines for part in parts))
    return replace(index, slices={key: index.slices[key] for key in keys if key in index.slices})  # as the log has them


def _numbered(parts: Iterable[IndexPart]) -> Iterator[list[Chunk]]:
    """The chunks of each part, with the lines counted from the beginning of the log."""
    for part in parts:
        first = int(part.places.lines(1)[0])
        for chunk in part.chunks:
            chunk.rows["line"] = chunk.rows["line"] + np.uint32(first - 1)
        yield part.chunks


def extend(index: LogIndex) -> LogIndex:
    """The index with the lines that were appended to its log since; itself where there are none."""
    state = LogState.of(index.path)
    if state.end <= index.state.end:
        return index
    where = {"path": index.path, "start": index.state.end, "end": state.end}
    part, lines_read = read_range(maker=MAKER, **where, names={}, labels=[*index.slices], words={})
    if isinstance(part, LineError):
        raise part.at(index.path, index.lines)
    for chunk in part.chunks:
        chunk.rows["line"] = chunk.rows["line"] + np.uint32(index.lines)
    ends = [0, *index.columns["end"].tolist()]
    blob = bytes(index.columns["names"])
    before = Chunk(
        {name: array for name, array in index.columns.items() if name not in (*TASK_TYPES, "names", "current")},
        index.columns["hash"],
        [blob[start:end] for start, end in pairwise(ends)],
        list(index.groups),
        {key: list(values) for key, values in index.slices.items()},
    )
    return _index(index.path, state, [before, *part.chunks], index.lines + lines_read)


class _UpTo(Source):
    """A log up to the end of its last whole line, whatever is appended meanwhile."""

    def __init__(self, path: str, end: int) -> None:
        super().__init__(path)
        self.size = end
        self.head = self.head[:end]
        self._left = end

    def readinto(self, room: memoryview) -> int:
        size = super().readinto(room[: self._left])
        self._left -= size
        return size

    def readinto_hashed(self, room: memoryview) -> int:
        return self.readinto(room)  # nobody asks for the hash


def slice_keys(path: str) -> list[str]:
    """The keys of metadata by which rollouts can be filtered: few values, each a text, a number or a truth value."""
    with open(path, "rb") as file:
        head = file.read(SAMPLED).removeprefix(BOM)
    seen: dict[str, set[Any]] = {}
    there: dict[str, int] = {}
    records = head.split(b"\n")[:-1]
    for line in records:
        try:
            metadata = msgspec.json.decode(_ROW.decode(line).get("metadata", b"{}"))
        except BAD:
            continue
        for key, value in metadata.items() if isinstance(metadata, dict) else ():
            if isinstance(value, (str, bool, int)) and len(str(value)) <= 80 and "." not in key and key:
                seen.setdefault(key, set()).add(value)
                there[key] = there.get(key, 0) + 1
    few = [key for key, values in seen.items() if len(values) <= max(20, there[key] // 4) and '"' not in key]
    return [key for key in few if key.isprintable() and "\\" not in key][:MOST_SLICES]


def _index(path: str, state: LogState, chunks: Sequence[Chunk], lines_read: int) -> LogIndex:
    """The chunks of a log as one index."""
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
    """The codes of each chunk's tasks among all, by first appearance; the hashes, names and ends of all."""
    hashes = np.concatenate([chunk.hash for chunk in chunks]) if chunks else np.zeros(0, dtype="<u8")
    distinct, first, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    code = np.empty(len(distinct), dtype="<u4")
    code[order] = np.arange(len(distinct), dtype="<u4")
    codes = code[inverse.reshape(-1)]
    cuts = np.cumsum([len(chunk.hash) for chunk in chunks])[:-1]
    every = [name for chunk in chunks for name in chunk.names]
    names = [every[at] for at in first[order].tolist()]
    ends = np.cumsum([len(name) for name in names], dtype="<u8") if names else np.zeros(0, dtype="<u8")
    blob = np.frombuffer(b"".join(names), dtype="|u1")
    return (np.split(codes, cuts) if chunks else []), distinct[order], blob, ends


def _current(columns: Mapping[str, Array]) -> Bools:
    """The rows that no later attempt, and no later line of the same attempt, has replaced, [R]."""
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
    """The folder of what is kept and cannot lie beside a log."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "calipers", "view")


def stamp(source: RunSource) -> str:
    """What changes when anything of a source does."""
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
    """The index of a source as it is now: the known one, one that was kept, extended or built. InputError says why not.

    A converted log is made again when its source changes.
    """
    log = _converted(source) if source.kind == "other" else confined_log(source)
    if known is None:
        for target in _targets(source, log):
            if (known := load_index(log, target)) is not None:
                break
    state = LogState.of(log)
    if known is not None and is_fresh(known, state):
        return known
    # the slices of a log are those of its beginning, which a short one has not told yet
    if known is not None and known.state.end >= SAMPLED and has_grown(known):
        index = extend(known)
        worth = index.state.end - known.state.end > index.state.end // 8
    else:
        index, worth = build(log), True
    if worth and index.state.end >= KEPT_FROM:
        index = kept(index, source)
    return index


def kept_index(source: RunSource) -> LogIndex | None:
    """The index that was kept, if it is of the log as it is now; None where it is to be built or extended."""
    if source.kind == "other":
        return None
    log = confined_log(source)
    for target in _targets(source, log):
        if (index := load_index(log, target)) is not None and is_fresh(index, LogState.of(log)):
            return index
    return None


def confined_log(source: RunSource) -> str:
    """The log of a source, if it still lies under the paths given; InputError where it is a link out of them."""
    path = source.log
    if not os.path.lexists(path):  # a run that has not begun
        return path
    real = confined(path, source.root)
    if not stat.S_ISREG(os.stat(real).st_mode):
        raise InputError.at(path, "is not a regular file", "expected a log")
    return real


def kept(index: LogIndex, source: RunSource) -> LogIndex:
    """The index as it was written beside its log, or in the cache folder where that cannot be; else as it is."""
    mode = stat.S_IMODE(os.stat(index.path).st_mode) & 0o666
    for target in _targets(source, index.path):
        with suppress(OSError):
            if target.startswith(cache_folder()):
                os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
            index.save(target, mode)
            return load_index(index.path, target) or index
    return index


def _targets(source: RunSource, log: str) -> list[str]:
    """Where an index may be: beside its log, else in the cache folder."""
    return [log + SUFFIX, os.path.join(cache_folder(), source.id, os.path.basename(log) + SUFFIX)]


def _converted(source: RunSource) -> str:
    """The log in the cache folder that a source of another format was converted to; InputError says what is wrong."""
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
    """The path without links; InputError where it is neither a path given nor inside one."""
    real = os.path.realpath(path)
    if real != root and not real.startswith(os.path.join(root, "")):
        raise InputError.at(path, "is a link that leads out of the paths given", "give its target, too")
    return real


def child(source: dict[str, Any]) -> None:
    """What a child process of the viewer does: build an index and keep it where the viewer finds it."""
    with suppress(CalipersError):
        current_index(RunSource(**source))
