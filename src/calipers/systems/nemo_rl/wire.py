"""The rows of NeMo-RL's data files, as far as a score needs them: every value is a list, of one element as a rule."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from calipers.formats.format import Raw
from calipers.formats.lines import NOTHING
from calipers.formats.system_rows import Number


class Message(msgspec.Struct, gc=False):
    """One turn of a conversation."""

    role: str | None = None
    content: Raw = NOTHING


FIELDS: Final[list[tuple[str, Any, Any]]] = [
    ("content", list[list[Message | str] | str | None], msgspec.NODEFAULT),
    ("rewards", list[Number], msgspec.NODEFAULT),
    ("filtered_rewards", list[Number] | None, None),  # of the rows that dynamic sampling kept
]
