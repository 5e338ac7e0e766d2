"""The rows of SkyRL's dumped evaluations, as far as a score needs them."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from calipers.formats.format import Raw
from calipers.formats.lines import ABSENT, NOTHING
from calipers.formats.system_rows import Number


class SkyRLText(msgspec.Struct, gc=False):
    """A row, as far as it says something."""

    input_prompt: Raw = NOTHING
    output_response: Raw = NOTHING
    env_extras: Raw = NOTHING
    data_source: str | None = None


class Scored(msgspec.Struct, gc=False):
    """The score of a row: of the whole response, or of each token."""

    score: Number | list[float | None] = None


FIELDS: Final[list[tuple[str, Any, Any]]] = [
    ("input_prompt", Raw, msgspec.NODEFAULT),
    ("score", Raw, NOTHING),  # as in `Scored`
    ("stop_reason", str | None, ABSENT),
    ("env_class", str | None, ABSENT),
    ("env_extras", Raw, NOTHING),
    ("data_source", str | None, ABSENT),
]
