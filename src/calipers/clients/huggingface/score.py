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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from types import MappingProxyType

from calipers.clients import Continuation, Rolling, Scored
from calipers.clients.huggingface.batches import (
    BatchBounds,
    ForwardPass,
    Likelihoods,
    PrefixCache,
    Takes,
    Tokens,
    WantedTokens,
    in_batches,
)
from calipers.clients.huggingface.checkpoint import Checkpoint, Template
from calipers.errors import ClientError


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens that are scored, at least one, and those before them, at least one."""

    context: Tokens
    scored: Tokens

    @property
    def read(self) -> Tokens:
        """What the model reads: the last token is only scored."""
        return self.context + self.scored[:-1]


Encoded = Mapping[tuple[str, bool], list[int]]
"""The tokens of texts, by the text and whether it is whole; what is absent is encoded when it is needed."""


def encoded(checkpoint: Checkpoint, texts: Iterable[Continuation | Rolling]) -> Encoded:
    """The tokens of all texts that `spans` will need, except those of chats."""
    needed: list[tuple[str, bool]] = []
    for text in texts:
        if isinstance(text, Rolling):
            needed.append((text.text, True))
        elif isinstance(text.context, str):
            needed += [(text.context.rstrip(), True)] if text.context else []
            needed.append((text.context + text.continuation, bool(text.context)))
    return checkpoint.encode_all(needed)


def spans(
    checkpoint: Checkpoint,
    request: Continuation | Rolling,
    template: Template | None = None,
    known: Encoded = MappingProxyType({}),
) -> list[Span]:
    """The spans of a text: one for a continuation, one per window for a whole text, none for an empty one.

    A context that is a chat is what the ``template`` makes of it.
    """

    def encode(text: str, whole: bool) -> list[int]:
        tokens = known.get((text, whole))
        return checkpoint.encode(text, whole) if tokens is None else tokens

    if isinstance(request, Rolling):
        tokens = encode(request.text, True)
        return list(windows(tokens, _beginning(checkpoint), checkpoint.longest)) if tokens else []
    context, scored = _pair(checkpoint, encode, _before(checkpoint, request, template), request.continuation)
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


def _pair(
    checkpoint: Checkpoint, encode: Callable[[str, bool], list[int]], context: str, continuation: str
) -> tuple[list[int], list[int]]:
    """The tokens of context and continuation, which are encoded together: that is how the model knows them."""
    whole = context + continuation
    before = encode(context.rstrip(), True) if context else []
    if before:
        return before, encode(whole, True)[len(before) :]
    tokens = encode(whole, False)
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
    bounds: BatchBounds,
    template: Template | None = None,
) -> list[list[Scored] | ClientError]:
    """The likelihoods of the texts of some calls; an error in the place of a call that has none."""
    cut: list[list[list[Span]] | ClientError] = []
    known = encoded(checkpoint, (text for call in calls for text in call))
    for call in calls:
        try:
            cut.append([spans(checkpoint, text, template, known) for text in call])
        except ClientError as error:
            cut.append(error)
    wanted = [span for call in cut if not isinstance(call, ClientError) for text in call for span in text]
    likelihoods = Scorer(checkpoint, cache, bounds).find(wanted)
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

    def __init__(self, checkpoint: Checkpoint, cache: PrefixCache, bounds: BatchBounds) -> None:
        self._checkpoint, self._cache, self._reader = checkpoint, cache, ForwardPass(checkpoint, bounds)
        self._most = bounds.most if checkpoint.shares else 1
        self._on_one_device = bounds.plan.devices == 1

    def find(self, wanted: Sequence[Span]) -> Found:
        """The likelihood of each span; the same span twice is scored once.

        Spans are sorted, so that who shares a batch does not depend on whose call came first.
        """
        families: dict[Tokens, list[Span]] = {}
        for span in sorted({*wanted}, key=lambda span: (span.context, span.scored)):
            families.setdefault(span.context, []).append(span)
        batches: list[list[tuple[Span, Scored]]] = []
        for prefix, contexts in self._cache.branches(list(families)):
            batches += self._grown(prefix, [(context, families[context]) for context in contexts])
        return dict(pair for pairs in batches for pair in pairs)

    def _grown(self, prefix: Tokens, families: Sequence[Family]) -> list[list[tuple[Span, Scored]]]:
        """The spans of the families of a prefix."""
        start = len(prefix)
        shared = [each for each in families if self._checkpoint.shares and _worth_sharing(each, start)]
        apart = {context for context, _ in shared}
        rows = _grouped(span for context, members in families if context not in apart for span in members)
        return in_batches(
            [piece for family in _longest_first(shared) for piece in _pieces(family, self._members(family))],
            self._most,
            lambda first: self._family_room(first, start),
            lambda batch: self._families(prefix, batch),
        ) + in_batches(
            _longest_first(rows),
            self._most,
            lambda first: self._row_room(first, start),
            lambda batch: self._rows(prefix, batch),
        )

    def _row_room(self, first: Family, start: int) -> Takes[Family]:
        """Room for as many rows as the first, the longest, leaves."""
        plan = self._reader.plan
        left = iter(range(plan.rows(len(first[0]) - start, start) - 1))
        return lambda _: next(left, None) is not None

    def _rows(self, prefix: Tokens, batch: Sequence[Family]) -> list[list[tuple[Span, Scored]]]:
        """The spans of some rows. What fills a row up stands behind it, where nothing looks."""
        start, width = len(prefix), _width(batch)
        filled = [[*read[start:], *[self._checkpoint.pads] * (width - len(read))] for read, _ in batch]
        wanted = WantedTokens()
        for row, (_, members) in enumerate(batch):
            for span in members:
                wanted.add(row, len(span.context) - 1 - start, span.scored)
        memory = self._cache.memory(prefix, len(batch), self._reader)
        likely, _ = self._reader(filled, wanted, memory=memory, use_cache=memory is not None)
        return _by_span([members for _, members in batch], *likely)

    def _families(self, prefix: Tokens, batch: Sequence[Family]) -> list[list[tuple[Span, Scored]]]:
        """The spans of some families: each context is read once, and then every rest of them behind it."""
        import torch

        start, width = len(prefix), _width(batch)
        before = torch.tensor([width - len(context) for context, _ in batch])
        filled = [[self._checkpoint.pads] * (width - len(context)) + list(context[start:]) for context, _ in batch]
        column = torch.arange(width)
        given = ((column < start) | (column >= start + before[:, None])).long()
        rests = [(index, rest) for index, family in enumerate(batch) for rest in _rests(family)]
        row_of = {key: row for row, key in enumerate(rests)}
        opening, following = WantedTokens(), WantedTokens()
        for index, (_, members) in enumerate(batch):
            for span in members:
                opening.add(index, width - start - 1, span.scored[:1])
                if rest := span.scored[:-1]:
                    following.add(row_of[index, rest], 0, span.scored[1:])
        opened, memory = self._reader(
            filled,
            opening,
            memory=self._cache.memory(prefix, len(batch), self._reader),
            attention_mask=given,
            position_ids=(given.cumsum(1) - 1).clamp(min=0)[:, start:],
            use_cache=True,
        )
        scored = [span.scored for _, members in batch for span in members]
        followed: Likelihoods = [], []
        if rests:
            owner = torch.tensor([index for index, _ in rests])
            length = max(len(rest) for _, rest in rests)
            memory.batch_select_indices(owner.to(memory.layers[0].keys.device) if self._on_one_device else owner)
            followed, _ = self._reader(
                [[*rest, *[self._checkpoint.pads] * (length - len(rest))] for _, rest in rests],
                following,
                memory=memory,
                attention_mask=torch.cat([given[owner], torch.ones(len(rests), length, dtype=given.dtype)], 1),
                position_ids=torch.tensor([[len(batch[index][0])] for index, _ in rests]) + torch.arange(length),
                use_cache=True,
            )
        logs: list[float] = []
        greedy: list[bool] = []
        ends = accumulate(len(tokens) - 1 for tokens in scored)
        for number, (tokens, end) in enumerate(zip(scored, ends, strict=True)):
            others = slice(end - len(tokens) + 1, end)
            logs += [opened[0][number], *followed[0][others]]
            greedy += [opened[1][number], *followed[1][others]]
        return _by_span([members for _, members in batch], logs, greedy)

    def _members(self, family: Family) -> int:
        """How many of a family are read at once behind its context."""
        longest = max(map(len, _rests(family)), default=0)
        return min(self._most, self._reader.plan.rows(longest, len(family[0])))

    def _family_room(self, first: Family, start: int) -> Takes[Family]:
        """Room for families beside the first, whose context is the longest: their contexts, and all that follows."""
        plan, width = self._reader.plan, len(first[0])
        most_families = plan.rows(width - start, start)
        families = rests = longest = 0

        def takes(family: Family) -> bool:
            nonlocal families, rests, longest
            sizes = [len(rest) for rest in _rests(family)]
            families, rests, longest = families + 1, rests + len(sizes), max([longest, *sizes])
            return families <= most_families and rests <= min(self._most, plan.rows(longest, width))

        takes(first)
        return takes


def _by_span(
    rows: Sequence[Sequence[Span]], logs: Sequence[float], greedy: Sequence[bool]
) -> list[list[tuple[Span, Scored]]]:
    """The likelihood of each span, of those of its tokens, which stand in the order of the spans."""
    at = 0
    scored = []
    for members in rows:
        pairs = []
        for span in members:
            some = slice(at, at + len(span.scored))
            pairs.append((span, Scored(math.fsum(logs[some]), all(greedy[some]), len(span.scored))))
            at = some.stop
        scored.append(pairs)
    return scored


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


def _worth_sharing(family: Family, start: int) -> bool:
    """Whether to read what follows the prefix in a family's context by itself: if that spares enough tokens.

    A tenth of all, too: rows that go on from a context are read with a mask, and so more slowly.
    """
    context, members = family
    rows = {span.read for span in members}
    spared = (len(context) - start) * (len(rows) - 1)
    return spared >= WORTH and 10 * spared >= sum(len(row) - start for row in rows)


def _rests(family: Family) -> Iterator[Tokens]:
    """What is read after the context, each once; nothing for a choice of one token."""
    return iter(dict.fromkeys(span.scored[:-1] for span in family[1] if len(span.scored) > 1))


def _width(batch: Sequence[Family]) -> int:
    return max(len(read) for read, _ in batch)
