"""Batches of prompts: which prompts go together, shared prefixes computed once, and how results are read back.

What texts begin with alike, such as the examples before every question: read once, and remembered.

::

    the examples ─┬─ question 1 ─┬─ choice a        a prefix is what a text is read on from;
                  │              └─ choice b        it ends before any of its texts does
                  └─ question 2 ─── ...
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, TypeVar

from calipers.clients.huggingface.checkpoint import BatchPlan, Checkpoint, kernels
from calipers.errors import ClientError

Row = TypeVar("Row")
Done = TypeVar("Done")
Takes = Callable[[Row], bool]
"""Whether one more row goes into a batch; a row that does is counted."""


def in_batches(
    rows: Sequence[Row], most: int, begin: Callable[[Row], Takes[Row]], work: Callable[[Sequence[Row]], Sequence[Done]]
) -> list[Done]:
    """What the work makes of the rows, in their order. ``begin`` opens a batch with its first row, which always fits.

    Where the device has too little memory for a batch, it is halved, and so are those after it; what
    was done of it is done again, so the work may leave no trace.

    >>> def sums_to_seven(first):
    ...     total = [first]
    ...     return lambda row: total.append(row) or sum(total) <= 7
    >>> in_batches([3, 4, 5, 6], 8, sums_to_seven, lambda batch: [batch])
    [[3, 4], [5], [6]]
    """
    done: list[Done] = []
    start = 0
    while start < len(rows):
        takes, stop = begin(rows[start]), start + 1
        while stop < len(rows) and stop - start < most and takes(rows[stop]):
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


@dataclass(frozen=True, slots=True)
class BatchBounds:
    """What batches may use."""

    most: int  # rows at once
    seconds: float  # for the answers of one
    closed: threading.Event  # set when nobody waits for the answers any more
    plan: BatchPlan


class WantedTokens:
    """The tokens whose likelihood is wanted: each by the row and the place that the model foretells it from."""

    def __init__(self) -> None:
        self.rows: list[int] = []  # [S] of each run of tokens
        self.places: list[int] = []  # [S] the place before its first token
        self.sizes: list[int] = []  # [S]
        self.tokens: list[int] = []  # [N] run by run

    def add(self, row: int, place: int, tokens: Sequence[int]) -> None:
        """Tokens that stand behind one another, the first of them after this place."""
        self.rows.append(row)
        self.places.append(place)
        self.sizes.append(len(tokens))
        self.tokens += tokens

    def numbered(self, width: int) -> tuple[Any, Any]:
        """The distinct places in rows of a width, ascending, [P], and the index of each token's, [N].

        A place is ``row * width + place``.
        """
        import torch

        sizes = torch.tensor(self.sizes)
        ends = sizes.cumsum(0)
        starts = torch.tensor(self.rows) * width + torch.tensor(self.places) - (ends - sizes)
        places = torch.arange(len(self.tokens)) + starts.repeat_interleave(sizes)
        distinct, index = places.unique(return_inverse=True)
        return distinct, index


Likelihoods = tuple[list[float], list[bool]]
"""The log-probability of each wanted token, and whether the model itself holds it likeliest."""


class ForwardPass:
    """Reads rows until it is told to close."""

    def __init__(self, checkpoint: Checkpoint, bounds: BatchBounds) -> None:
        self._checkpoint, self._closed, plan = checkpoint, bounds.closed, bounds.plan
        # scores that are no linear function of hidden states come for whole rows
        self.plan = plan if checkpoint.linear else replace(plan, tokens=min(plan.tokens, plan.places))

    def __call__(
        self, rows: Sequence[Sequence[int]], wanted: WantedTokens, *, memory: Any = None, **more: Any
    ) -> tuple[Likelihoods, Any]:
        """The likelihoods of the wanted tokens, and the model's memory with the rows behind it."""
        import torch

        if self._closed.is_set():
            raise ClientError("the model was closed before it finished scoring", kind="closed")
        model, takes, linear = self._checkpoint.model, self._checkpoint.takes, self._checkpoint.linear
        given = {name: value for name, value in more.items() if name != "position_ids" or name in takes}
        if memory is not None:
            given["past_key_values"] = memory
        first = 0  # the place of the first scores
        if not linear and "logits_to_keep" in takes:
            first = min(wanted.places, default=len(rows[0]) - 1)
            given["logits_to_keep"] = len(rows[0]) - first
        moved = {name: value.to(model.device) if torch.is_tensor(value) else value for name, value in given.items()}
        with torch.inference_mode(), kernels(model.device):
            read = model.base_model if linear else model
            out = read(input_ids=torch.tensor(rows, device=model.device), **moved)
            states = out.last_hidden_state if linear else out.logits
            likely = self._likelihoods(states, wanted, first) if wanted.tokens else ([], [])
        return likely, out.past_key_values if more["use_cache"] else None

    def _likelihoods(self, states: Any, wanted: WantedTokens, first: int) -> Likelihoods:
        """One gather on the device and one transfer from it.

        ``states`` are hidden states, [B, W, H], or scores, [B, W, V], from the place ``first`` on. Log-probabilities
        are taken at the wanted places only, in 32 bits whatever the model's own.
        """
        import torch

        head, width = self._checkpoint.model.get_output_embeddings(), states.shape[1]
        places, index = wanted.numbered(first + width)
        rows, columns = places // (first + width), places % (first + width) - first
        flat = states.flatten(0, 1)
        order = index.argsort(stable=True)
        tokens = torch.tensor(wanted.tokens)[order].to(states.device)
        sorted_index = index[order]
        parts = []
        for begin in range(0, len(places), self.plan.places):
            some = slice(begin, begin + self.plan.places)
            start, end = torch.searchsorted(sorted_index, torch.tensor([begin, some.stop])).tolist()
            states_here = flat[(rows[some] * width + columns[some]).to(states.device)]
            scores = (head(states_here) if self._checkpoint.linear else states_here).float()
            # the output layer of a model that is spread may be on another device than the states
            place, token = (sorted_index[start:end] - begin).to(scores.device), tokens[start:end].to(scores.device)
            likely = scores.log_softmax(-1)[place, token]
            parts.append(torch.stack([likely, (scores.argmax(-1)[place] == token).to(likely.dtype)]))
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order))
        logs, greedy = torch.cat(parts, 1).cpu()[:, back].tolist()
        return logs, [best == 1.0 for best in greedy]


Tokens = tuple[int, ...]
Branch = tuple[Tokens, list[Tokens]]  # a prefix, () for none, and the texts that grow from it

WORTH = 128  # tokens a prefix must save, as it takes a call of its own
WORTH_ON_DEVICE = 2**13  # the same on an accelerator, which reads as many in the time that a call takes to begin
DEEPEST = 16  # times a prefix is parted into longer ones
END = -1  # no token: marks what is known, so that all of it may be a prefix


def branches(texts: Sequence[Tokens], known: Sequence[Tokens] = (), worth: int = WORTH) -> list[Branch]:
    """Texts by the prefix that each is best read on from. What is known counts as a text, and is in no branch.

    A prefix saves at least as many tokens as it is ``worth`` a call.

    >>> [prefix[-1:] for prefix, _ in branches([(*range(200), 7, 1), (*range(200), 8, 1), (5, 6)])]
    [(), (199,)]
    """
    marked = {(*prompt, END) for prompt in known}
    ordered = sorted({*texts, *marked})
    texts_of: dict[Tokens, list[Tokens]] = {(): []}
    for prefix, members in _parted(ordered, DEEPEST, worth)[1]:
        texts_of.setdefault(prefix, []).extend(text for text in members if text not in marked)
    return [(prefix, members) for prefix, members in texts_of.items() if members]


def _parted(ordered: Sequence[Tokens], deepest: int, worth: int) -> tuple[int, list[Branch]]:
    """The tokens saved at best, and the branches that save them: one for all of the texts, or longer ones for some."""
    whole = _alike(ordered[0], ordered[-1]) if ordered else 0  # in their order, these are the least alike
    length = min(whole, min((len(text) for text in ordered), default=1) - 1)
    saved = length * (len(ordered) - 1) - worth
    best: tuple[int, list[Branch]] = (0, [((), list(ordered))])
    if saved > 0:
        best = saved, [(ordered[0][:length], list(ordered))]
    parts = [list(part) for _, part in groupby(ordered, lambda text: text[length])]
    if len(parts) > 1 and deepest:
        longer = [_parted(part, deepest - 1, worth) for part in parts if len(part) > 1]
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

    def __init__(self, checkpoint: Checkpoint, plan: BatchPlan) -> None:
        self._checkpoint = checkpoint
        self._worth = WORTH if plan.device == "cpu" else WORTH_ON_DEVICE  # by the plan: it outlives a device
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
        return branches(texts, known, self._worth)

    def memory(self, prefix: Tokens, rows: int, read: ForwardPass) -> Any:
        """The model's memory of a prefix, once for each of some rows; None for no prefix."""
        if not prefix:
            return None
        known = _alike(prefix, self._tokens)
        if known < len(prefix):
            before = _copied(self._memory, known, 1) if known else None
            _, self._memory = read([prefix[known:]], WantedTokens(), memory=before, use_cache=True)
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
