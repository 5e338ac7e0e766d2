"""Batches for a model: which texts go together, a cache of shared prefixes, and the forward pass.

The common beginning of texts, such as the few-shot examples before every question, is computed once and cached::

    examples ─┬─ question 1 ─┬─ choice a        a prefix is a common beginning that is computed once;
              │              └─ choice b        it is shorter than each of its texts
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
"""A function that returns whether one more row fits into a batch; a row that fits is counted."""


def in_batches(
    rows: Sequence[Row], most: int, begin: Callable[[Row], Takes[Row]], work: Callable[[Sequence[Row]], Sequence[Done]]
) -> list[Done]:
    """The results of the work for all rows, in their order. ``begin`` opens a batch with a row, which always fits.

    If the device runs out of memory, this batch and all later ones have half the rows. The batch is repeated from its
    beginning, so the work must have no side effects.

    >>> def sums_to_seven(first):
    ...     total = [first]
    ...     return lambda row: total.append(row) or sum(total) <= 7
    >>> in_batches([3, 4, 5, 6], 8, sums_to_seven, lambda batch: [batch])
    [[3, 4], [5], [6]]
    """
    results: list[Done] = []
    start = 0
    while start < len(rows):
        takes, stop = begin(rows[start]), start + 1
        while stop < len(rows) and stop - start < most and takes(rows[stop]):
            stop += 1
        try:
            results += work(rows[start:stop])
        except RuntimeError as error:
            if type(error).__name__ != "OutOfMemoryError" or stop - start == 1:
                raise
            most = (stop - start) // 2
        else:
            start = stop
    return results


@dataclass(frozen=True, slots=True)
class BatchBounds:
    """The limits of batches."""

    most: int  # maximum rows
    seconds: float  # time limit for the answers of a batch
    closed: threading.Event  # set when nobody waits for answers any more
    plan: BatchPlan


class WantedTokens:
    """The tokens whose likelihoods are wanted, each with the row and the position that predicts it."""

    def __init__(self) -> None:
        self.rows: list[int] = []  # [S] the row of each sequence of tokens
        self.positions: list[int] = []  # [S] the position before its first token
        self.sizes: list[int] = []  # [S] its number of tokens
        self.tokens: list[int] = []  # [N] the tokens of all sequences

    def add(self, row: int, position: int, tokens: Sequence[int]) -> None:
        """Add consecutive tokens, of which the first comes after this position."""
        self.rows.append(row)
        self.positions.append(position)
        self.sizes.append(len(tokens))
        self.tokens += tokens

    def numbered(self, width: int) -> tuple[Any, Any]:
        """The distinct positions in rows of a width, ascending, [P], and the index of each token's position, [N].

        Each position is encoded as ``row * width + position``.
        """
        import torch

        sizes = torch.tensor(self.sizes)
        ends = sizes.cumsum(0)
        starts = torch.tensor(self.rows) * width + torch.tensor(self.positions) - (ends - sizes)
        positions = torch.arange(len(self.tokens)) + starts.repeat_interleave(sizes)
        distinct, index = positions.unique(return_inverse=True)
        return distinct, index


Likelihoods = tuple[list[float], list[bool]]
"""The log-probability of each wanted token, and whether it is the model's most likely one."""


class ForwardPass:
    """The forward pass over a batch of rows; ClientError after the model was closed."""

    def __init__(self, checkpoint: Checkpoint, bounds: BatchBounds) -> None:
        self._checkpoint, self._closed, plan = checkpoint, bounds.closed, bounds.plan
        # if the scores are not a linear function of the hidden states, they are computed for whole rows
        self.plan = plan if checkpoint.linear else replace(plan, tokens=min(plan.tokens, plan.places))

    def __call__(
        self, rows: Sequence[Sequence[int]], wanted: WantedTokens, *, memory: Any = None, **more: Any
    ) -> tuple[Likelihoods, Any]:
        """The likelihoods of the wanted tokens, and the model's key-value cache including these rows."""
        import torch

        if self._closed.is_set():
            raise ClientError("the model was closed before it finished scoring", kind="closed")
        model, takes, linear = self._checkpoint.model, self._checkpoint.takes, self._checkpoint.linear
        given = {name: value for name, value in more.items() if name != "position_ids" or name in takes}
        if memory is not None:
            given["past_key_values"] = memory
        first = 0  # the first position with scores
        if not linear and "logits_to_keep" in takes:
            first = min(wanted.positions, default=len(rows[0]) - 1)
            given["logits_to_keep"] = len(rows[0]) - first
        moved = {name: value.to(model.device) if torch.is_tensor(value) else value for name, value in given.items()}
        with torch.inference_mode(), kernels(model.device):
            read = model.base_model if linear else model
            out = read(input_ids=torch.tensor(rows, device=model.device), **moved)
            states = out.last_hidden_state if linear else out.logits
            likely = self._likelihoods(states, wanted, first) if wanted.tokens else ([], [])
        return likely, out.past_key_values if more["use_cache"] else None

    def _likelihoods(self, states: Any, wanted: WantedTokens, first: int) -> Likelihoods:
        """The likelihoods from one gather on the device and one transfer from it.

        ``states`` are hidden states, [B, W, H], or scores, [B, W, V], from the position ``first`` on. Log-probabilities
        are computed only at the wanted positions, in 32 bits whatever the model's type.
        """
        import torch

        head, width = self._checkpoint.model.get_output_embeddings(), states.shape[1]
        positions, index = wanted.numbered(first + width)
        rows, columns = positions // (first + width), positions % (first + width) - first
        flat = states.flatten(0, 1)
        order = index.argsort(stable=True)
        tokens = torch.tensor(wanted.tokens)[order].to(states.device)
        sorted_index = index[order]
        parts = []
        for begin in range(0, len(positions), self.plan.places):
            block = slice(begin, begin + self.plan.places)
            start, end = torch.searchsorted(sorted_index, torch.tensor([begin, block.stop])).tolist()
            wanted_states = flat[(rows[block] * width + columns[block]).to(states.device)]
            scores = (head(wanted_states) if self._checkpoint.linear else wanted_states).float()
            # if the model is spread over devices, its output layer may be on another device than the states
            position, token = (sorted_index[start:end] - begin).to(scores.device), tokens[start:end].to(scores.device)
            likely = scores.log_softmax(-1)[position, token]
            parts.append(torch.stack([likely, (scores.argmax(-1)[position] == token).to(likely.dtype)]))
        inverse = torch.empty_like(order)
        inverse[order] = torch.arange(len(order))
        logs, greedy = torch.cat(parts, 1).cpu()[:, inverse].tolist()
        return logs, [best == 1.0 for best in greedy]


Tokens = tuple[int, ...]
Branch = tuple[Tokens, list[Tokens]]  # a prefix, () for none, and the texts that begin with it

WORTH = 128  # minimum tokens that a prefix must save, because it takes a call of its own
WORTH_ON_DEVICE = 2**13  # the same on an accelerator, which computes as many tokens in the overhead of a call
DEEPEST = 16  # maximum depth of splitting a prefix into longer ones
END = -1  # not a token; marks the end of a known text, so that all of its tokens may be a prefix


def branches(texts: Sequence[Tokens], known: Sequence[Tokens] = (), worth: int = WORTH) -> list[Branch]:
    """Texts grouped by the prefix that saves most. Known texts count for the choice, but are in no branch.

    Each prefix saves at least ``worth`` tokens.

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
    """The largest saving in tokens, and the branches for it: one prefix for all texts, or longer ones for some."""
    common = _common_length(ordered[0], ordered[-1]) if ordered else 0  # of sorted texts, these two differ most
    length = min(common, min((len(text) for text in ordered), default=1) - 1)
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


def _common_length(first: Tokens, other: Tokens) -> int:
    """The length of the common prefix of two texts."""
    pairs = enumerate(zip(first, other, strict=False))
    return next((index for index, (left, expected) in pairs if left != expected), min(len(first), len(other)))


class PrefixCache:
    """The key-value cache of the latest prefix, kept because the next texts are likely to begin with it, too."""

    def __init__(self, checkpoint: Checkpoint, plan: BatchPlan) -> None:
        self._checkpoint = checkpoint
        self._worth = WORTH if plan.device == "cpu" else WORTH_ON_DEVICE  # the plan stays the same on another device
        self._latest: Tokens = ()
        self._tokens: Tokens = ()
        self._memory: Any = None

    def branches(self, texts: Sequence[Tokens]) -> list[Branch]:
        """Texts grouped by prefix; without prefixes if the model does not support gaps in its cache.

        A single text is compared with the text before it, because texts that come one by one have no others.
        """
        if not self._checkpoint.gaps:
            return [((), list(dict.fromkeys(texts)))]
        known = [text for text in (self._tokens, self._latest if len(texts) == 1 else ()) if text]
        self._latest = texts[-1] if texts else ()
        return branches(texts, known, self._worth)

    def memory(self, prefix: Tokens, rows: int, read: ForwardPass) -> Any:
        """The model's key-value cache of a prefix, repeated for each row; None if the prefix is empty."""
        if not prefix:
            return None
        common = _common_length(prefix, self._tokens)
        if common < len(prefix):
            cached = _copied(self._memory, common, 1) if common else None
            _, self._memory = read([prefix[common:]], WantedTokens(), memory=cached, use_cache=True)
            self._tokens = prefix
        return _copied(self._memory, len(prefix), rows)


def _copied(memory: Any, length: int, rows: int) -> Any:
    """The first ``length`` tokens of the cache of one row, repeated for ``rows`` rows."""
    from transformers import DynamicCache

    copy = DynamicCache()
    for index, layer in enumerate(memory.layers):
        keys, values = (
            part[:, :, :length].expand(rows, *[-1] * (part.dim() - 1)) for part in (layer.keys, layer.values)
        )
        copy.update(keys, values, index)
    return copy
