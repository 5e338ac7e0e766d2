"""What a row holds beside numbers, under the keys of a record: for `calipers convert`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from calipers.formats.carried import CARRIED
from calipers.formats.format import Columns, Extras, Raw
from calipers.formats.lines import Block, odd_key
from calipers.formats.reshape import WORTH, reshaping
from calipers.formats.source import Source, blocks_of
from calipers.rollouts.part import Part
from calipers.rollouts.record import ROLES, meant

KEPT: Final = ("prompt", "completion", "answer", "error", "metadata")
"""The roles that hold no number and name no rollout."""

_ROW: Final = msgspec.json.Decoder(dict[str, Raw])


def of_lines(part: Part, names: Columns) -> Extras:
    """Those of records in JSON Lines."""
    return of_blocks(blocks_of(Source(part.places.path)), names)


def of_blocks(blocks: Iterable[Block], names: Columns) -> Extras:
    """Those of records in blocks of whole lines."""
    reshape = reshaping(names)[0]
    for block in blocks:
        data = bytes(block if reshape is None else reshape(block, 0))
        for line in data.split(b"\n"):
            if line.strip():
                yield of_row(_ROW.decode(line), names)


def of_row(row: Mapping[str, Any], names: Columns) -> dict[str, Any]:
    """Those of one record, whose roles have these names."""
    roles, numbers = meant(names), {key for role, key in names.items() if role not in ROLES}
    known: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for key, value in row.items():
        role = roles.get(key)
        if role in KEPT:
            known[role] = value
        elif role is None and key not in numbers and key not in (WORTH, CARRIED):
            others[key] = value
    return placed(known, others)


def placed(known: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Values by role, and other keys beside them; a key that a record cannot have as its own is in its metadata."""
    kept = {key: value for key, value in known.items() if value is not None}
    inside: dict[str, Any] = {}
    for key, value in others.items():
        if key in ROLES or key == CARRIED or not key or odd_key([key]) is not None:
            inside[key] = value
        else:
            kept[key] = value
    if inside:
        metadata = kept.get("metadata") or {}
        metadata = msgspec.json.decode(metadata) if isinstance(metadata, Raw) else metadata
        kept["metadata"] = {**inside, **(metadata if isinstance(metadata, dict) else {})}
    return kept
