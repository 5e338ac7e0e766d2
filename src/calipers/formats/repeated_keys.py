"""Detects a key that appears twice in a record, by counting.

A decoder keeps the last of two values and says nothing. In JSON every key is followed by a colon, so the
colons are at least as many as the keys. Where they are exactly as many as the values that were decoded, no
key appears twice. Texts and nested values hold colons, too: those within values that were kept as raw bytes are
counted apart. Where a name or a time beside them holds a colon, only colons with a quote or a blank before them
are counted: there is one after each key. Where that does not prove it either, the lines are looked at.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from calipers.errors import InputError

_COLON: Final = ord(":")
_QUOTE: Final = ord('"')
_WORD: Final = 8  # bytes of a key that are compared; those before them show a letter that is written by its number
_ONES: Final = np.uint64(0x0101010101010101)
_HIGHS: Final = np.uint64(0x8080808080808080)
_BACKSLASH: Final = ord("\\")
_U: Final = ord("u")
_BACKSLASHES: Final = np.uint64(_BACKSLASH) * _ONES
_RAWS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_AFTER_QUOTE: Final = ord('"') + 1  # a quote, every blank, and the exclamation mark, which does no harm


class Colons:
    """Counts what may be the ends of keys; its room is kept from block to block."""

    def __init__(self) -> None:
        self._room: NDArray[np.bool_] = np.empty((2, 0), dtype=np.bool_)
        self._flat = True  # whether the values so far held nothing that looks like a key

    def count(self, octets: NDArray[np.uint8]) -> int:
        """Colons with a quote or a blank before them."""
        return int(np.count_nonzero(self.marked(octets)))

    def marked(self, octets: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Where the quotes and blanks before colons are; gone with the next question."""
        rooms = self._rooms(max(len(octets) - 1, 0))
        ends: NDArray[np.bool_] = rooms[0]
        colons: NDArray[np.bool_] = rooms[1]
        np.less(octets[:-1], _AFTER_QUOTE, out=ends)
        np.equal(octets[1:], _COLON, out=colons)
        np.logical_and(ends, colons, out=ends)
        return ends

    def has_numbered(self, octets: NDArray[np.uint8]) -> bool:
        r"""Whether a letter may be written by its number: as ``\u`` and four digits."""
        rooms = self._rooms(max(len(octets) - 1, 0))
        np.equal(octets[:-1], _BACKSLASH, out=rooms[0])
        np.equal(octets[1:], _U, out=rooms[1])
        return bool(np.logical_and(rooms[0], rooms[1], out=rooms[0]).any())

    def once(self, octets: NDArray[np.uint8], keys: int, raw_columns: Sequence[Sequence[Any]]) -> bool:
        """Whether so many keys are all there are in a block; False where counting does not prove it."""
        if self._flat and self.count(octets) == keys:
            return True
        self._flat = False
        within = np.frombuffer(b"".join(chain(*raw_columns)), dtype=np.uint8)
        return self._colons(octets) - self._colons(within) == keys or self.count(octets) - self.count(within) == keys

    def _colons(self, octets: NDArray[np.uint8]) -> int:
        """All colons: half the work of those that may end a key."""
        return int(np.count_nonzero(np.equal(octets, _COLON, out=self._rooms(len(octets))[0])))

    def _rooms(self, size: int) -> NDArray[np.bool_]:
        if self._room.shape[1] < size:
            self._room = np.empty((2, 2 * size), dtype=np.bool_)
        return self._room[:, :size]


class Ends:
    """Counts how often names are keys in a block, at whatever depth, by the last letters of each key.

    For rows whose large nested values are passed over, so that nobody knows how many colons those hold: a key that
    is met as often as there are values of it stands nowhere else, and so nowhere twice.
    """

    def __init__(self) -> None:
        self._colons = Colons()

    def once(self, octets: NDArray[np.uint8], given: Mapping[bytes, int]) -> bool:
        """Whether keys with these `letters` are met so often; False also where one cannot be told."""
        ends = np.flatnonzero(self._colons.marked(octets))
        quoted = octets[ends] == _QUOTE
        if not quoted.all():
            if bool((octets[ends[~quoted] - 1] <= _QUOTE).any()):
                return False  # a blank between a key and its colon
            ends = ends[quoted]
        last = _words(octets, ends, _WORD)
        if self._colons.has_numbered(octets):
            within = octets[ends - 1] != _BACKSLASH  # behind a backslash a quote stands within a text
            words = last[within], _words(octets, ends[within], 2 * _WORD)
            escaped = _has_backslash(words[0]) | _has_backslash(words[1])
            if escaped.any() and _one_is_written_by_number(words[1][escaped], words[0][escaped]):
                return False
        ends_with = {size: last >> np.uint64(8 * (_WORD - size)) for size in set(map(len, given))}
        return all(
            np.count_nonzero(ends_with[len(some)] == int.from_bytes(some, "little")) == count
            for some, count in given.items()
        )


def letters(key: str) -> bytes:
    """The last letters of a key as they are compared; with the quote before it where it is short."""
    return f'"{key}'.encode()[-_WORD:]


def _words(octets: NDArray[np.uint8], ends: NDArray[np.int64], back: int) -> NDArray[np.uint64]:
    """The eight bytes that begin so far back before each end, as a number; zeros where the block has not begun."""
    early = int(np.searchsorted(ends, back))
    first = b"".join(bytes(octets[:end]).rjust(back, b"\0")[:_WORD] for end in ends[:early].tolist())
    words = np.frombuffer(first, dtype="<u8")
    if early == len(ends):
        return words
    each = np.ndarray((len(octets) - _WORD + 1,), np.dtype("<u8"), octets.data, strides=(1,))
    later = each[ends[early:] - back]
    return np.concatenate([words, later]) if early else later


def _has_backslash(words: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether one of the eight bytes of a word is a backslash."""
    differing = words ^ _BACKSLASHES
    return np.asarray((differing - _ONES) & ~differing & _HIGHS, dtype=np.bool_)


def _one_is_written_by_number(*words: NDArray[np.uint64]) -> bool:
    """Whether a backslash stands within a key that ends here, so that its last letters may be other ones."""
    backwards = np.stack(words, axis=1).view(np.uint8)[:, ::-1]
    quotes = backwards == _QUOTE
    to_quote = np.where(quotes.any(axis=1), quotes.argmax(axis=1), backwards.shape[1])
    return bool(((backwards == _BACKSLASH).argmax(axis=1) < to_quote).any())


class Doubled:
    """A hook for Python's decoder: objects as dicts, and whether a key appears twice in one of them."""

    def __init__(self) -> None:
        self.found = False

    def __call__(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """An object."""
        merged = dict(pairs)
        self.found = self.found or len(merged) < len(pairs)
        return merged


def twice(text: bytes | str, inside: Collection[str] = ()) -> str | None:
    """The first key that appears twice at the top of a record, or anywhere within these values of it.

    A value within another has both their names, with a point between them.
    """
    pairs: Any = json.loads(text, object_pairs_hook=_Pairs, parse_int=str, parse_float=str)
    repeated = _again(pairs) if isinstance(pairs, _Pairs) else None
    if repeated is not None:
        return repeated
    values = (value for path in inside for value in _reached(pairs, path.split(".")))
    return next((key for value in values if (key := _within(value)) is not None), None)


def said_twice(key: str) -> tuple[str, str]:
    """What is wrong with a record that has a key twice, and what would be right."""
    return f"key {json.dumps(key, ensure_ascii=False)} appears twice", "expected it once"


def refuse_twice(text: bytes, location: str, inside: Collection[str] = ()) -> None:
    """InputError for a small document with a key twice at its top, or anywhere within these values of it.

    What is no JSON is left to who reads it.
    """
    if _is_proved_once(text, inside):
        return
    odd, key = Doubled(), None
    with suppress(ValueError, RecursionError):
        json.loads(text, object_pairs_hook=odd)
        key = twice(text, inside) if odd.found else None
    if key is not None:
        raise InputError.at(location, *said_twice(key))


def _is_proved_once(text: bytes, inside: Collection[str]) -> bool:
    """Whether counting proves that no key appears twice at the top of a document, or within these values of it."""
    try:
        values: dict[str, Any] = _RAWS.decode(text)
        within = (values.get(path.partition(".")[0], b"null") for path in inside)
        return counted_once(text, values) and all(_is_encoded_again(bytes(value)) for value in within)
    except (ValueError, RecursionError):  # msgspec's among them
        return False


def _is_encoded_again(text: bytes) -> bool:
    """Whether a value has as many colons when it is decoded and encoded again: then no key was dropped.

    A colon that is written by its number would make up for a dropped one.
    """
    colons = text.count(b":")
    return not colons or (
        msgspec.json.encode(msgspec.json.decode(text)).count(b":") == colons and b"\\u003" not in text
    )


def once_by_raws(line: bytes, *path: str) -> bool:
    """Whether no key appears twice at the top of a line, nor in the object that a path of names leads to.

    False where counting does not prove it, or there is something else.
    """
    try:
        values: dict[str, Any] = _RAWS.decode(line)
        if not counted_once(line, values):
            return False
        for name in path:
            line = bytes(values.get(name, b"null"))
            values = {} if line == b"null" else _RAWS.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return counted_once(line, values)


def counted_once(text: bytes, values: Mapping[str, Any]) -> bool:
    """Whether an object has no more keys than these, which were decoded to raw values; False where it is unproved."""
    return text.count(b":") - b"".join(values.values()).count(b":") == len(values)


class _Pairs(list[tuple[str, Any]]):
    """An object as its pairs of key and value, so that it can be told from a list."""


def _reached(value: Any, path: Sequence[str]) -> Iterator[Any]:
    """The values that a path of names leads to; a name may stand twice."""
    if not path:
        yield value
    elif isinstance(value, _Pairs):
        for name, inner in value:
            if name == path[0]:
                yield from _reached(inner, path[1:])


def _again(pairs: _Pairs) -> str | None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return key
        seen.add(key)
    return None


def _within(value: Any) -> str | None:
    """The first key that appears twice in a value, however deep."""
    if not isinstance(value, list):
        return None
    repeated = _again(value) if isinstance(value, _Pairs) else None
    inner = (item[1] for item in value) if isinstance(value, _Pairs) else iter(value)
    return (
        repeated if repeated is not None else next((key for item in inner if (key := _within(item)) is not None), None)
    )
