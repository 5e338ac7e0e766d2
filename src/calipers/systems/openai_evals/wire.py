"""The lines of a log of OpenAI evals: a spec, events, and a final report."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from calipers.formats.format import Raw
from calipers.formats.lines import NOTHING


class EvalSpec(msgspec.Struct, gc=False):
    """What was evaluated."""

    completion_fns: list[Any] | None = None
    eval_name: str | None = None
    run_id: str | None = None


class Match(msgspec.Struct, gc=False):
    """A verdict on a completion."""

    correct: bool | float | None = None


class TokenCounts(msgspec.Struct, gc=False):
    """The tokens of a completion."""

    prompt_tokens: float | None = None
    completion_tokens: float | None = None


class SamplingEvent(msgspec.Struct, gc=False):
    """A completion."""

    usage: TokenCounts | None = None


class SaidData(msgspec.Struct, gc=False):
    """What a completion says: one text for each that was asked for."""

    prompt: Any = None
    sampled: Any = None


class Failure(msgspec.Struct, gc=False):
    """An error."""

    type: str | None = None


LINE: Final[list[tuple[str, Any, Any]]] = [
    ("spec", EvalSpec | None, None),
    ("final_report", Raw, NOTHING),
    ("sample_id", str | int | None, None),
    ("type", str | None, None),
    ("data", Raw, NOTHING),
]
