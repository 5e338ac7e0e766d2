"""The rows of Every Eval Ever's samples (schema 0.3), as far as a score needs them."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from calipers.formats.format import Raw
from calipers.formats.lines import NOTHING
from calipers.formats.system_rows import Number


class Evaluation(msgspec.Struct, gc=False):
    """The score of a row."""

    score: Number = None
    is_correct: Number = None


class SampleData(msgspec.Struct, gc=False):
    """What says which repeat a row is of; every value is text."""

    epoch: str | int | None = None
    sample: str | int | None = None


class SampleTokens(msgspec.Struct, gc=False):
    """The tokens of a rollout."""

    input_tokens: Number = None
    output_tokens: Number = None
    input_tokens_cache_read: Number = None
    reasoning_tokens: Number = None


class Performance(msgspec.Struct, gc=False):
    """The times of a rollout."""

    latency_ms: Number = None


ROW: Final[list[tuple[str, Any, Any]]] = [
    ("sample_id", str | int, msgspec.NODEFAULT),
    ("evaluation", Evaluation | None, msgspec.NODEFAULT),
    ("model_id", str | None, None),
    ("evaluation_name", str | None, None),
    ("evaluation_result_id", str | None, None),
    ("error", Raw, NOTHING),
    ("metadata", Raw, NOTHING),
    ("token_usage", SampleTokens | None, None),
    ("performance", Performance | None, None),
]
