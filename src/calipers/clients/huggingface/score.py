"""Log-likelihoods of texts under a checkpoint; shared prefixes are computed only once.

::

    prefix ── context ─┬─ choice a         read    context and choice, without its last token
                       ├─ choice b         scored  the choice's tokens, each by what stands before it
                       └─ choice c

Texts that read the same, such as choices of one token, are one row. Texts of one context are, where that
saves enough, a row for the context, and each goes on from the model's memory of it. What several contexts
begin with is a prefix, and is read before them.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calipers.clients.huggingface.batches import ForwardPass, PrefixCache, in_batches
from calipers.clients.huggingface.checkpoint import Checkpoint
from calipers.clients.huggingface.template import Template
from calipers.clients.likelihood import Continuation, Rolling, Scored
from calipers.errors import ClientError

Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens that are scored, at least one, and those before them, at least one."""

    context: Tokens
    scored: Tokens

    @property
    def read(self) -> Tokens:
        """What the model reads: the last token is only scored."""
        return self.context + self.scored[:-1]


def spans(checkpoint: Checkpoint, request: Continuation | Rolling, template: Template | None = None) -> list[Span]:
    """The spans of a text: one for a continuation, one per window for a whole text, none for an empty one.

    A context that is a chat is what the ``template`` makes of it.
    """
    if isinstance(request, Rolling):
        tokens = checkpoint.encode(request.text)
        return list(windows(tokens, _beginning(checkpoint), checkpoint.longest)) if tokens else []
    context, scored = _pair(checkpoint, _before(checkpoint, request, template), request.continuation)
    if not scored:
        raise ClientError(f"the continuation {request.continuation!r} has no tokens of its own", kind="prompt")
    if len(scored) > checkpoint.longest:
        message = f"the continuation has {len(scored)} tokens, but the model's context length is {checkpoint.longest}"
        raise ClientError(message, kind="context")
    kept = (context + scored)[-(checkpoint.longest + 1) :]  # what is too long loses its beginning
    return [Span(tuple(kept[: -len(scored)]), tuple(scored))]


def windows(tokens: Sequence[int], prefix: int, longest: int) -> Iterator[Span]:
    """The windows of a long text: each token is scored once, and reads as far back as the model can.

    The first window begins with the prefix, each full one after it with the last token of the one
    before; the last, which is rarely full, reaches further back.

    >>> [(span.context, span.scored) for span in windows([1, 2, 3, 4, 5], 0, longest=3)]
    [((0,), (1, 2, 3)), ((2, 3), (4, 5))]
    """
    done = min(longest, len(tokens))
    yield Span((prefix,), tuple(tokens[:done]))
    while done < len(tokens):
        end = min(done + longest, len(tokens))
        yield Span(tuple(tokens[end - longest - 1 : done]), tuple(tokens[done:end]))
        done = end


def _before(checkpoint: Checkpoint, request: Continuation, template: Template | None) -> str:
    if isinstance(request.context, str):
        return request.context
    if template is None:
        raise ClientError("the context is a chat, but --apply-chat-template is not set", kind="prompt", hopeless=True)
    return template.around(checkpoint.tokenizer, request.context)


def _pair(checkpoint: Checkpoint, context: str, continuation: str) -> tuple[list[int], list[int]]:
    """The tokens of context and continuation, which are encoded together: that is how the model knows them."""
    whole = context + continuation
    before = checkpoint.encode(context.rstrip()) if context else []
    if before:
        return before, checkpoint.encode(whole)[len(before) :]
    tokens = checkpoint.encode(whole, whole=False)
    prefix = _beginning(checkpoint)
    return ([prefix], tokens[1:]) if tokens[:1] == [prefix] else ([prefix], tokens)


def _beginning(checkpoint: Checkpoint) -> int:
    if checkpoint.prefix_token is None:
        raise ClientError("the model has no BOS token", kind="prompt")
    return checkpoint.prefix_token


Texts = Sequence[Continuation | Rolling]
Found = Mapping[Span, Scored]
Family = tuple[Tokens, Sequence[Span]]  # what its spans have read in common, and they

WORTH = 32  # tokens a family must save before its context is read by itself, which takes a second call


def scores(
    checkpoint: Checkpoint,
    cache: PrefixCache,
    calls: Sequence[Texts],
    most: int,
    closed: threading.Event,
    template: Template | None = None,
) -> list[list[Scored] | ClientError]:
    """The likelihoods of the texts of some calls; an error in the place of a call that has none."""
    cut: list[list[list[Span]] | ClientError] = []
    for call in calls:
        try:
            cut.append([spans(checkpoint, text, template) for text in call])
        except ClientError as error:
            cut.append(error)
    wanted = [span for call in cut if not isinstance(call, ClientError) for text in call for span in text]
    likelihoods = Scorer(checkpoint, cache, most, closed).find(wanted)
    return [call if isinstance(call, ClientError) else [_joined(text, likelihoods) for text in call] for call in cut]


def _joined(text: Sequence[Span], likelihoods: Found) -> Scored:
    parts = [likelihoods[span] for span in text]
    return Scored(
        math.fsum(part.logprob for part in parts),
        all(part.greedy for part in parts),
        sum(part.tokens for part in parts),
    )


class Scorer:
    """Scores spans in batches: prefix by prefix, first the families that share a context, then the rest."""

    def __init__(self, checkpoint: Checkpoint, cache: PrefixCache, most: int, closed: threading.Event) -> None:
        self._checkpoint, self._cache, self._reader = checkpoint, cache, ForwardPass(checkpoint, closed)
        self._most = most if checkpoint.shares else 1

    def find(self, wanted: Sequence[Span]) -> Found:
        """The likelihood of each span; the same span twice is scored once."""
        families: dict[Tokens, list[Span]] = {}
        for span in dict.fromkeys(wanted):
            families.setdefault(span.context, []).append(span)
        batches: list[list[tuple[Span, Scored]]] = []
        for prefix, contexts in self._cache.branches(list(families)):
            batches += self._grown(prefix, [(context, families[context]) for context in contexts])
        return dict(pair for pairs in batches for pair in pairs)

    def _grown(self, prefix: Tokens, families: Sequence[Family]) -> list[list[tuple[Span, Scored]]]:
        """The spans of the families of a prefix."""
        start = len(prefix)
        shared = [each for each in families if self._checkpoint.shares and _saves(each, start) >= WORTH]
        apart = {context for context, _ in shared}
        rows = _grouped(span for context, members in families if context not in apart for span in members)
        return in_batches(
            [piece for family in _longest_first(shared) for piece in _pieces(family, self._members(family))],
            self._most,
            lambda batch: self._family_fits(batch, start),
            lambda batch: self._families(prefix, batch),
        ) + in_batches(
            _longest_first(rows),
            self._most,
            lambda batch: len(batch) <= self._reader.most(_width(batch) - start, _kept(batch), start),
            lambda batch: self._rows(prefix, batch),
        )

    def _rows(self, prefix: Tokens, batch: Sequence[Family]) -> list[list[tuple[Span, Scored]]]:
        """The spans of some rows. What fills a row up stands behind it, where nothing looks."""
        start, width, kept = len(prefix), _width(batch), _kept(batch)
        filled = [[*read[start:], *[self._checkpoint.pads] * (width - len(read))] for read, _ in batch]
        memory = self._cache.memory(prefix, len(batch), self._reader)
        logits, _ = self._reader(filled, kept, memory=memory, use_cache=memory is not None)
        scored_rows = []
        for (read, row), scored in zip(batch, logits, strict=True):
            end = len(read) - width + kept
            table = _table(scored[end - max(len(span.scored) for span in row) : end])
            scored_rows.append([(span, _likelihood(table[-len(span.scored) :], span.scored)) for span in row])
        return scored_rows

    def _families(self, prefix: Tokens, batch: Sequence[Family]) -> list[list[tuple[Span, Scored]]]:
        """The spans of some families: each context is read once, and then every rest of them behind it."""
        import torch

        start, width = len(prefix), _width(batch)
        before = [width - len(context) for context, _ in batch]
        filled = [
            [self._checkpoint.pads] * gap + list(context[start:])
            for gap, (context, _) in zip(before, batch, strict=True)
        ]
        given = torch.tensor([[1] * start + [0] * gap + [1] * (width - start - gap) for gap in before])
        first, memory = self._reader(
            filled,
            1,
            memory=self._cache.memory(prefix, len(batch), self._reader),
            attention_mask=given,
            position_ids=(given.cumsum(1) - 1).clamp(min=0)[:, start:],
            use_cache=True,
        )
        rests = [(index, rest) for index, family in enumerate(batch) for rest in _rests(family)]
        later: dict[tuple[int, Tokens], Any] = {}
        if rests:
            owner = torch.tensor([index for index, _ in rests])
            length = max(len(rest) for _, rest in rests)
            memory.batch_select_indices(owner.to(self._checkpoint.model.device))
            places = torch.tensor([[len(batch[index][0])] for index, _ in rests]) + torch.arange(length)
            logits, _ = self._reader(
                [[*rest, *[self._checkpoint.pads] * (length - len(rest))] for _, rest in rests],
                length,
                memory=memory,
                attention_mask=torch.cat([given[owner], torch.ones(len(rests), length, dtype=given.dtype)], 1),
                position_ids=places,
                use_cache=True,
            )
            later = {key: _table(row[: len(key[1])]) for key, row in zip(rests, logits, strict=True)}
        scored_families = []
        for index, (_, family) in enumerate(batch):
            start_table, pairs = _table(first[index]), []
            for span in family:
                rest = span.scored[:-1]
                table = torch.cat([start_table, later[index, rest]]) if rest else start_table
                pairs.append((span, _likelihood(table, span.scored)))
            scored_families.append(pairs)
        return scored_families

    def _members(self, family: Family) -> int:
        """How many of a family are read at once behind its context."""
        longest = max(map(len, _rests(family)), default=0)
        return min(self._most, self._reader.most(longest, longest, len(family[0])))

    def _family_fits(self, batch: Sequence[Family], start: int) -> bool:
        width, rests = _width(batch), [rest for family in batch for rest in _rests(family)]
        longest = max(map(len, rests), default=0)
        most = min(self._most, self._reader.most(longest, longest, width))
        return len(rests) <= most and len(batch) <= self._reader.most(width - start, 1, start)


def _grouped(wanted: Iterable[Span]) -> list[Family]:
    """Spans by what the model reads for them."""
    groups: dict[Tokens, list[Span]] = {}
    for span in wanted:
        groups.setdefault(span.read, []).append(span)
    return list(groups.items())


def _longest_first(families: Iterable[Family]) -> list[Family]:
    """Those of a length share a batch; the largest comes first, as memory that runs out does so at once."""
    return sorted(families, key=lambda family: -len(family[0]))


def _pieces(family: Family, most: int) -> Iterator[Family]:
    """A family as ones of at most so many spans each."""
    context, members = family
    for start in range(0, len(members), most):
        yield context, members[start : start + most]


def _saves(family: Family, start: int) -> int:
    """The tokens that need not be read when what follows the prefix in a family's context is read by itself."""
    context, members = family
    return (len(context) - start) * (len({span.read for span in members}) - 1)


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
