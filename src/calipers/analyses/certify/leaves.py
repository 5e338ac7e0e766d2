"""The leaves of a certificate: a short canonical text for each rollout, in an order that no file decides.

::

    {"attempt":2,"dataset":"arith","model":"m","numbers":{...},"outcome":"scored","rewards":{"reward":1},
     "sample":0,"task":"add-1","words":"<SHA-256 of the canonical object of all that the record says in words>"}

Numbers come from the columns that a score reads, so that two files with the same leaves have the same score. Records
in JSON Lines are hashed while they are read; those of other formats pass one by one, as `calipers convert` writes them.

The tree of many leaves is grown in several processes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from calipers.analyses.certify import tree as trees
from calipers.analyses.certify.tree import LeafChunk
from calipers.errors import InputError
from calipers.formats.canonical import (
    LANES,
    NotCanonical,
    canonical,
    is_time,
    number,
    number_texts,
    utf16,
    words_digest,
)
from calipers.formats.carried import CARRIED
from calipers.formats.format import Raw
from calipers.formats.lines import ChildProcess, processes
from calipers.rollouts.column import Column, Ints
from calipers.rollouts.packed import small
from calipers.rollouts.part import Labels, Part
from calipers.rollouts.record import GROUP, OUTCOMES, ROLES
from calipers.rollouts.table import join_codes, join_columns, join_labels, outcomes_of

CHUNK: Final = 1 << 13  # leaves whose texts are in memory at once; twice and half of it are slower
COMBINATIONS: Final = 1 << 12  # of neighbouring pieces that are worth a table
SAID: Final = ("prompt", "completion", "answer", "error", "metadata")
HEX: Final = 64  # hexadecimal digits of a hash
HEIGHT: Final = 12  # of the branches that processes grow; their first leaf is a multiple of 2^HEIGHT
HEAD_START: Final = 80_000  # leaves that this process hashes while another starts
WORTH_DIVIDING: Final = 250_000  # leaves


@dataclass(frozen=True, slots=True)
class Leaves:
    """All leaves in their order: how many, and their texts."""

    count: int
    chunks: Callable[[int, int], Iterator[LeafChunk]]  # the leaves of a range, at most `CHUNK` at a time
    name: Callable[[int], str]  # of a leaf, for messages: the task and the sample
    find: Callable[[str, int | None], list[int]]  # the leaves of a task, of one sample or all

    def texts(self) -> Iterator[bytes]:
        """The texts of all leaves."""
        for chunk in self.chunks(0, self.count):
            yield from chunk.texts()


def of_parts(parts: list[Part]) -> Leaves:
    """The leaves of records that were read with the hashes of their words; the parts are given up."""
    rows = _Rows.of(parts)
    parts.clear()
    order = rows.order()
    task, sample = rows.task[order], rows.sample[order]

    def find(name: str, wanted: int | None) -> list[int]:
        code = rows.tasks.index(name) if name in rows.tasks else -1
        matches = np.flatnonzero((task == code) & (True if wanted is None else sample == wanted))
        return [int(index) for index in matches]

    return Leaves(
        len(order),
        lambda first, end: (rows.take(order[start : min(start + CHUNK, end)]) for start in range(first, end, CHUNK)),
        lambda index: f"task {rows.tasks[int(task[index])]!r} sample {int(sample[index])}",
        find,
    )


def of_records(records: Iterator[Mapping[str, Any]]) -> Leaves:
    """The leaves of records one by one, all of whose texts are held."""
    keyed = []
    for row, record in enumerate(records):
        try:
            keyed.append(_keyed(record))
        except NotCanonical as error:
            wrong, right = error.args
            raise InputError.at(f"rollout {row + 1}, task {record.get('task')!r}", wrong, right) from None
    keyed.sort()

    def find(name: str, wanted: int | None) -> list[int]:
        told = (name.encode(), None if wanted is None else wanted)
        return [index for index, (key, _) in enumerate(keyed) if key[3] == told[0] and told[1] in (None, key[4])]

    def chunks(first: int, end: int) -> Iterator[LeafChunk]:
        for start in range(first, end, CHUNK):
            yield HeldTexts([text for _, text in keyed[start : min(start + CHUNK, end)]])

    return Leaves(
        len(keyed),
        chunks,
        lambda index: f"task {keyed[index][0][3].decode()!r} sample {keyed[index][0][4]}",
        find,
    )


def leaf_of(record: Mapping[str, Any]) -> bytes:
    """The leaf of one record of ours; NotCanonical where it has none."""
    return _keyed(record)[1]


def words_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """What a record says in words, decoded: what the hash in its leaf is of."""
    return _split(record)[1]


def _split(record: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The numbers and the words of a record, times left out."""
    numbers: dict[str, Any] = {}
    words: dict[str, Any] = {}
    for key, given in record.items():
        value = _decoded(given)
        if value is None or key == CARRIED or is_time(key):
            continue
        if key == "usage":
            numbers |= {name: inner for name, inner in value.items() if inner is not None and not is_time(name)}
        elif key in SAID or (key not in ROLES and not isinstance(value, (bool, int, float))):
            words[key] = value
        elif key not in ROLES:
            numbers[key] = value
    return {name: float(value) for name, value in numbers.items()}, words


def _decoded(value: Any) -> Any:
    if not isinstance(value, Raw):
        return value
    from calipers.formats.canonical import canonical_raw

    canonical_raw(bytes(value))  # which refuses a key that appears twice
    return msgspec.json.decode(value)


def _keyed(record: Mapping[str, Any]) -> tuple[tuple[bytes, bytes, bytes, bytes, int, int], bytes]:
    """The leaf of a record, behind what leaves are sorted by."""
    numbers, words = _split(record)
    rewards = {name: value for name, value in (_decoded(record.get("rewards")) or {}).items() if value is not None}
    if (reward := _decoded(record.get("reward"))) is not None:
        rewards["reward"] = reward
    group = {name: _decoded(record.get(name)) for name in GROUP}
    task, sample = str(_decoded(record["task"])), int(_decoded(record.get("sample")) or 0)
    attempt = int(_decoded(record.get("attempt")) or 1)
    outcome = _decoded(record.get("outcome")) or ("scored" if rewards else "missing")
    leaf: dict[str, Any] = {
        **{name: value for name, value in group.items() if value is not None},
        **({"attempt": attempt} if attempt != 1 else {}),
        **({"numbers": _finite(numbers)} if numbers else {}),
        "outcome": outcome,
        **({"rewards": _finite(rewards)} if rewards else {}),
        "sample": sample,
        "task": task,
    }
    if digest := words_digest(words):
        leaf["words"] = digest
    names = [(group[name] or "").encode() for name in ("dataset", "model", "agent")]
    return (names[0], names[1], names[2], task.encode(), sample, attempt), canonical(leaf)


def _finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers by name; one that is not finite is the text that stands for it."""
    return {name: json.loads(number(float(value))) for name, value in values.items()}


@dataclass(frozen=True, slots=True)
class HeldTexts:
    """Leaves whose texts are at hand."""

    held: list[bytes]

    def __len__(self) -> int:
        return len(self.held)

    def texts(self, heads: Sequence[bytes] = ()) -> list[bytes]:
        """The texts of the leaves, each behind its head if there are heads."""
        return [head + text for head, text in zip(heads, self.held, strict=True)] if heads else self.held


@dataclass(frozen=True, slots=True)
class _Rows:
    """Some rows, their columns joined: [R] each."""

    tasks: Sequence[str]
    task: Ints
    sample: Ints
    attempt: Ints
    outcome: NDArray[np.uint8]
    group: dict[str, Labels]
    rewards: dict[str, Column]
    numbers: dict[str, Column]
    words: Column | None  # the hashes of their words, [R, 4]

    def __len__(self) -> int:
        return len(self.task)

    @classmethod
    def of(cls, parts: Sequence[Part]) -> _Rows:
        """The rows of the parts, one after the other; whole numbers take as few bytes as they can."""
        tasks, task = join_codes([part.tasks for part in parts], [part.task for part in parts])
        numbers = [
            (len(part), {name: each for name, each in part.columns.items() if name not in LANES and not is_time(name)})
            for part in parts
        ]
        labels = join_labels(
            [replace(part, labels={n: part.labels[n] for n in GROUP if n in part.labels}) for part in parts]
        )
        return cls(
            tasks,
            small(task),
            small(np.concatenate([part.sample for part in parts])),
            small(np.concatenate([part.attempt for part in parts])),
            outcomes_of(parts),
            labels,
            join_columns([(len(part), part.rewards) for part in parts], None),
            join_columns(numbers, None),
            _words(parts),
        )

    def take(self, rows: Ints) -> _Rows:
        """Some of the rows, with the names of their own tasks alone."""
        codes, task = np.unique(self.task[rows], return_inverse=True)
        return _Rows(
            [self.tasks[code] for code in codes.tolist()],
            small(task.reshape(-1)),
            self.sample[rows],
            self.attempt[rows],
            self.outcome[rows],
            {name: labels.take(rows) for name, labels in self.group.items()},
            {name: column.take(rows) for name, column in self.rewards.items()},
            {name: column.take(rows) for name, column in self.numbers.items()},
            None if self.words is None else self.words.take(rows),
        )

    def order(self) -> Ints:
        """The rows by dataset, model, agent, task, sample and attempt, texts by their UTF-8 bytes; then by leaf."""
        keys = [self.attempt, self.sample, _ranks(self.tasks)[self.task]]
        for name in ("agent", "model", "dataset"):
            if name in self.group:
                labels = self.group[name]
                keys.append(np.append(_ranks(labels.values) + 1, 0)[labels.code])  # the last for none
        order: Ints = np.lexsort(keys).astype(np.uint32 if len(self.task) < 2**32 else np.int64)
        same = np.ones(max(len(order) - 1, 0), dtype=bool)
        for key in keys:
            same &= key[order[1:]] == key[order[:-1]]
        starts = np.flatnonzero(same & ~np.append(False, same[:-1]))
        for start in starts.tolist():  # rows that only their leaves tell apart
            end = start + 1
            while end <= len(same) and end - 1 < len(same) and same[end - 1]:
                end += 1
            rows = order[start:end]
            texts = self.take(rows).texts()
            order[start:end] = rows[sorted(range(len(rows)), key=texts.__getitem__)]
        return order

    def texts(self, heads: Sequence[bytes] = ()) -> list[bytes]:
        """The leaves of the rows, each behind its head if there are heads."""
        pieces = [*self._labels("agent"), *self._whole("attempt"), *self._labels("dataset", "model")]
        pieces += _object("numbers", self.numbers)
        words, outcome = np.unique(self.outcome, return_inverse=True)
        pieces.append(_Piece([b',"outcome":"%b"' % OUTCOMES[word].encode() for word in words.tolist()], outcome))
        pieces += _object("rewards", self.rewards)
        pieces += self._whole("sample")
        pieces.append(_Piece([b',"task":%b' % _quoted(task) for task in self.tasks], self.task))
        pieces.append(self._end())
        columns = [piece.expanded() for piece in _opened(_merged(pieces))]
        return [*map(b"".join, zip(*([heads] if heads else []), *columns, strict=True))]

    def _labels(self, *names: str) -> list[_Piece]:
        """What labels add to each leaf, behind a comma; nothing where a row has none."""
        pieces = []
        for name in names:
            if name in self.group:
                labels = self.group[name]
                table = [*(b',"%b":%b' % (name.encode(), _quoted(value)) for value in labels.values), b""]
                pieces.append(_Piece(table, np.where(labels.code < 0, len(labels.values), labels.code)))
        return pieces

    def _whole(self, name: str) -> list[_Piece]:
        """What a whole number adds to each leaf; the first attempt is not said."""
        values, places = np.unique(getattr(self, name), return_inverse=True)
        if name == "attempt" and values.tolist() == [1]:
            return []
        said = [b',"%b":%d' % (name.encode(), value) for value in values.tolist()]
        return [_Piece([b"" if text == b',"attempt":1' else text for text in said], places.reshape(-1))]

    def _end(self) -> _Piece:
        """The hash of the words of each row, if it has any, and the end of its leaf."""
        rows = len(self.task)
        if self.words is None:
            return _Piece([b"}"], np.zeros(rows, dtype=np.int64))
        head, tail = b',"words":"', b'"}'
        octets = np.empty((rows, len(head) + HEX + len(tail)), dtype=np.uint8)
        octets[:, : len(head)] = np.frombuffer(head, dtype=np.uint8)
        octets[:, -len(tail) :] = np.frombuffer(tail, dtype=np.uint8)
        digits = np.ascontiguousarray(self.words.values).tobytes().hex().encode()
        octets[:, len(head) : -len(tail)] = np.frombuffer(digits, dtype=np.uint8).reshape(rows, HEX)
        texts: list[bytes] = octets.view(f"V{octets.shape[1]}").reshape(-1).tolist()
        if not self.words.given.all():
            texts = [text if given else b"}" for text, given in zip(texts, self.words.given.tolist(), strict=True)]
        return _Piece(texts, None)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of the text of each row: one of a table of texts, or the texts themselves."""

    table: list[bytes]
    codes: Ints | None

    def expanded(self) -> list[bytes]:
        """The text of each row."""
        if self.codes is None:
            return self.table
        texts: list[bytes] = np.array(self.table, dtype=object)[self.codes].tolist()
        return texts


def _merged(pieces: Sequence[_Piece]) -> list[_Piece]:
    """Fewer pieces: neighbours whose texts have few combinations are one."""
    merged: list[_Piece] = []
    for piece in pieces:
        last = merged[-1] if merged else None
        few = last is not None and len(last.table) * len(piece.table) <= COMBINATIONS
        if few and last and last.codes is not None and piece.codes is not None:
            table = [before + after for before in last.table for after in piece.table]
            merged[-1] = _Piece(table, last.codes.astype(np.int64) * len(piece.table) + piece.codes)
        else:
            merged.append(piece)
    return merged


def _opened(pieces: list[_Piece]) -> list[_Piece]:
    """The pieces, the first comma of each row an opening brace; the outcome is never absent."""
    first = next(at for at, piece in enumerate(pieces) if all(piece.table))
    opening = pieces[first]
    if first:
        joined = zip(*(piece.expanded() for piece in pieces[: first + 1]), strict=True)
        opening = _Piece([*map(b"".join, joined)], None)
    return [_Piece([b"{" + text[1:] for text in opening.table], opening.codes), *pieces[first + 1 :]]


def _words(parts: Sequence[Part]) -> Column | None:
    """The hashes of the rows' words, [R, 4]; None without any. The parts give them up."""
    if not any(LANES[0] in part.columns for part in parts):
        return None
    sizes = [len(part) for part in parts]
    hashes, given = np.zeros((sum(sizes), len(LANES))), np.zeros(sum(sizes), dtype=np.bool_)
    first = 0
    for part, size in zip(parts, sizes, strict=True):
        for at, name in enumerate(LANES):
            if (lane := part.columns.pop(name, None)) is not None:
                hashes[first : first + size, at] = lane.values
                given[first : first + size] = lane.given
        first += size
    return Column(hashes, given)


def _object(name: str, columns: Mapping[str, Column]) -> list[_Piece]:
    """An object of numbers for each row; nothing where a row has none of them."""
    pieces = []
    complete = True
    for key in sorted(columns, key=utf16):
        values, given = columns[key].values, columns[key].given
        head = b",%b:" % _quoted(key)
        distinct, places = np.unique(values, return_inverse=True)
        table = [head + text for text in number_texts(distinct)]
        places = places.reshape(-1)
        if not given.all():
            complete = False
            table.append(b"")
            places = np.where(given, places, len(table) - 1)
        pieces.append(_Piece(table, places))
    if not pieces:
        return []
    start = b',"%b":{' % name.encode()
    if complete:  # the braces go with the first and the last number
        pieces[0] = _Piece([start + text[1:] for text in pieces[0].table], pieces[0].codes)
        pieces[-1] = _Piece([text + b"}" for text in pieces[-1].table], pieces[-1].codes)
        return pieces
    joined = map(b"".join, zip(*(piece.expanded() for piece in _merged(pieces)), strict=True))
    return [_Piece([b"%b%b}" % (start, text[1:]) if text else b"" for text in joined], None)]


_ENCODE: Final = json.JSONEncoder(ensure_ascii=False).encode


def _quoted(text: str) -> bytes:
    return _ENCODE(text).encode()


def _ranks(values: Sequence[Any]) -> Ints:
    """The place of each value among all of them, sorted by their UTF-8 bytes."""
    ranks = np.zeros(len(values), dtype=np.int64)
    ranks[sorted(range(len(values)), key=lambda code: str(values[code]).encode())] = np.arange(len(values))
    return ranks


def grow(seed: bytes, leaves: Leaves) -> trees.Tree:
    """The tree of the leaves; InputError without any."""
    starts = _starts(leaves.count, processes())
    if not starts:
        return trees.Tree(seed, trees.branch(seed, 0, leaves.count, leaves.chunks(0, leaves.count)))
    children: list[ChildProcess[trees.Levels]] = []
    try:
        for first, end in pairwise([*starts, leaves.count]):
            request = {"seed": seed.hex(), "first": first, "count": end - first}
            way = "calipers.analyses.certify.leaves:grow_branch"
            children.append(ChildProcess(way, request, partial(leaves.chunks, first, end)))
        levels = trees.branch(seed, 0, starts[0], leaves.chunks(0, starts[0]), HEIGHT)
        for child in children:
            for level, more in zip(levels, child.result(), strict=True):
                level += more
    finally:
        for child in children:
            child.stop()
    return trees.Tree(seed, trees.raised(levels))


def grow_branch(seed: str, first: int, count: int, given: Iterator[trees.LeafChunk]) -> trees.Levels:
    """The levels over some leaves, in a process of their own."""
    return trees.branch(bytes.fromhex(seed), first, count, given, HEIGHT)


def _starts(count: int, workers: int) -> list[int]:
    """The first leaf of each other process, so that all end at one time; none where that saves nothing."""
    if workers < 2 or count < WORTH_DIVIDING:
        return []
    share = (count - HEAD_START) // workers
    step = 1 << HEIGHT
    return [(count - share * (workers - n)) // step * step for n in range(1, workers)]
