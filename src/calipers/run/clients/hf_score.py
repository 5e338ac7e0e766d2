"""How likely a checkpoint holds texts, with what several of them share read only once.

::

    context ─┬─ choice a         read    context and choice, without its last token
             ├─ choice b         scored  the choice's tokens, each by what stands before it
             └─ choice c

Texts that read the same, such as choices of one token, are one row. Texts of one context are, where that
saves enough, a row for the context, and each goes on from the model's memory of it.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from calipers.errors import ClientError
from calipers.run.clients.hf_batches import in_batches
from calipers.run.clients.hf_checkpoint import Checkpoint
from calipers.run.clients.hf_spans import Span, Tokens, spans
from calipers.run.likelihood import Continuation, Rolling, Scored

Texts = Sequence[Continuation | Rolling]
Found = Mapping[Span, Scored]
Family = tuple[Tokens, Sequence[Span]]  # what its spans have read in common, and they

WORTH = 32  # tokens a family must save before its context is read by itself, which takes a second call
NUMBERS = 2**28  # scores a batch may ask for: positions by words of the vocabulary, a GiB in all


def scores(
    checkpoint: Checkpoint, calls: Sequence[Texts], most: int, closed: threading.Event
) -> list[list[Scored] | ClientError]:
    """The likelihoods of the texts of some calls; an error in the place of a call that has none."""
    cut: list[list[list[Span]] | ClientError] = []
    for call in calls:
        try:
            cut.append([spans(checkpoint, text) for text in call])
        except ClientError as error:
            cut.append(error)
    wanted = [span for call in cut if not isinstance(call, ClientError) for text in call for span in text]
    found = Scorer(checkpoint, most, closed).find(wanted)
    return [call if isinstance(call, ClientError) else [_joined(text, found) for text in call] for call in cut]


def _joined(text: Sequence[Span], found: Found) -> Scored:
    parts = [found[span] for span in text]
    return Scored(
        math.fsum(part.logprob for part in parts),
        all(part.greedy for part in parts),
        sum(part.tokens for part in parts),
    )


class Scorer:
    """Scores spans in batches: first the families that share a context, then the rest."""

    def __init__(self, checkpoint: Checkpoint, most: int, closed: threading.Event) -> None:
        self._checkpoint, self._closed = checkpoint, closed
        self._most = most if checkpoint.shares else 1
        self._positions: int = NUMBERS // checkpoint.model.config.get_text_config().vocab_size

    def find(self, wanted: Sequence[Span]) -> Found:
        """The likelihood of each span; the same span twice is scored once."""
        once = dict.fromkeys(wanted)
        families = _grouped(once, lambda span: span.context)
        shared = [family for family in families if self._checkpoint.shares and _saves(family) >= WORTH]
        apart = {context for context, _ in shared}
        rows = _grouped((span for span in once if span.context not in apart), lambda span: span.read)
        found = in_batches(list(_pieces(shared, self._most)), self._most, self._family_fits, self._families)
        found += in_batches(rows, self._most, self._rows_fit, self._rows)
        return dict(pair for pairs in found for pair in pairs)

    def _rows(self, batch: Sequence[Family]) -> list[list[tuple[Span, Scored]]]:
        """The spans of some rows. What fills a row up stands behind it, where nothing looks."""
        width, kept = _width(batch), _kept(batch)
        filled = [[*read, *[self._checkpoint.pads] * (width - len(read))] for read, _ in batch]
        logits, _ = self._read(filled, kept, use_cache=False)
        found = []
        for (read, row), scored in zip(batch, logits, strict=True):
            end = len(read) - width + kept
            table = _table(scored[end - max(len(span.scored) for span in row) : end])
            found.append([(span, _likelihood(table[-len(span.scored) :], span.scored)) for span in row])
        return found

    def _families(self, batch: Sequence[Family]) -> list[list[tuple[Span, Scored]]]:
        """The spans of some families: each context is read once, and then every rest of them behind it."""
        import torch

        width = _width(batch)
        before = [width - len(context) for context, _ in batch]
        filled = [
            [self._checkpoint.pads] * gap + list(context) for gap, (context, _) in zip(before, batch, strict=True)
        ]
        given = torch.tensor([[0] * gap + [1] * (width - gap) for gap in before])
        first, memory = self._read(
            filled, 1, attention_mask=given, position_ids=(given.cumsum(1) - 1).clamp(min=0), use_cache=True
        )
        rests = [(place, rest) for place, family in enumerate(batch) for rest in _rests(family)]
        later: dict[tuple[int, Tokens], Any] = {}
        if rests:
            owner = torch.tensor([place for place, _ in rests])
            length = max(len(rest) for _, rest in rests)
            memory.batch_select_indices(owner.to(self._checkpoint.model.device))
            places = torch.tensor([[len(batch[place][0])] for place, _ in rests]) + torch.arange(length)
            logits, _ = self._read(
                [[*rest, *[self._checkpoint.pads] * (length - len(rest))] for _, rest in rests],
                length,
                attention_mask=torch.cat([given[owner], torch.ones(len(rests), length, dtype=given.dtype)], 1),
                position_ids=places,
                past_key_values=memory,
                use_cache=True,
            )
            later = {key: _table(row[: len(key[1])]) for key, row in zip(rests, logits, strict=True)}
        found = []
        for place, (_, family) in enumerate(batch):
            start, pairs = _table(first[place]), []
            for span in family:
                rest = span.scored[:-1]
                table = torch.cat([start, later[place, rest]]) if rest else start
                pairs.append((span, _likelihood(table, span.scored)))
            found.append(pairs)
        return found

    def _read(self, tokens: Sequence[Sequence[int]], kept: int, **more: Any) -> tuple[Any, Any]:
        """The scores at the last ``kept`` places of each row, and the model's memory of them."""
        import torch

        if self._closed.is_set():
            raise ClientError("the model was closed before it had scored", kind="closed")
        model, takes = self._checkpoint.model, self._checkpoint.takes
        given = {name: value for name, value in more.items() if name != "position_ids" or name in takes}
        if "logits_to_keep" in takes:
            given["logits_to_keep"] = kept
        moved = {name: value.to(model.device) if torch.is_tensor(value) else value for name, value in given.items()}
        with torch.inference_mode():
            out = model(input_ids=torch.tensor(tokens, device=model.device), **moved)
        return out.logits[:, -kept:], out.past_key_values if more["use_cache"] else None

    def _rows_fit(self, batch: Sequence[Family]) -> bool:
        return len(batch) * _kept(batch) <= self._positions

    def _family_fits(self, batch: Sequence[Family]) -> bool:
        rests = [rest for family in batch for rest in _rests(family)]
        longest = max(map(len, rests), default=0)
        return len(rests) <= self._most and len(rests) * longest <= self._positions


def _grouped(wanted: Iterable[Span], key: Callable[[Span], Tokens]) -> list[Family]:
    """Spans by what they have in common, the longest first."""
    groups: dict[Tokens, list[Span]] = {}
    for span in wanted:
        groups.setdefault(key(span), []).append(span)
    return sorted(groups.items(), key=lambda group: -len(group[0]))


def _pieces(families: Sequence[Family], most: int) -> Iterator[Family]:
    """Families of at most so many spans each."""
    for context, members in families:
        for start in range(0, len(members), most):
            yield context, members[start : start + most]


def _saves(family: Family) -> int:
    """The tokens that need not be read when the context of a family is read by itself."""
    context, members = family
    return len(context) * (len({span.read for span in members}) - 1)


def _rests(family: Family) -> Iterator[Tokens]:
    """What is read after the context, each once; nothing for a choice of one token."""
    return iter(dict.fromkeys(span.scored[:-1] for span in family[1] if len(span.scored) > 1))


def _width(batch: Sequence[Family]) -> int:
    return max(len(read) for read, _ in batch)


def _kept(batch: Sequence[Family]) -> int:
    """The places, from the end of the widest row, that hold every score wanted."""
    return _width(batch) - min(len(read) - len(span.scored) for read, row in batch for span in row)


def _table(logits: Any) -> Any:
    """The log-probabilities [places, V], in 32 bits whatever the model's own."""
    return logits.float().log_softmax(-1)


def _likelihood(table: Any, tokens: Tokens) -> Scored:
    import torch

    wanted = torch.tensor(tokens, device=table.device)
    each = table.gather(1, wanted[:, None])[:, 0]
    return Scored(math.fsum(each.tolist()), bool((table.argmax(1) == wanted).all()), len(tokens))
