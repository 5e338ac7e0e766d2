"""Compact storage for millions of task ids: one text buffer, or an array of numbers; and their sort order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from calipers.rollouts.column import Bools, Ints, starts_of
from calipers.rollouts.record import NUMBER_DIGITS, id_order

Bytes = NDArray[np.uint8]

AT_A_TIME = 1 << 18  # ids that are copied at once
WIDEST = 64  # bytes of an id after the common prefix; longer ids are sorted as Python bytes
_ZERO, _NINE = b"09"
SPARSE = 8  # if the numbers span a range more than this many times their count, sorting is cheaper than a lookup table


@dataclass(frozen=True, slots=True, eq=False)
class Ids(Sequence[str]):
    """N task ids: either a buffer of text with the start of each id, or whole numbers (the id 7 is the text "7")."""

    text: Bytes | None  # None if the ids are numbers
    starts: Ints  # [N + 1] where the text of each id begins; or, without text, [N] the numbers

    @classmethod
    def of(cls, ids: Iterable[str]) -> Ids:
        """The ids as one text buffer."""
        pieces = [task.encode("utf-8", "surrogatepass") for task in ids]
        sizes = np.fromiter(map(len, pieces), dtype=np.int64, count=len(pieces))
        return cls(np.frombuffer(b"".join(pieces), dtype=np.uint8), starts_of(sizes))

    @classmethod
    def of_numbers(cls, numbers: Ints) -> Ids:
        """Ids that are whole numbers."""
        return cls(None, numbers)

    def __len__(self) -> int:
        return len(self.starts) - (self.text is not None)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Ids: ...
    def __getitem__(self, index: int | slice) -> str | Ids:
        if isinstance(index, slice):
            return self.take(np.arange(len(self))[index])
        row = int(index)
        if not -len(self) <= row < len(self):
            raise IndexError(index)
        if self.text is None:
            return str(int(self.starts[row]))
        row %= len(self)
        return self.text[self.starts[row] : self.starts[row + 1]].tobytes().decode("utf-8", "surrogatepass")

    def take(self, rows: Ints) -> Ids:
        """The ids at these indices."""
        if self.text is None:
            return Ids(None, self.starts[rows])
        if len(rows) and int(rows[-1]) - int(rows[0]) == len(rows) - 1 and bool((np.diff(rows) == 1).all()):
            first, last = int(rows[0]), int(rows[-1]) + 1
            starts = self.starts[first : last + 1]
            return Ids(self.text[starts[0] : starts[-1]], starts - starts[0])
        if width := self.width:
            return Ids(self.text.reshape(-1, width)[rows].reshape(-1), np.arange(len(rows) + 1) * width)
        sizes = np.diff(self.starts)[rows]
        starts, text = starts_of(sizes), np.empty(int(sizes.sum()), dtype=np.uint8)
        for first in range(0, len(rows), AT_A_TIME):  # in chunks, as each byte needs an index of eight bytes
            chunk = slice(first, first + AT_A_TIME)
            begin = starts[first]
            offsets = np.repeat(self.starts[:-1][rows[chunk]] - starts[:-1][chunk] + begin, sizes[chunk])
            text[begin : begin + len(offsets)] = self.text[offsets + np.arange(len(offsets))]
        return Ids(text, starts)

    @property
    def width(self) -> int:
        """The length of every id in bytes, if all are equally long; else 0."""
        if self.text is None or not len(self) or len(self.text) % len(self):
            return 0
        width = len(self.text) // len(self)
        return width if bool((np.diff(self.starts) == width).all()) else 0

    def as_text(self) -> Ids:
        """The same ids as a text buffer."""
        return self if self.text is not None else Ids.of(map(str, self.starts.tolist()))

    def order(self) -> Ints:
        """The indices that sort the ids: numbers by size, before all other text."""
        if self.text is None:
            negative = self.starts < 0  # "-7" sorts as text, because it begins with a sign
            return _order_of_text(self.as_text()) if negative.any() else np.argsort(self.starts, kind="stable")
        return _order_of_text(self)

    def same_as_before(self, order: Ints) -> Bools:
        """Whether each id, in this order, equals the id before it, [N]."""
        if self.text is None:
            numbers = self.starts[order]
            return np.concatenate([[False], numbers[1:] == numbers[:-1]])[: len(order)]
        sizes = np.diff(self.starts)[order]
        same = np.concatenate([[False], sizes[1:] == sizes[:-1]])[: len(order)]
        for offset in range(0, int(sizes.max(initial=0)), 8):  # eight bytes at a time, of the pairs equal so far
            rows = np.flatnonzero(same)
            if not len(rows):
                break
            same[rows] = self._words(order[rows], offset) == self._words(order[rows - 1], offset)
        return same

    def _words(self, rows: Ints, offset: int) -> NDArray[np.uint64]:
        """The eight bytes at ``offset`` of each of these ids, as a big-endian number; bytes beyond its end are 0."""
        text: Any = self.text
        if width := self.width:
            padded = np.zeros((len(rows), 8), dtype=np.uint8)
            octets = text.reshape(-1, width)[rows, offset : offset + 8]
            padded[:, : octets.shape[1]] = octets
            return padded.view(">u8").reshape(-1).astype(np.uint64)
        begins, sizes = self.starts[:-1][rows] + offset, np.diff(self.starts)[rows] - offset
        words = np.zeros(len(rows), dtype=np.uint64)
        for step in range(8):
            octets = text.take(begins + step, mode="clip") if len(text) else 0
            words |= np.where(sizes > step, octets, 0).astype(np.uint64) << np.uint64(56 - 8 * step)
        return words


class Chained(Sequence[str]):
    """Several lists of ids, seen as one list without copying."""

    def __init__(self, lists: Sequence[Sequence[str]]) -> None:
        self._lists = lists
        self._ends = np.cumsum([len(ids) for ids in lists])

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(len(self)))]
        number = int(np.searchsorted(self._ends, index, side="right"))
        return self._lists[number][int(index) - (int(self._ends[number - 1]) if number else 0)]


def union(lists: Sequence[Ids]) -> tuple[Ids, list[Ints]]:
    """The distinct ids of all lists, sorted; and for each list the index of each of its ids among them."""
    if len(lists) == 1:
        joined = lists[0]
    elif all(ids.text is None for ids in lists):
        joined = Ids(None, np.concatenate([ids.starts for ids in lists]))
    else:
        joined = _joined([ids.as_text() for ids in lists])
    if joined.text is None and (ranked := dense(joined.starts)) is not None:
        distinct, code = ranked
        ids = Ids(None, distinct)
    else:
        order = joined.order()
        new = np.ones(len(order), dtype=bool) if len(lists) == 1 else ~joined.same_as_before(order)
        code = np.empty(len(joined), dtype=np.int64)
        code[order] = np.cumsum(new) - 1
        ids = joined.take(order[new])
    ends = np.cumsum([len(each) for each in lists])[:-1]
    return ids, np.split(code, ends)


def dense(numbers: Ints) -> tuple[Ints, Ints] | None:
    """The distinct numbers, ascending, and the index of each number among them.

    None if there are no numbers, if one is negative, or if they are too far apart for a lookup table.
    """
    if not len(numbers) or int(numbers.min()) < 0:
        return None
    lowest, most = int(numbers.min()), int(numbers.max())
    if most - lowest > SPARSE * len(numbers) + 1_000_000:
        return None
    occurs = np.zeros(most - lowest + 1, dtype=bool)
    occurs[numbers - lowest] = True
    distinct = np.flatnonzero(occurs)
    if len(distinct) == len(occurs):
        return distinct + lowest, numbers - lowest
    return distinct + lowest, (np.cumsum(occurs, dtype=np.int64) - 1)[numbers - lowest]


def _joined(lists: Sequence[Ids]) -> Ids:
    texts: list[Any] = [ids.text for ids in lists]
    sizes = np.concatenate([np.diff(ids.starts) for ids in lists])
    return Ids(np.concatenate(texts), starts_of(sizes))


def _order_of_text(ids: Ids) -> Ints:
    """The indices that sort ids in a text buffer."""
    if ids.text is None or not len(ids):
        return np.zeros(0, dtype=np.int64)
    sizes = np.diff(ids.starts)
    if bool((ids.text > 127).any()):  # digits of other scripts also make numbers
        texts = list(ids)
        if any(task.isdecimal() and not task.isascii() for task in texts):
            return np.array(sorted(range(len(texts)), key=lambda row: id_order(texts[row])), dtype=np.int64)
    number = _is_number(ids, sizes)
    if number.any():
        numbers, others = np.flatnonzero(number), np.flatnonzero(~number)
        values = _values(ids, numbers)
        # equal numbers are in the order of their text: "07" before "7", and "0" before "00"
        width = np.where(values > 0, -sizes[numbers], sizes[numbers])
        first = numbers[np.lexsort((width, values))]
        return np.concatenate([first, others[_by_bytes(ids, others)]])
    return _by_bytes(ids, np.arange(len(ids)))


def _is_number(ids: Ids, sizes: Ints) -> Bools:
    """Whether each id is a whole number of at most NUMBER_DIGITS digits, [N]."""
    text: Any = ids.text
    number = (sizes > 0) & (sizes <= NUMBER_DIGITS)
    for step in range(min(int(sizes.max()), NUMBER_DIGITS)):
        rows = np.flatnonzero(number & (sizes > step))
        if not len(rows):
            break
        octets = text[ids.starts[:-1][rows] + step]
        number[rows] = (octets >= _ZERO) & (octets <= _NINE)
    return number


def _values(ids: Ids, rows: Ints) -> Ints:
    """The numeric value of each of these ids."""
    text: Any = ids.text
    begins, sizes = ids.starts[:-1][rows], np.diff(ids.starts)[rows]
    values = np.zeros(len(rows), dtype=np.int64)
    for step in range(int(sizes.max(initial=0))):
        digit = text.take(begins + step, mode="clip").astype(np.int64) - _ZERO
        values = np.where(sizes > step, values * 10 + digit, values)
    return values


def _by_bytes(ids: Ids, rows: Ints) -> Ints:
    """The order of these ids by their bytes, which for UTF-8 is also the order of their characters."""
    if not len(rows):
        return np.zeros(0, dtype=np.int64)
    text: Any = ids.text
    begins, sizes = ids.starts[:-1][rows], np.diff(ids.starts)[rows]
    shared = int(sizes.min())
    for step in range(shared):  # skip the common prefix
        octets = text[begins + step]
        if octets[0] != octets.max() or octets[0] != octets.min():
            shared = step
            break
    widest = int(sizes.max())
    if widest - shared > WIDEST:
        pieces = [
            text[begin : begin + size].tobytes() for begin, size in zip(begins.tolist(), sizes.tolist(), strict=True)
        ]
        return np.array(sorted(range(len(pieces)), key=pieces.__getitem__), dtype=np.int64)
    words = [ids._words(rows, offset) for offset in range(shared, max(widest, shared + 1), 8)]
    return np.lexsort((sizes, *reversed(words)))
