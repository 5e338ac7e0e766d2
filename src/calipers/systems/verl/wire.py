"""The rows of verl's generation files, as far as a score needs them."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from calipers.formats.format import Raw
from calipers.formats.lines import ABSENT, NOTHING
from calipers.formats.system_rows import Number


class VerlText(msgspec.Struct, gc=False):
    """A row, as far as it says something."""

    input: Raw = NOTHING
    output: Raw = NOTHING
    gts: Raw = NOTHING


FIELDS: Final[list[tuple[str, Any, Any]]] = [
    ("input", Raw, NOTHING),
    ("output", Raw, NOTHING),
    ("gts", Raw, NOTHING),
    ("score", Number | str, ABSENT),
    ("step", int | None, ABSENT),
    ("uid", str | None, ABSENT),
    ("request_id", str | None, ABSENT),
]
"""Every other key is one of ``reward_extra_info``: a reward where it has numbers."""
