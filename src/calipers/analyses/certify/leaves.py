"""The leaves of a certificate: a short canonical text for each rollout, in an order that no file decides.

::

    {"attempt":2,"dataset":"arith","model":"m","numbers":{...},"outcome":"scored","rewards":{"reward":1},
     "sample":0,"task":"add-1","words":"<SHA-256 of the canonical object of all that the record says in words>"}

Numbers come from the columns that a score reads, so that two files with the same leaves have the same score. Records
in JSON Lines are hashed while they are read; those of other formats pass one by one, as `calipers convert` writes them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np

from calipers.errors import InputError
from calipers.formats.canonical import LANES, NotCanonical, canonical, is_time, number, utf16, words_digest
from calipers.formats.carried import CARRIED
from calipers.formats.format import Raw
from calipers.rollouts.column import Column, Ints
from calipers.rollouts.part import Labels, Part
from calipers.rollouts.record import GROUP, OUTCOMES, ROLES, UNSTATED

CHUNK: Final = 1 << 14  # leaves whose texts are in memory at once
COMBINATIONS: Final = 1 << 12  # of neighbouring pieces that are worth a table
SAID: Final = ("prompt", "completion", "answer", "error", "metadata")
_ABSENT: Final = -1

Texts = Iterator[list[bytes]]
"""The leaves in their order, some at a time; all but the last are `CHUNK` many."""


@dataclass(frozen=True, slots=True)
class Leaves:
    """All leaves in their order: how many, and a stream of their texts."""

    count: int
    texts: Callable[[], Texts]
    name: Callable[[int], str]  # of a leaf, for messages: the task and the sample
    find: Callable[[str, int | None], list[int]]  # the leaves of a task, of one sample or all


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
        lambda: _in_chunks(rows, order),
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

    return Leaves(
        len(keyed),
        lambda: ([text for _, text in keyed[start : start + CHUNK]] for start in range(0, len(keyed), CHUNK)),
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
class _Rows:
    """The rows of all parts, their columns joined: [R] each."""

    tasks: list[str]
    task: Ints
    sample: Ints
    attempt: Ints
    outcome: np.ndarray[Any, np.dtype[np.uint8]]
    group: dict[str, Labels]
    rewards: dict[str, Column]
    numbers: dict[str, Column]
    words: tuple[np.ndarray[Any, np.dtype[np.float64]], np.ndarray[Any, np.dtype[np.bool_]]] | None  # [R, 4], [R]

    @classmethod
    def of(cls, parts: Sequence[Part]) -> _Rows:
        """The rows of the parts, one after the other; whole numbers take as few bytes as they can."""
        codes: dict[str, int] = {}
        tasks = [
            np.array([codes.setdefault(name, len(codes)) for name in part.tasks], dtype=np.int64) for part in parts
        ]
        sizes = [len(part) for part in parts]
        rewards = {name: _column(parts, sizes, "rewards", name) for name in _names(parts, "rewards")}
        columns = [name for name in _names(parts, "columns") if name not in LANES and not is_time(name)]
        words = _words(parts, sizes)
        outcome = np.concatenate([part.outcome for part in parts])
        some = np.zeros(len(outcome), dtype=bool)
        for column in rewards.values():
            some |= column.given
        unstated = np.where(some, OUTCOMES.index("scored"), OUTCOMES.index("missing"))
        return cls(
            list(codes),
            _small(np.concatenate([table[part.task] for table, part in zip(tasks, parts, strict=True)])),
            _small(np.concatenate([part.sample for part in parts])),
            _small(np.concatenate([part.attempt for part in parts])),
            np.where(outcome == UNSTATED, unstated, outcome).astype(np.uint8),
            {name: _labels(parts, name) for name in GROUP if any(name in part.labels for part in parts)},
            rewards,
            {name: _column(parts, sizes, "columns", name) for name in columns},
            words,
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
            texts = self.texts(rows)
            order[start:end] = rows[sorted(range(len(rows)), key=texts.__getitem__)]
        return order

    def texts(self, rows: Ints) -> list[bytes]:
        """The leaves of some rows."""
        pieces: list[_Piece] = []
        for name in (
            "agent",
            "attempt",
            "dataset",
            "model",
            "numbers",
            "outcome",
            "rewards",
            "sample",
            "task",
            "words",
        ):
            pieces += self._field(name, rows)
        joined = zip(*(piece.expanded() for piece in _merged(pieces)), strict=True)
        texts = "}\n{".join(text[1:] for text in map("".join, joined))  # no canonical text has a newline
        return f"{{{texts}}}".encode().split(b"\n") if len(rows) else []

    def _field(self, name: str, rows: Ints) -> list[_Piece]:
        """The pieces of text that a field adds to each leaf, behind a comma; none where no row has it."""
        if name in GROUP:
            if name not in self.group:
                return []
            labels = self.group[name]
            return [_Piece([*(f',"{name}":{_quoted(value)}' for value in labels.values), ""], labels.code[rows])]
        if name == "attempt":
            numbers, places = np.unique(self.attempt[rows], return_inverse=True)
            if numbers.tolist() == [1]:
                return []
            return [_Piece([f',"attempt":{at}' if at != 1 else "" for at in numbers.tolist()], places)]
        if name == "outcome":
            return [_Piece([f',"outcome":"{word}"' for word in OUTCOMES], self.outcome[rows].astype(np.int64))]
        if name == "sample":
            numbers, places = np.unique(self.sample[rows], return_inverse=True)
            return [_Piece([f',"sample":{at}' for at in numbers.tolist()], places)]
        if name == "task":
            codes, places = np.unique(self.task[rows], return_inverse=True)
            return [_Piece([f',"task":{_quoted(self.tasks[code])}' for code in codes.tolist()], places)]
        if name == "words":
            return [_Piece(self._words(rows), None)] if self.words is not None else []
        columns = self.rewards if name == "rewards" else self.numbers
        return _object(name, columns, rows) if columns else []

    def _words(self, rows: Ints) -> list[str]:
        assert self.words is not None
        lanes, given = self.words
        digits = np.ascontiguousarray(lanes[rows]).tobytes().hex()
        there = given[rows].tolist()
        return [f',"words":"{digits[64 * at : 64 * at + 64]}"' if there[at] else "" for at in range(len(there))]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of the text of each row: one of a table of texts, or the texts themselves."""

    table: list[str]
    codes: Ints | None

    def expanded(self) -> list[str]:
        """The text of each row."""
        if self.codes is None:
            return self.table
        texts: list[str] = np.array(self.table, dtype=object)[self.codes].tolist()
        return texts


def _merged(pieces: Sequence[_Piece]) -> list[_Piece]:
    """Fewer pieces: neighbours whose texts have few combinations are one."""
    merged: list[_Piece] = []
    for piece in pieces:
        last = merged[-1] if merged else None
        few = last is not None and len(last.table) * len(piece.table) <= COMBINATIONS
        if few and last and last.codes is not None and piece.codes is not None:
            table = [before + after for before in last.table for after in piece.table]
            # -1, of a row without the label, is the last text of its table
            first = np.where(last.codes < 0, len(last.table) - 1, last.codes)
            second = np.where(piece.codes < 0, len(piece.table) - 1, piece.codes)
            merged[-1] = _Piece(table, first.astype(np.int64) * len(piece.table) + second)
        else:
            merged.append(piece)
    return merged


def _words(parts: Sequence[Part], sizes: Sequence[int]) -> Any:
    """The hashes of the rows' words, [R, 4], and whether each has any; None without any. The parts give them up."""
    if not any(LANES[0] in part.columns for part in parts):
        return None
    given = _column(parts, sizes, "columns", LANES[0]).given
    hashes = np.zeros((sum(sizes), len(LANES)))
    for at, name in enumerate(LANES):
        first = 0
        for part in parts:
            if (lane := part.columns.pop(name, None)) is not None:
                hashes[first : first + len(part), at] = lane.values
            first += len(part)
    return hashes, given


def _in_chunks(rows: _Rows, order: Ints) -> Texts:
    for start in range(0, len(order), CHUNK):
        yield rows.texts(order[start : start + CHUNK])


def _object(name: str, columns: Mapping[str, Column], rows: Ints) -> list[_Piece]:
    """An object of numbers for each row; nothing where a row has none of them."""
    pieces = []
    complete = True
    for key in sorted(columns, key=utf16):
        values, given = columns[key].values[rows], columns[key].given[rows]
        head = f",{_quoted(key)}:"
        distinct, places = np.unique(values, return_inverse=True)
        table = [head + number(value) for value in distinct.tolist()]
        if not given.all():
            complete = False
            table.append("")
            places = np.where(given, places.reshape(-1), len(table) - 1)
        pieces.append(_Piece(table, places.reshape(-1)))
    if complete:  # the braces go with the first and the last number
        pieces[0] = _Piece([f',"{name}":{{{text[1:]}' for text in pieces[0].table], pieces[0].codes)
        pieces[-1] = _Piece([f"{text}}}" for text in pieces[-1].table], pieces[-1].codes)
        return pieces
    joined = map("".join, zip(*(piece.expanded() for piece in pieces), strict=True))
    return [_Piece([f',"{name}":{{{text[1:]}}}' if text else "" for text in joined], None)]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _small(numbers: Ints) -> Ints:
    return numbers.astype(np.promote_types(np.min_scalar_type(numbers.max(initial=0)), np.int16))


def _ranks(values: Sequence[Any]) -> Ints:
    """The place of each value among all of them, sorted by their UTF-8 bytes."""
    ranks = np.zeros(len(values), dtype=np.int64)
    ranks[sorted(range(len(values)), key=lambda code: str(values[code]).encode())] = np.arange(len(values))
    return ranks


def _names(parts: Sequence[Part], kind: str) -> list[str]:
    return list(dict.fromkeys(name for part in parts for name in getattr(part, kind)))


def _column(parts: Sequence[Part], sizes: Sequence[int], kind: str, name: str) -> Column:
    found: list[Column | None] = [getattr(part, kind).get(name) for part in parts]
    if len(found) == 1 and found[0] is not None:
        return found[0]
    columns = [Column.gaps(size) if one is None else one for one, size in zip(found, sizes, strict=True)]
    return Column(
        np.concatenate([column.values for column in columns]), np.concatenate([column.given for column in columns])
    )


def _labels(parts: Sequence[Part], name: str) -> Labels:
    codes: dict[Any, int] = {}
    joined = []
    for part in parts:
        labels = part.labels.get(name)
        if labels is None:
            joined.append(np.full(len(part), _ABSENT))
        else:
            table = [*(codes.setdefault(value, len(codes)) for value in labels.values), _ABSENT]
            joined.append(np.array(table, dtype=np.int64)[labels.code])
    return Labels(_small(np.concatenate(joined)), list(codes))
