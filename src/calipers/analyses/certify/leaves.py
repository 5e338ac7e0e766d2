"""The leaves of a certificate: a short canonical text for each rollout, in an order that does not depend on files.

::

    {"attempt":2,"dataset":"arith","model":"m","numbers":{...},"outcome":"scored","rewards":{"reward":1},
     "sample":0,"task":"add-1","words":"<SHA-256 of the canonical object of all texts of the record>"}

"Words" are the texts of a record, such as prompts and completions. Numbers come from the columns that a score reads, so
that two files with the same leaves have the same score. Records in JSON Lines are hashed while they are read; records
of other formats are hashed one by one, in the form that `calipers convert` writes.

The tree of many leaves is computed in several processes.
"""

from __future__ import annotations

import json
from binascii import hexlify
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, repeat
from json.encoder import encode_basestring
from math import isfinite
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from calipers.analyses.certify import tree as trees
from calipers.analyses.certify.tree import LeafChunk
from calipers.errors import InputError
from calipers.formats import Raw
from calipers.formats.canonical import (
    LANES,
    NotCanonical,
    canonical,
    canonical_raw,
    is_time,
    number,
    number_texts,
    utf16,
    words_digest,
)
from calipers.formats.lines import ChildProcess, processes
from calipers.formats.source_facts import FACTS
from calipers.rollouts.column import Column, Ints
from calipers.rollouts.packed import small
from calipers.rollouts.record import GROUP, OUTCOMES, ROLES
from calipers.rollouts.table import Labels, Part, join_codes, join_columns, join_labels, outcomes_of

CHUNK: Final = 1 << 13  # leaves whose texts are in memory at once, a power of 2; twice or half as many are slower
COMBINATIONS: Final = 1 << 12  # neighbouring pieces with at most this many combinations of texts share a table
TEXTS: Final = ("prompt", "completion", "answer", "error", "metadata")  # keys that always belong to the words
WHOLE: Final = 1 << 13  # integers below this are looked up in a table of texts
SAMPLED: Final = 64  # numbers that are examined to see whether most numbers of a column are distinct
HEX: Final = 64  # hexadecimal digits of a hash
HEIGHT: Final = CHUNK.bit_length() - 1  # of the branch over a chunk of leaves, which ends in one node
WORTH_DIVIDING: Final = 150_000  # leaves from which several processes are worth their start
_OUTCOMES: Final = [b',"outcome":"%b"' % outcome.encode() for outcome in OUTCOMES]


@dataclass(frozen=True, slots=True)
class Leaves:
    """All leaves in their order: their number and access to their texts."""

    count: int
    chunk: Callable[[int], LeafChunk]  # at most `CHUNK` leaves from an index on, which is a multiple of `CHUNK`
    name: Callable[[int], str]  # the task and the sample of a leaf, for messages
    find: Callable[[str, int | None], list[int]]  # the indices of a task's leaves, for one sample or all

    def texts(self) -> Iterator[bytes]:
        """The texts of all leaves."""
        for first in range(0, self.count, CHUNK):
            yield from self.chunk(first).texts()


def of_parts(parts: list[Part]) -> Leaves:
    """The leaves of records that were read with the hashes of their words; ``parts`` is emptied to free memory."""
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
        lambda first: rows.take(order[first : first + CHUNK]),
        lambda index: f"task {rows.tasks[int(task[index])]!r} sample {int(sample[index])}",
        find,
    )


def of_records(records: Iterator[Mapping[str, Any]]) -> Leaves:
    """The leaves of records that are hashed one by one, with all texts in memory."""
    keyed = []
    for row, record in enumerate(records):
        try:
            keyed.append(_keyed(record))
        except NotCanonical as error:
            problem, expected = error.args
            raise InputError.at(f"rollout {row + 1}, task {record.get('task')!r}", problem, expected) from None
    keyed.sort()

    def find(name: str, wanted: int | None) -> list[int]:
        task = name.encode()
        return [index for index, (key, _) in enumerate(keyed) if key[3] == task and wanted in (None, key[4])]

    return Leaves(
        len(keyed),
        lambda first: TextChunk([text for _, text in keyed[first : first + CHUNK]]),
        lambda index: f"task {keyed[index][0][3].decode()!r} sample {keyed[index][0][4]}",
        find,
    )


def leaf_of(record: Mapping[str, Any]) -> bytes:
    """The leaf of a native record; NotCanonical if it cannot be represented."""
    return _keyed(record)[1]


def words_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """The decoded words of a record, whose hash is in its leaf."""
    return _split(record)[1]


def _split(record: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The numbers and the words of a record, without times."""
    numbers: dict[str, Any] = {}
    words: dict[str, Any] = {}
    for key, given in record.items():
        value = _decoded(given)
        if value is None or key == FACTS or is_time(key):
            continue
        if key == "usage":
            numbers |= {name: inner for name, inner in value.items() if inner is not None and not is_time(name)}
        elif key in TEXTS or (key not in ROLES and not isinstance(value, (bool, int, float))):
            words[key] = value
        elif key not in ROLES:
            numbers[key] = value
    return {name: float(value) for name, value in numbers.items()}, words


def _decoded(value: Any) -> Any:
    if not isinstance(value, Raw):
        return value
    canonical_raw(bytes(value))  # raises NotCanonical for a key that appears twice
    return msgspec.json.decode(value)


def _keyed(record: Mapping[str, Any]) -> tuple[tuple[bytes, bytes, bytes, bytes, int, int], bytes]:
    """The sort key of a record's leaf, and the leaf."""
    numbers, words = _split(record)
    rewards = {name: value for name, value in (_decoded(record.get("rewards")) or {}).items() if value is not None}
    if (reward := _decoded(record.get("reward"))) is not None:
        rewards["reward"] = reward
    group = {name: _decoded(record.get(name)) for name in GROUP}
    task, sample = str(_decoded(record["task"])), int(_decoded(record.get("sample")) or 0)
    attempt = int(_decoded(record.get("attempt")) or 1)
    outcome = _decoded(record.get("outcome")) or ("scored" if rewards else "missing")
    parts = {
        **group,
        "attempt": attempt if attempt != 1 else None,
        "numbers": _finite(numbers) or None,
        "outcome": outcome,
        "rewards": _finite(rewards) or None,
        "sample": sample,
        "task": task,
        "words": words_digest(words) or None,
    }
    leaf = {name: value for name, value in parts.items() if value is not None}
    dataset, model, agent = ((group[name] or "").encode() for name in ("dataset", "model", "agent"))
    return (dataset, model, agent, task.encode(), sample, attempt), canonical(leaf)


def _finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers by name; a number that is not finite is replaced by its text."""
    numbers = {name: float(value) for name, value in values.items()}
    return {name: value if isfinite(value) else json.loads(number(value)) for name, value in numbers.items()}


@dataclass(frozen=True, slots=True)
class TextChunk:
    """Consecutive leaves whose texts are in memory."""

    leaves: list[bytes]

    def __len__(self) -> int:
        return len(self.leaves)

    def texts(self, heads: Sequence[bytes] = ()) -> list[bytes]:
        """The texts of the leaves, each prefixed with its head if heads are given."""
        return [head + text for head, text in zip(heads, self.leaves, strict=True)] if heads else self.leaves


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of several parts, with joined columns, [R] each."""

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
        """The rows of the parts, one after the other; integers take as few bytes as possible."""
        tasks, task = join_codes([part.tasks for part in parts], [part.task for part in parts])
        numbers = [
            (len(part), {name: part.columns[name] for name in part.columns if name not in LANES and not is_time(name)})
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
        """The selected rows, with only the names of their own tasks."""
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
        """The order of the rows by dataset, model, agent, task, sample and attempt, and then by leaf.

        Texts are compared by their UTF-8 bytes.
        """
        keys = [self.attempt, self.sample, _ranks(self.tasks)[self.task]]
        for name in ("agent", "model", "dataset"):
            if name in self.group:
                labels = self.group[name]
                keys.append(np.append(_ranks(labels.values) + 1, 0)[labels.code])  # code -1, no label, has rank 0
        order: Ints = np.lexsort(keys).astype(np.uint32 if len(self.task) < 2**32 else np.int64)
        same = np.ones(max(len(order) - 1, 0), dtype=bool)
        for key in keys:
            same &= key[order[1:]] == key[order[:-1]]
        starts, ends = np.flatnonzero(np.diff(np.concatenate([[False], same, [False]]))).reshape(-1, 2).T
        for start, end in zip(starts.tolist(), (ends + 1).tolist(), strict=True):  # rows with equal keys
            rows = order[start:end]
            texts = self.take(rows).texts()
            order[start:end] = rows[sorted(range(len(rows)), key=texts.__getitem__)]
        return order

    def texts(self, heads: Sequence[bytes] = ()) -> list[bytes]:
        """The leaves of the rows, each prefixed with its head if heads are given."""
        retried = Column(self.attempt.astype(np.float64), self.attempt != 1)  # a first attempt is left out
        attempt = [_optional_numbers(b',"attempt":', retried)] if retried.given.any() else []
        pieces = [*self._labels("agent"), *attempt, *self._labels("dataset", "model")]
        pieces += _object("numbers", self.numbers)
        pieces.append(_Piece(_OUTCOMES, self.outcome))
        pieces += _object("rewards", self.rewards)
        pieces += _numbers(b',"sample":', self.sample)
        pieces.append(_Piece([b',"task":%b' % _quoted(task) for task in self.tasks], self.task))
        pieces += self._end()
        columns = [piece.expanded() for piece in _opened(_merged(pieces))]
        return [*map(b"".join, zip(*([heads] if heads else []), *columns, strict=True))]

    def _labels(self, *names: str) -> list[_Piece]:
        """The labels of each leaf, each with a leading comma; empty for a row without the label."""
        pieces = []
        for name in names:
            if name in self.group:
                labels = self.group[name]
                table = [*(b',"%b":%b' % (name.encode(), _quoted(value)) for value in labels.values), b""]
                pieces.append(_Piece(table, np.where(labels.code < 0, len(labels.values), labels.code)))
        return pieces

    def _end(self) -> list[_Piece]:
        """The hash of the words of each row, if it has any, and the end of its leaf."""
        rows = len(self.task)
        if self.words is None:
            return [_same(b"}", rows)]
        head, tail = b',"words":"', b'"}'
        octets = np.empty((rows, HEX + len(tail)), dtype=np.uint8)
        digits = hexlify(np.ascontiguousarray(self.words.values).data)
        octets[:, :HEX] = np.frombuffer(digits, dtype=np.uint8).reshape(rows, HEX)
        octets[:, HEX:] = np.frombuffer(tail, dtype=np.uint8)
        texts: list[bytes] = octets.view(f"V{HEX + len(tail)}").reshape(-1).tolist()
        if self.words.given.all():
            return [_same(head, rows), _Piece(texts, None)]
        given = zip(texts, self.words.given.tolist(), strict=True)
        return [_Piece([head + text if has_words else b"}" for text, has_words in given], None)]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of the text of each row: codes into a table of texts, or the texts themselves."""

    table: Sequence[bytes]
    codes: NDArray[np.integer[Any]] | None  # None: ``table`` has the text of each row

    def expanded(self) -> Iterable[bytes]:
        """The text of each row."""
        if self.codes is None:
            return self.table
        if len(self.table) == 1:
            return repeat(self.table[0], len(self.codes))
        texts: list[bytes] = np.asarray(self.table, dtype=object)[self.codes].tolist()
        return texts


def _same(text: bytes, rows: int) -> _Piece:
    """The same text for every row."""
    return _Piece([text], np.zeros(rows, dtype=np.uint8))


def _merged(pieces: Sequence[_Piece]) -> list[_Piece]:
    """The pieces, with neighbours merged if their texts have few combinations."""
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
    """The pieces, with the first comma of each row replaced by an opening brace.

    The brace goes to the first piece that no row lacks; the outcome is always such a piece.
    """
    first = next(index for index, piece in enumerate(pieces) if all(piece.table))
    opening = pieces[first]
    if first:
        joined = zip(*(piece.expanded() for piece in pieces[: first + 1]), strict=True)
        opening = _Piece([*map(b"".join, joined)], None)
    return [_Piece([b"{" + text[1:] for text in opening.table], opening.codes), *pieces[first + 1 :]]


def _words(parts: Sequence[Part]) -> Column | None:
    """The hashes of the rows' words, [R, 4], which are removed from the parts; None without any."""
    if not any(LANES[0] in part.columns for part in parts):
        return None
    sizes = [len(part) for part in parts]
    hashes, given = np.zeros((sum(sizes), len(LANES))), np.zeros(sum(sizes), dtype=np.bool_)
    first = 0
    for part, size in zip(parts, sizes, strict=True):
        for index, name in enumerate(LANES):
            if (lane := part.columns.pop(name, None)) is not None:
                hashes[first : first + size, index] = lane.values
                given[first : first + size] = lane.given
        first += size
    return Column(hashes, given)


def _object(name: str, columns: Mapping[str, Column]) -> list[_Piece]:
    """A JSON object of numbers for each row; empty for a row without any of the numbers."""
    if not columns:
        return []
    start = b',"%b":{' % name.encode()
    complete = all(column.given.all() for column in columns.values())
    pieces: list[_Piece] = []
    for key in sorted(columns, key=utf16):
        column = columns[key]
        head = (b"," if pieces or not complete else start) + _quoted(key) + b":"
        pieces += _numbers(head, column.values) if complete else [_optional_numbers(head, column)]
    if complete:
        return [*pieces, _same(b"}", len(column))]
    joined = map(b"".join, zip(*(piece.expanded() for piece in _merged(pieces)), strict=True))
    return [_Piece([b"%b%b}" % (start, text[1:]) if text else b"" for text in joined], None)]


def _numbers(head: bytes, values: NDArray[Any]) -> list[_Piece]:
    """The number of each row, prefixed with ``head``."""
    if len(values) and values.min() >= 0 and values.max() < WHOLE:
        integers = values.astype(np.int64)
        if (integers == values).all():
            return [_Piece(_integer_texts(head)[: int(integers.max()) + 1], integers)]
    if len(np.unique(values[:SAMPLED])) > SAMPLED // 2:
        return [_same(head, len(values)), _Piece(number_texts(values.astype(np.float64)), None)]
    distinct, codes = np.unique(values, return_inverse=True)
    return [_Piece([head + text for text in number_texts(distinct.astype(np.float64))], codes.reshape(-1))]


def _optional_numbers(head: bytes, column: Column) -> _Piece:
    """The number of each row, prefixed with ``head``; empty for a row without a number."""
    distinct, codes = np.unique(column.values, return_inverse=True)
    table = [*(head + text for text in number_texts(distinct)), b""]
    return _Piece(table, np.where(column.given, codes.reshape(-1), len(distinct)))


@lru_cache(maxsize=64)
def _integer_texts(head: bytes) -> list[bytes]:
    """The integers from 0 on, each prefixed with ``head``."""
    return [b"%b%d" % (head, value) for value in range(WHOLE)]


def _quoted(text: str) -> bytes:
    return encode_basestring(text).encode()


def _ranks(values: Sequence[Any]) -> Ints:
    """The rank of each value when values are sorted by their UTF-8 bytes."""
    ranks = np.zeros(len(values), dtype=np.int64)
    ranks[sorted(range(len(values)), key=lambda code: str(values[code]).encode())] = np.arange(len(values))
    return ranks


Branch = tuple[int, trees.Levels]  # the index of its first leaf, and its levels up to `HEIGHT`


def grow(seed: bytes, leaves: Leaves) -> trees.Tree:
    """The tree of the leaves; InputError without any."""
    with growing_tree(seed, leaves) as finished:
        return finished()


@contextmanager
def growing_tree(seed: bytes, leaves: Leaves) -> Iterator[Callable[[], trees.Tree]]:
    """Compute the tree of the leaves in other processes during the block.

    The context is a function that computes the remaining branches in this process, and returns the tree.
    """
    left = deque(range(0, leaves.count, CHUNK))
    others = processes() - 1 if leaves.count >= WORTH_DIVIDING else 0
    request = {"seed": seed, "count": leaves.count}
    children: list[ChildProcess[list[Branch]]] = []

    def finished() -> trees.Tree:
        own = _branches(seed, leaves.count, TakenChunks(leaves, left)())
        of_children = (branch for child in children for branch in child.result())
        return trees.Tree(seed, _joined(leaves.count, chain(own, of_children)))

    try:
        for _ in range(others):
            function = "calipers.analyses.certify.leaves:grow_branches"
            children.append(ChildProcess(function, request, TakenChunks(leaves, left)))
        yield finished
    finally:
        for child in children:
            child.stop()


class TakenChunks:
    """The chunks of leaves that one process takes from the chunks that no process has taken yet."""

    def __init__(self, leaves: Leaves, left: deque[int]) -> None:
        self._leaves, self._left = leaves, left
        self._taken: list[int] = []

    def __call__(self) -> Iterator[tuple[int, LeafChunk]]:
        """Yield each chunk with the index of its first leaf.

        A second call, after the process has died, starts with the chunks that were taken before.
        """
        yield from ((first, self._leaves.chunk(first)) for first in [*self._taken])
        while self._left:
            try:
                first = self._left.popleft()
            except IndexError:  # another process took the last one in between
                return
            self._taken.append(first)
            yield first, self._leaves.chunk(first)


def grow_branches(seed: bytes, count: int, given: Iterable[tuple[int, LeafChunk]]) -> list[Branch]:
    """The branches over the given chunks; the function that another process runs."""
    return [*_branches(seed, count, given)]


def _branches(seed: bytes, count: int, given: Iterable[tuple[int, LeafChunk]]) -> Iterator[Branch]:
    """Yield the branches over the given chunks of ``count`` leaves; a single chunk's branch reaches up to the root."""
    salts = trees.salts(seed, count)
    height = HEIGHT if count > CHUNK else None
    for first, chunk in given:
        yield first, trees.branch(salts, first, chunk, height)


def _joined(count: int, branches: Iterator[Branch]) -> trees.Levels:
    """The levels over all leaves, from the branches; InputError without any leaf."""
    if count <= CHUNK:
        empty: Branch = (0, [b""])
        return trees.raised(next(branches, empty)[1])
    joined = [bytearray(trees.HASH * -(-count >> level)) for level in range(HEIGHT + 1)]
    for first, levels in branches:
        for level, (nodes, more) in enumerate(zip(joined, levels, strict=True)):
            start = trees.HASH * (first >> level)
            nodes[start : start + len(more)] = more
    return trees.raised([*joined])
