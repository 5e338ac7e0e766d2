"""Detects a key that appears twice in a record, by counting colons.

A decoder silently keeps the last of two values. In JSON every key is followed by a colon, so there are at least as
many colons as keys; if there are exactly as many colons as decoded values, no key appears twice. Texts and nested
values contain colons as well: the colons within values that were kept as raw bytes are subtracted. If a decoded name or
time contains a colon, only colons after a quote or a blank are counted, of which there is one for each key. If that
proves nothing either, the lines are checked one by one.
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
from calipers.formats import ROW

_COLON: Final = ord(":")
_QUOTE: Final = ord('"')
_WORD: Final = 8  # the last bytes of a key that are compared; the eight before them may begin an escape
_ONES: Final = np.uint64(0x0101010101010101)
_HIGHS: Final = np.uint64(0x8080808080808080)
_BACKSLASH: Final = ord("\\")
_U: Final = ord("u")
_BACKSLASHES: Final = np.uint64(_BACKSLASH) * _ONES
_AFTER_QUOTE: Final = ord('"') + 1  # bytes below this are a quote, a blank, or the (harmless) exclamation mark


class Colons:
    """Counts colons that may follow keys; its buffers are reused from block to block."""

    def __init__(self) -> None:
        self._buffers: NDArray[np.bool_] = np.empty((2, 0), dtype=np.bool_)
        self._plain = True  # whether no value so far contained a colon
        self._flat = True  # whether no value so far contained anything that looks like a key

    def count(self, octets: NDArray[np.uint8]) -> int:
        """The number of colons after a quote or a blank."""
        return int(np.count_nonzero(self.marked(octets)))

    def marked(self, octets: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """A mask of the quotes and blanks before colons, valid until the next call of a method."""
        ends: NDArray[np.bool_]
        ends, colons = self._buffers_of(max(len(octets) - 1, 0))
        np.less(octets[:-1], _AFTER_QUOTE, out=ends)
        np.equal(octets[1:], _COLON, out=colons)
        np.logical_and(ends, colons, out=ends)
        return ends

    def has_escapes(self, octets: NDArray[np.uint8]) -> bool:
        r"""Whether the block contains ``\u``, so that a letter may be written as an escape."""
        backslashes, letters_u = self._buffers_of(max(len(octets) - 1, 0))
        np.equal(octets[:-1], _BACKSLASH, out=backslashes)
        np.equal(octets[1:], _U, out=letters_u)
        return bool(np.logical_and(backslashes, letters_u, out=backslashes).any())

    def once(self, octets: NDArray[np.uint8], keys: int, raw_columns: Sequence[Sequence[Any]]) -> bool:
        """Whether counting proves that a block has no more than this number of keys."""
        if self._plain and self._colons(octets) == keys:
            return True
        self._plain = False
        if self._flat and self.count(octets) == keys:
            return True
        self._flat = False
        within = np.frombuffer(b"".join(chain(*raw_columns)), dtype=np.uint8)
        return self._colons(octets) - self._colons(within) == keys or self.count(octets) - self.count(within) == keys

    def _colons(self, octets: NDArray[np.uint8]) -> int:
        """The number of all colons, which is counted in half the time of `count`."""
        return int(np.count_nonzero(np.equal(octets, _COLON, out=self._buffers_of(len(octets))[0])))

    def _buffers_of(self, size: int) -> NDArray[np.bool_]:
        """The two buffers, each of this size."""
        if self._buffers.shape[1] < size:
            self._buffers = np.empty((2, 2 * size), dtype=np.bool_)
        return self._buffers[:, :size]


class Ends:
    """Counts how often each of some keys occurs in a block, at any depth, by the last letters of the keys.

    For rows with large nested values that are skipped, so that the number of colons in them is unknown: a key that
    occurs as often as it has decoded values occurs nowhere else, and so never twice in a row.
    """

    def __init__(self) -> None:
        self._colons = Colons()

    def once(self, octets: NDArray[np.uint8], given: Mapping[bytes, int]) -> bool:
        """Whether the keys with these `letters` occur exactly as often as given; False also if that is uncertain."""
        ends = np.flatnonzero(self._colons.marked(octets))
        quoted = octets[ends] == _QUOTE
        if not quoted.all():
            if bool((octets[ends[~quoted] - 1] <= _QUOTE).any()):
                return False  # a blank between a key and its colon
            ends = ends[quoted]
        last = _words(octets, ends, _WORD)
        if self._colons.has_escapes(octets):
            within = octets[ends - 1] != _BACKSLASH  # a quote after a backslash is inside a text
            words = last[within], _words(octets, ends[within], 2 * _WORD)
            escaped = _has_backslash(words[0]) | _has_backslash(words[1])
            if escaped.any() and _has_escaped_key(words[1][escaped], words[0][escaped]):
                return False
        ends_with = {size: last >> np.uint64(8 * (_WORD - size)) for size in set(map(len, given))}
        return all(
            np.count_nonzero(ends_with[len(key_end)] == int.from_bytes(key_end, "little")) == count
            for key_end, count in given.items()
        )


def letters(key: str) -> bytes:
    """The last eight bytes of a key, which are compared; including the quote before a short key."""
    return f'"{key}'.encode()[-_WORD:]


def _words(octets: NDArray[np.uint8], ends: NDArray[np.int64], back: int) -> NDArray[np.uint64]:
    """The eight bytes that begin ``back`` bytes before each end, as a number; bytes before the block are zeros."""
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


def _has_escaped_key(*words: NDArray[np.uint64]) -> bool:
    """Whether one of the keys that end with these words contains a backslash, so that its letters are unknown."""
    backwards = np.stack(words, axis=1).view(np.uint8)[:, ::-1]
    quotes = backwards == _QUOTE
    to_quote = np.where(quotes.any(axis=1), quotes.argmax(axis=1), backwards.shape[1])
    return bool(((backwards == _BACKSLASH).argmax(axis=1) < to_quote).any())


class KeyCheck:
    """A hook for Python's decoder that makes dicts, and notes whether a key appears twice in an object."""

    def __init__(self) -> None:
        self.repeats = False

    def __call__(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """The dict of an object."""
        merged = dict(pairs)
        self.repeats = self.repeats or len(merged) < len(pairs)
        return merged


def repeated_key(text: bytes | str, inside: Collection[str] = ()) -> str | None:
    """The first key that appears twice at the top of a record, or at any depth of the values at these dotted paths."""
    pairs: Any = json.loads(text, object_pairs_hook=_Pairs, parse_int=str, parse_float=str)
    repeated = _first_repeated(pairs) if isinstance(pairs, _Pairs) else None
    if repeated is not None:
        return repeated
    values = (value for path in inside for value in _reached(pairs, path.split(".")))
    return next((key for value in values if (key := _within(value)) is not None), None)


def repeated_key_fault(key: str) -> tuple[str, str]:
    """The error for a record with a repeated key: what is wrong, and what was expected."""
    return f"key {json.dumps(key, ensure_ascii=False)} appears twice", "expected it once"


def refuse_repeated_key(text: bytes, location: str, inside: Collection[str] = ()) -> None:
    """InputError if a small document has a repeated key at its top, or at any depth of the values at these paths.

    Text that is not JSON is left to its reader.
    """
    if _is_proved_once(text, inside):
        return
    key = None
    with suppress(ValueError, RecursionError):
        key = repeated_key(text, inside)
    if key is not None:
        raise InputError.at(location, *repeated_key_fault(key))


def _is_proved_once(text: bytes, inside: Collection[str]) -> bool:
    """Whether counting proves that no key is repeated at the top of a document, or within the values at these paths."""
    try:
        values: dict[str, Any] = ROW.decode(text)
        within = (values.get(path.partition(".")[0], b"null") for path in inside)
        return counted_once(text, values) and all(_is_encoded_again(bytes(value)) for value in within)
    except (ValueError, RecursionError):  # msgspec's among them
        return False


def _is_encoded_again(text: bytes) -> bool:
    r"""Whether a value has as many colons after decoding and encoding it again, so that no key was dropped.

    False if it may contain an escaped colon (``\u003a``), which could make up for a dropped one.
    """
    colons = text.count(b":")
    return not colons or (
        msgspec.json.encode(msgspec.json.decode(text)).count(b":") == colons and b"\\u003" not in text
    )


def once_by_raws(line: bytes, *path: str) -> bool:
    """Whether counting proves that no key is repeated at the top of a line, nor in the object at this path of keys.

    False also if the line or a value on the path is not an object; an absent value and null count as empty objects.
    """
    try:
        values: dict[str, Any] = ROW.decode(line)
        if not counted_once(line, values):
            return False
        for name in path:
            line = bytes(values.get(name, b"null"))
            values = {} if line == b"null" else ROW.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return counted_once(line, values)


def counted_once(text: bytes, values: Mapping[str, Any]) -> bool:
    """Whether counting proves that an object has no more keys than those that were decoded to raw values."""
    return text.count(b":") - b"".join(values.values()).count(b":") == len(values)


class _Pairs(list[tuple[str, Any]]):
    """An object as its pairs of key and value; a class of its own, to tell objects from lists."""


def _reached(value: Any, path: Sequence[str]) -> Iterator[Any]:
    """The values at a path of keys; several, if a key is repeated."""
    if not path:
        yield value
    elif isinstance(value, _Pairs):
        for name, inner in value:
            if name == path[0]:
                yield from _reached(inner, path[1:])


def _first_repeated(pairs: _Pairs) -> str | None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return key
        seen.add(key)
    return None


def _within(value: Any) -> str | None:
    """The first key that is repeated in an object of a value, at any depth."""
    inner = value if isinstance(value, list) else ()
    if isinstance(value, _Pairs):
        if (repeated := _first_repeated(value)) is not None:
            return repeated
        inner = [item for _, item in value]
    return next((key for item in inner if (key := _within(item)) is not None), None)
