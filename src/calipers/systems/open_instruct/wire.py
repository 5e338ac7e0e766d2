"""The rows of open-instruct's rollouts, as far as a score needs them; token ids are never decoded."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from calipers.formats.format import Raw
from calipers.formats.lines import ABSENT, NOTHING
from calipers.formats.system_rows import Number

FIELDS: Final[list[tuple[str, Any, Any]]] = [
    ("step", int | None, ABSENT),
    ("prompt_tokens", Raw, msgspec.NODEFAULT),
    ("response_tokens", Raw, NOTHING),
    ("reward", Number, ABSENT),
    ("advantage", Number, ABSENT),
    ("finish_reason", str | None, ABSENT),
    ("dataset", str | list[Any] | None, ABSENT),
    ("ground_truth", Raw, NOTHING),
    ("request_info", Raw, NOTHING),
]
