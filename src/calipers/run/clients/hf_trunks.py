"""What texts begin with alike, such as the examples before every question: read once, and remembered.

::

    the examples ─┬─ question 1 ─┬─ choice a        a trunk is what a text is read on from;
                  │              └─ choice b        it ends before any of its texts does
                  └─ question 2 ─── ...
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from calipers.run.clients.hf_checkpoint import Checkpoint
from calipers.run.clients.hf_read import Reader

Tokens = tuple[int, ...]
Branch = tuple[Tokens, list[Tokens]]  # a trunk, () for none, and the texts that grow from it

WORTH = 128  # tokens a trunk must save, as it takes a call of its own
DEEPEST = 16  # times a trunk is parted into longer ones
END = -1  # no token: marks what is known, so that all of it may be a trunk


def branches(texts: Sequence[Tokens], known: Sequence[Tokens] = ()) -> list[Branch]:
    """Texts by the trunk that each is best read on from. What is known counts as a text, and is in no branch.

    >>> [trunk[-1:] for trunk, _ in branches([(*range(200), 7, 1), (*range(200), 8, 1), (5, 6)])]
    [(), (199,)]
    """
    marked = {(*one, END) for one in known}
    ordered = sorted({*texts, *marked})
    found: dict[Tokens, list[Tokens]] = {(): []}
    for trunk, members in _parted(ordered, DEEPEST)[1]:
        found.setdefault(trunk, []).extend(text for text in members if text not in marked)
    return [(trunk, members) for trunk, members in found.items() if members]


def _parted(ordered: Sequence[Tokens], deepest: int) -> tuple[int, list[Branch]]:
    """The tokens saved at best, and the branches that save them: one for all of the texts, or longer ones for some."""
    whole = _alike(ordered[0], ordered[-1]) if ordered else 0  # in their order, these are the least alike
    length = min(whole, min((len(text) for text in ordered), default=1) - 1)
    saved = length * (len(ordered) - 1) - WORTH
    best: tuple[int, list[Branch]] = (0, [((), list(ordered))])
    if saved > 0:
        best = saved, [(ordered[0][:length], list(ordered))]
    parts = [list(part) for _, part in groupby(ordered, lambda text: text[length])]
    if len(parts) > 1 and deepest:
        longer = [_parted(part, deepest - 1) for part in parts if len(part) > 1]
        if (total := sum(saves for saves, _ in longer)) > best[0]:
            alone: Branch = ((), [part[0] for part in parts if len(part) == 1])
            best = total, [alone, *(branch for _, found in longer for branch in found)]
    return best


def _alike(one: Tokens, other: Tokens) -> int:
    """How many tokens two texts begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (left, right) in pairs if left != right), min(len(one), len(other)))


class Trunks:
    """A checkpoint's memory of trunks. The latest is kept, as the next texts are likely to begin with it too."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._latest: Tokens = ()
        self._tokens: Tokens = ()
        self._memory: Any = None

    def branches(self, texts: Sequence[Tokens]) -> list[Branch]:
        """Texts by trunk; all without one where the model's memory cannot be gone on from with gaps in it.

        Texts that come one by one show what they share only beside the one before.
        """
        if not self._checkpoint.gaps:
            return [((), list(dict.fromkeys(texts)))]
        known = [one for one in (self._tokens, self._latest if len(texts) == 1 else ()) if one]
        self._latest = texts[-1] if texts else ()
        return branches(texts, known)

    def memory(self, trunk: Tokens, rows: int, read: Reader) -> Any:
        """The model's memory of a trunk, once for each of some rows; None for no trunk."""
        if not trunk:
            return None
        known = _alike(trunk, self._tokens)
        if known < len(trunk):
            before = _copied(self._memory, known, 1) if known else None
            _, self._memory = read([trunk[known:]], 1, memory=before, use_cache=True)
            self._tokens = trunk
        return _copied(self._memory, len(trunk), rows)


def _copied(memory: Any, length: int, rows: int) -> Any:
    """The beginning of a memory of one row, as that of so many rows."""
    from transformers import DynamicCache

    copy = DynamicCache()
    for place, layer in enumerate(memory.layers):
        keys, values = (
            part[:, :, :length].expand(rows, *[-1] * (part.dim() - 1)) for part in (layer.keys, layer.values)
        )
        copy.update(keys, values, place)
    return copy
