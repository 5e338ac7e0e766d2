"""EvSys' prediction rows: native records under other keys, usage among the metadata, a step while a model trains."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from calipers.formats.format import BAD, Beginning, Columns, Extras, Format, Text
from calipers.formats.jsonl import JsonLines, of_lines, texts
from calipers.formats.lines import Block, read_lines
from calipers.formats.source import Source
from calipers.rollouts.record import Part

NAMES: Mapping[str, str] = {
    "task": "task_id",
    "sample": "sample_idx",
    "prompt": "instruction",
    "completion": "output",
    "dataset": "eval_id",
}
"""What a prediction row calls the roles of a record."""

USAGE: Mapping[str, str] = {
    "latency_s": "latency_s",
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
}
"""Keys of a prediction row's metadata that are usage, and what we call them."""

_ROW = msgspec.json.Decoder(dict[str, msgspec.Raw])


class PredictionLines(JsonLines):
    """Blocks of prediction rows, of either form, in; one `Part` out."""

    def read(self, block: Block) -> None:
        """Take in one block of whole lines; LineError for the first that is no rollout."""
        super().read(b"\n".join([_record(line) for line in bytes(block).split(b"\n")]))


def lines(path: str, names: Mapping[str, str], labels: Collection[str], start: int | None) -> PredictionLines:
    """A reader of prediction rows, wherever in the file they stand."""
    return PredictionLines(path, {**NAMES, **names}, labels)


def _record(line: bytes) -> bytes:
    """A prediction row with its usage and its step where a record has them; a bad line as it is."""
    try:
        row = _ROW.decode(line)
        raw_metadata = row.get("metadata", msgspec.Raw(b""))
        metadata = _ROW.decode(raw_metadata) if bytes(raw_metadata)[:1] == b"{" else {}
        step = msgspec.json.decode(row["step"]) if "step" in row else None
    except BAD:
        return line
    added: dict[str, Any] = {}
    if _absent(row.get("usage")):
        usage = {name: metadata[key] for key, name in USAGE.items() if key in metadata and _is_number(metadata[key])}
        added = {"usage": usage} if usage else {}
    if step is not None and _absent(row.get("model")):
        added["model"] = f"step {step}"
    return msgspec.json.encode({**row, **added}) if added else line


def _absent(raw: msgspec.Raw | None) -> bool:
    return raw is None or bytes(raw) == b"null"


def _is_number(raw: msgspec.Raw) -> bool:
    return bytes(raw)[:1] in b"-0123456789"


def _is_prediction(start: Beginning) -> bool:
    return start.row is not None and not start.is_record and "task_id" in start.row


def _texts(path: str, columns: Mapping[str, str], wanted: Collection[str]) -> Iterator[Text]:
    return texts(Source(path), {**NAMES, **columns}, wanted)


_read: Callable[..., list[Part]] = partial(read_lines, "calipers.systems.evsys.read:lines")


def _extras(part: Part, columns: Columns) -> Extras:
    return of_lines(part, {**NAMES, **columns})


PREDICTIONS = Format("evsys_predictions", _read, _is_prediction, _texts, extras=_extras)
