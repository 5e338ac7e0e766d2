"""Batches of prompts: which prompts go together, shared prefixes computed once, and how results are read back.

What texts begin with alike, such as the examples before every question: read once, and remembered.

::

    the examples ─┬─ question 1 ─┬─ choice a        a prefix is what a text is read on from;
                  │              └─ choice b        it ends before any of its texts does
                  └─ question 2 ─── ...
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, TypeVar

from calipers.clients.huggingface.checkpoint import Checkpoint
from calipers.errors import ClientError

Row = TypeVar("Row")
Done = TypeVar("Done")


def in_batches(
    rows: Sequence[Row],
    most: int,
    fits: Callable[[Sequence[Row]], bool],
    work: Callable[[Sequence[Row]], Sequence[Done]],
) -> list[Done]:
    """What the work makes of the rows, in their order. One row alone always goes in.

    Where the device has too little memory for a batch, it is halved, and so are those after it; what
    was done of it is done again, so the work may leave no trace.

    >>> in_batches([3, 4, 5, 6], 8, lambda batch: sum(batch) <= 7, lambda batch: [batch])
    [[3, 4], [5], [6]]
    """
    done: list[Done] = []
    start = 0
    while start < len(rows):
        stop = start + 1
        while stop < len(rows) and stop - start < most and fits(rows[start : stop + 1]):
            stop += 1
        try:
            done += work(rows[start:stop])
        except RuntimeError as error:
            if type(error).__name__ != "OutOfMemoryError" or stop - start == 1:
                raise
            most = (stop - start) // 2
        else:
            start = stop
    return done


NUMBERS = 2**28  # scores a call may ask for: positions by words of the vocabulary, a GiB in all
BYTES = 2**31  # of memory of what was read, that a call may go on from
AT_ONCE = 2**11  # tokens a processor reads at once: more are no faster, and fall out of its caches


class ForwardPass:
    """Reads rows until it is told to close."""

    def __init__(self, checkpoint: Checkpoint, closed: threading.Event) -> None:
        self._checkpoint, self._closed = checkpoint, closed
        model = checkpoint.model
        self._positions: int = NUMBERS // model.config.get_text_config().vocab_size
        self._held: int = BYTES // _bytes_per_token(model) if checkpoint.shares else 1
        self._at_once = AT_ONCE if model.device.type == "cpu" else sys.maxsize

    def most(self, width: int, kept: int, before: int = 0) -> int:
        """How many rows may be read at once, that wide, for so many places of each, behind so many tokens; one may."""
        limits = [self._positions // max(kept, 1), self._at_once // max(width, 1)]
        if before:
            limits.append(self._held // (before + width))
        return max(1, min(limits))

    def __call__(self, rows: Sequence[Sequence[int]], kept: int, *, memory: Any = None, **more: Any) -> tuple[Any, Any]:
        """The scores at the last ``kept`` places of each row, and the model's memory with the rows behind it."""
        import torch

        if self._closed.is_set():
            raise ClientError("the model was closed before it finished scoring", kind="closed")
        model, takes = self._checkpoint.model, self._checkpoint.takes
        given = {name: value for name, value in more.items() if name != "position_ids" or name in takes}
        if "logits_to_keep" in takes:
            given["logits_to_keep"] = kept
        if memory is not None:
            given["past_key_values"] = memory
        moved = {name: value.to(model.device) if torch.is_tensor(value) else value for name, value in given.items()}
        with torch.inference_mode():
            out = model(input_ids=torch.tensor(rows, device=model.device), **moved)
        return out.logits[:, -kept:], out.past_key_values if more["use_cache"] else None


def _bytes_per_token(model: Any) -> int:
    """What a model keeps of each token that it has read: a key and a value in every layer."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    each = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    size: int = 2 * config.num_hidden_layers * heads * each * model.dtype.itemsize
    return max(size, 1)


Tokens = tuple[int, ...]
Branch = tuple[Tokens, list[Tokens]]  # a prefix, () for none, and the texts that grow from it

WORTH = 128  # tokens a prefix must save, as it takes a call of its own
DEEPEST = 16  # times a prefix is parted into longer ones
END = -1  # no token: marks what is known, so that all of it may be a prefix


def branches(texts: Sequence[Tokens], known: Sequence[Tokens] = ()) -> list[Branch]:
    """Texts by the prefix that each is best read on from. What is known counts as a text, and is in no branch.

    >>> [prefix[-1:] for prefix, _ in branches([(*range(200), 7, 1), (*range(200), 8, 1), (5, 6)])]
    [(), (199,)]
    """
    marked = {(*prompt, END) for prompt in known}
    ordered = sorted({*texts, *marked})
    texts_of: dict[Tokens, list[Tokens]] = {(): []}
    for prefix, members in _parted(ordered, DEEPEST)[1]:
        texts_of.setdefault(prefix, []).extend(text for text in members if text not in marked)
    return [(prefix, members) for prefix, members in texts_of.items() if members]


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
            best = total, [alone, *(branch for _, inner in longer for branch in inner)]
    return best


def _alike(first: Tokens, other: Tokens) -> int:
    """How many tokens two texts begin with alike."""
    pairs = enumerate(zip(first, other, strict=False))
    return next((index for index, (left, right) in pairs if left != right), min(len(first), len(other)))


class PrefixCache:
    """A checkpoint's memory of prefixes. The latest is kept, as the next texts are likely to begin with it too."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._latest: Tokens = ()
        self._tokens: Tokens = ()
        self._memory: Any = None

    def branches(self, texts: Sequence[Tokens]) -> list[Branch]:
        """Texts by prefix; all without one where the model's memory cannot be gone on from with gaps in it.

        Texts that come one by one show what they share only beside the one before.
        """
        if not self._checkpoint.gaps:
            return [((), list(dict.fromkeys(texts)))]
        known = [text for text in (self._tokens, self._latest if len(texts) == 1 else ()) if text]
        self._latest = texts[-1] if texts else ()
        return branches(texts, known)

    def memory(self, prefix: Tokens, rows: int, read: ForwardPass) -> Any:
        """The model's memory of a prefix, once for each of some rows; None for no prefix."""
        if not prefix:
            return None
        known = _alike(prefix, self._tokens)
        if known < len(prefix):
            before = _copied(self._memory, known, 1) if known else None
            _, self._memory = read([prefix[known:]], 1, memory=before, use_cache=True)
            self._tokens = prefix
        return _copied(self._memory, len(prefix), rows)


def _copied(memory: Any, length: int, rows: int) -> Any:
    """The beginning of a memory of one row, as that of so many rows."""
    from transformers import DynamicCache

    copy = DynamicCache()
    for index, layer in enumerate(memory.layers):
        keys, values = (
            part[:, :, :length].expand(rows, *[-1] * (part.dim() - 1)) for part in (layer.keys, layer.values)
        )
        copy.update(keys, values, index)
    return copy
