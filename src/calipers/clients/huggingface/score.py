"""Log-likelihoods of texts under a checkpoint; shared prefixes are computed only once.

::

    prefix ── context ─┬─ choice a         input   context and choice, without the last token
                       ├─ choice b         scored  the choice's tokens, each given the tokens before it
                       └─ choice c

Spans with the same input, such as choices of one token, share a row. If it saves enough, the context of several spans
is computed once, and each span continues from its key-value cache. The common beginning of several contexts is a
prefix, which is computed before them.
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
    """Tokens to score, at least one, and their context, at least one token."""

    context: Tokens
    scored: Tokens

    @property
    def read(self) -> Tokens:
        """The model's input: the last token is only scored."""
        return self.context + self.scored[:-1]


Encoded = Mapping[tuple[str, bool], list[int]]
"""The tokens of texts, by (text, whether it is whole); an absent text is encoded when it is needed."""


def encoded(checkpoint: Checkpoint, texts: Iterable[Continuation | Rolling]) -> Encoded:
    """The tokens of all texts that `spans` will need, except for chats."""
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
    """The spans of a text: one for a continuation, one per window for a whole text, none for an empty whole text.

    The ``template`` is applied to a context that is a chat.
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
    kept = (context + scored)[-(checkpoint.longest + 1) :]  # a context that is too long is cut at its beginning
    return [Span(tuple(kept[: -len(scored)]), tuple(scored))]


def windows(tokens: Sequence[int], prefix: int, longest: int) -> Iterator[Span]:
    """The windows of a long text, each of at most ``longest`` input tokens; each token is scored once.

    The first window begins with the prefix token, and each later full window with the last token of the window before
    it. The last window, which usually has fewer tokens to score, begins further back.

    >>> [(span.context, span.scored) for span in windows([1, 2, 3, 4, 5], 0, longest=3)]
    [((0,), (1, 2, 3)), ((2, 3), (4, 5))]
    """
    scored_so_far = min(longest, len(tokens))
    yield Span((prefix,), tuple(tokens[:scored_so_far]))
    while scored_so_far < len(tokens):
        end = min(scored_so_far + longest, len(tokens))
        yield Span(tuple(tokens[end - longest - 1 : scored_so_far]), tuple(tokens[scored_so_far:end]))
        scored_so_far = end


def _before(checkpoint: Checkpoint, request: Continuation, template: Template | None) -> str:
    if isinstance(request.context, str):
        return request.context
    if template is None:
        raise ClientError("the context is a chat, but --apply-chat-template is not set", kind="prompt", hopeless=True)
    return template.around(checkpoint.tokenizer, request.context)


def _pair(
    checkpoint: Checkpoint, encode: Callable[[str, bool], list[int]], context: str, continuation: str
) -> tuple[list[int], list[int]]:
    """The tokens of context and continuation, which are encoded together, as in the texts of the model's training."""
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
Family = tuple[Tokens, Sequence[Span]]  # common input tokens, and the spans that have them in common

WORTH = 32  # minimum tokens saved by computing a family's context by itself, which takes a second call


def scores(
    checkpoint: Checkpoint,
    cache: PrefixCache,
    calls: Sequence[Texts],
    bounds: BatchBounds,
    template: Template | None = None,
) -> list[list[Scored] | ClientError]:
    """The likelihoods of the texts of each call; the error of a call that fails is in its place."""
    spans_of_calls: list[list[list[Span]] | ClientError] = []
    known = encoded(checkpoint, (text for call in calls for text in call))
    for call in calls:
        try:
            spans_of_calls.append([spans(checkpoint, text, template, known) for text in call])
        except ClientError as error:
            spans_of_calls.append(error)
    wanted = [span for call in spans_of_calls if not isinstance(call, ClientError) for text in call for span in text]
    likelihoods = Scorer(checkpoint, cache, bounds).find(wanted)
    return [
        call if isinstance(call, ClientError) else [_joined(text, likelihoods) for text in call]
        for call in spans_of_calls
    ]


def _joined(text: Sequence[Span], likelihoods: Found) -> Scored:
    parts = [likelihoods[span] for span in text]
    return Scored(
        math.fsum(part.logprob for part in parts),
        all(part.greedy for part in parts),
        sum(part.tokens for part in parts),
    )


class Scorer:
    """Scores spans in batches, one prefix after the other: first families with a shared context, then other spans."""

    def __init__(self, checkpoint: Checkpoint, cache: PrefixCache, bounds: BatchBounds) -> None:
        self._checkpoint, self._cache, self._reader = checkpoint, cache, ForwardPass(checkpoint, bounds)
        self._most = bounds.most if checkpoint.shares else 1
        self._on_one_device = bounds.plan.devices == 1

    def find(self, wanted: Sequence[Span]) -> Found:
        """The likelihood of each span; equal spans are scored once.

        Spans are sorted, so that the batches do not depend on the order of the calls.
        """
        families: dict[Tokens, list[Span]] = {}
        for span in sorted({*wanted}, key=lambda span: (span.context, span.scored)):
            families.setdefault(span.context, []).append(span)
        batches: list[list[tuple[Span, Scored]]] = []
        for prefix, contexts in self._cache.branches(list(families)):
            batches += self._after_prefix(prefix, [(context, families[context]) for context in contexts])
        return dict(pair for pairs in batches for pair in pairs)

    def _after_prefix(self, prefix: Tokens, families: Sequence[Family]) -> list[list[tuple[Span, Scored]]]:
        """Score the spans of all families with a prefix."""
        start = len(prefix)
        shared = [family for family in families if self._checkpoint.shares and _worth_sharing(family, start)]
        shared_contexts = {context for context, _ in shared}
        rows = _grouped(span for context, members in families if context not in shared_contexts for span in members)
        return in_batches(
            [piece for family in _longest_first(shared) for piece in _pieces(family, self._members(family))],
            self._most,
            lambda first: self._family_fits(first, start),
            lambda batch: self._families(prefix, batch),
        ) + in_batches(
            _longest_first(rows),
            self._most,
            lambda first: self._row_fits(first, start),
            lambda batch: self._rows(prefix, batch),
        )

    def _row_fits(self, first: Family, start: int) -> Takes[Family]:
        """Accept as many rows as fit into a batch with the first row, which is the longest."""
        plan = self._reader.plan
        left = iter(range(plan.rows(len(first[0]) - start, start) - 1))
        return lambda _: next(left, None) is not None

    def _rows(self, prefix: Tokens, batch: Sequence[Family]) -> list[list[tuple[Span, Scored]]]:
        """Score the spans of a batch of rows. Rows are padded at the end, where no wanted token attends."""
        start, width = len(prefix), _width(batch)
        padded = [[*read[start:], *[self._checkpoint.pads] * (width - len(read))] for read, _ in batch]
        wanted = WantedTokens()
        for row, (_, members) in enumerate(batch):
            for span in members:
                wanted.add(row, len(span.context) - 1 - start, span.scored)
        memory = self._cache.memory(prefix, len(batch), self._reader)
        likely, _ = self._reader(padded, wanted, memory=memory, use_cache=memory is not None)
        return _by_span([members for _, members in batch], *likely)

    def _families(self, prefix: Tokens, batch: Sequence[Family]) -> list[list[tuple[Span, Scored]]]:
        """Score the spans of a batch of families: each context is computed once, then each remainder after it."""
        import torch

        start, width = len(prefix), _width(batch)
        before = torch.tensor([width - len(context) for context, _ in batch])
        padded = [[self._checkpoint.pads] * (width - len(context)) + list(context[start:]) for context, _ in batch]
        column = torch.arange(width)
        given = ((column < start) | (column >= start + before[:, None])).long()
        remainders = [(index, remainder) for index, family in enumerate(batch) for remainder in _remainders(family)]
        row_of = {key: row for row, key in enumerate(remainders)}
        opening, following = WantedTokens(), WantedTokens()
        for index, (_, members) in enumerate(batch):
            for span in members:
                opening.add(index, width - start - 1, span.scored[:1])
                if remainder := span.scored[:-1]:
                    following.add(row_of[index, remainder], 0, span.scored[1:])
        opened, memory = self._reader(
            padded,
            opening,
            memory=self._cache.memory(prefix, len(batch), self._reader),
            attention_mask=given,
            position_ids=(given.cumsum(1) - 1).clamp(min=0)[:, start:],
            use_cache=True,
        )
        scored = [span.scored for _, members in batch for span in members]
        followed: Likelihoods = [], []
        if remainders:
            owner = torch.tensor([index for index, _ in remainders])
            length = max(len(remainder) for _, remainder in remainders)
            memory.batch_select_indices(owner.to(memory.layers[0].keys.device) if self._on_one_device else owner)
            followed, _ = self._reader(
                [[*remainder, *[self._checkpoint.pads] * (length - len(remainder))] for _, remainder in remainders],
                following,
                memory=memory,
                attention_mask=torch.cat([given[owner], torch.ones(len(remainders), length, dtype=given.dtype)], 1),
                position_ids=torch.tensor([[len(batch[index][0])] for index, _ in remainders]) + torch.arange(length),
                use_cache=True,
            )
        logs: list[float] = []
        greedy: list[bool] = []
        ends = accumulate(len(tokens) - 1 for tokens in scored)
        for number, (tokens, end) in enumerate(zip(scored, ends, strict=True)):
            following_tokens = slice(end - len(tokens) + 1, end)
            logs += [opened[0][number], *followed[0][following_tokens]]
            greedy += [opened[1][number], *followed[1][following_tokens]]
        return _by_span([members for _, members in batch], logs, greedy)

    def _members(self, family: Family) -> int:
        """The maximum number of a family's spans that are computed in one batch after its context."""
        longest = max(map(len, _remainders(family)), default=0)
        return min(self._most, self._reader.plan.rows(longest, len(family[0])))

    def _family_fits(self, first: Family, start: int) -> Takes[Family]:
        """Accept families into a batch while their contexts and remainders fit; the first context is the longest."""
        plan, width = self._reader.plan, len(first[0])
        most_families = plan.rows(width - start, start)
        families = remainders = longest = 0

        def takes(family: Family) -> bool:
            nonlocal families, remainders, longest
            sizes = [len(remainder) for remainder in _remainders(family)]
            families, remainders, longest = families + 1, remainders + len(sizes), max([longest, *sizes])
            return families <= most_families and remainders <= min(self._most, plan.rows(longest, width))

        takes(first)
        return takes


def _by_span(
    rows: Sequence[Sequence[Span]], logs: Sequence[float], greedy: Sequence[bool]
) -> list[list[tuple[Span, Scored]]]:
    """The likelihood of each span from those of its tokens, which are in the order of the spans."""
    start = 0
    scored = []
    for members in rows:
        pairs = []
        for span in members:
            span_tokens = slice(start, start + len(span.scored))
            pairs.append((span, Scored(math.fsum(logs[span_tokens]), all(greedy[span_tokens]), len(span.scored))))
            start = span_tokens.stop
        scored.append(pairs)
    return scored


def _grouped(wanted: Iterable[Span]) -> list[Family]:
    """Spans grouped by the model's input for them."""
    groups: dict[Tokens, list[Span]] = {}
    for span in wanted:
        groups.setdefault(span.read, []).append(span)
    return list(groups.items())


def _longest_first(families: Iterable[Family]) -> list[Family]:
    """Families sorted by the length of their input, so that similar lengths share a batch.

    The longest come first, so that memory runs out in the first batch, if at all.
    """
    return sorted(families, key=lambda family: -len(family[0]))


def _pieces(family: Family, most: int) -> Iterator[Family]:
    """Split a family into families of at most ``most`` spans."""
    context, members = family
    for start in range(0, len(members), most):
        yield context, members[start : start + most]


def _worth_sharing(family: Family, start: int) -> bool:
    """Whether to compute a family's context (after the prefix) by itself, because that saves enough tokens.

    It must also save a tenth of all tokens, because rows that continue a context need a mask, which is slower.
    """
    context, members = family
    rows = {span.read for span in members}
    saved = (len(context) - start) * (len(rows) - 1)
    return saved >= WORTH and 10 * saved >= sum(len(row) - start for row in rows)


def _remainders(family: Family) -> Iterator[Tokens]:
    """The distinct inputs after the context; none for a span of one token."""
    return iter(dict.fromkeys(span.scored[:-1] for span in family[1] if len(span.scored) > 1))


def _width(batch: Sequence[Family]) -> int:
    return max(len(read) for read, _ in batch)
