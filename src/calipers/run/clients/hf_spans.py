"""Texts to be scored, as tokens: where the context ends, what is cut off, which windows a long text falls into.

The definitions are those of lm-evaluation-harness' ``hf`` model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from calipers.errors import ClientError
from calipers.run.clients.hf_checkpoint import Checkpoint
from calipers.run.clients.hf_template import Template
from calipers.run.likelihood import Continuation, Rolling

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
        said = f"the continuation has {len(scored)} tokens and the model reads {checkpoint.longest}"
        raise ClientError(said, kind="context")
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
        raise ClientError("the context is a chat, and no chat template is asked for", kind="prompt", hopeless=True)
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
    if checkpoint.prefix is None:
        raise ClientError("the model has no token for the beginning of a text", kind="prompt")
    return checkpoint.prefix
