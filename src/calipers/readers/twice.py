"""Whether a key stands twice in a record, found out by counting.

A decoder keeps the last of two values and says nothing. In JSON every key is followed by a colon, and
before that colon stands a quote or a blank; so the colons with such a byte before them are at least as
many as the keys. Where they are exactly as many as the values that were decoded, no key stands twice.
Texts hold such colons, too: those within values that were kept as raw bytes are counted apart.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_COLON: Final = ord(":")
_AFTER_QUOTE: Final = ord('"') + 1  # a quote, every blank, and the exclamation mark, which does no harm


class Colons:
    """Counts what may be the ends of keys; its room is kept from block to block."""

    def __init__(self) -> None:
        self._room = np.empty((2, 0), dtype=np.bool_)

    def count(self, octets: NDArray[np.uint8]) -> int:
        """Colons with a quote or a blank before them."""
        size = max(len(octets) - 1, 0)
        if self._room.shape[1] < size:
            self._room = np.empty((2, 2 * size), dtype=np.bool_)
        ends, colons = self._room[:, :size]
        np.less(octets[:-1], _AFTER_QUOTE, out=ends)
        np.equal(octets[1:], _COLON, out=colons)
        np.logical_and(ends, colons, out=ends)
        return int(np.count_nonzero(ends))

    def within(self, raws: Iterable[Any]) -> int:
        """The same within values, which are bytes."""
        return self.count(np.frombuffer(b"".join(raws), dtype=np.uint8))

    def once(self, octets: NDArray[np.uint8], keys: int, raw_columns: Sequence[Sequence[Any]]) -> bool:
        """Whether so many keys are all there are in a block; False where counting does not prove it."""
        found = self.count(octets)
        if found == keys:
            return True
        return found - self.within(chain(*raw_columns)) == keys


def twice(line: bytes, inside: Collection[str] = ()) -> str | None:
    """The first key that stands twice at the top of a record, or in one of these objects of it."""
    pairs: list[tuple[str, Any]] = json.loads(line, object_pairs_hook=list, parse_int=str, parse_float=str)
    for held in (pairs, *(value for key, value in pairs if key in inside and isinstance(value, list))):
        seen: set[str] = set()
        for entry in held:
            if isinstance(entry, tuple):
                key = str(entry[0])
                if key in seen:
                    return key
                seen.add(key)
    return None
