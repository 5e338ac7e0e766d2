"""EvSys' prediction rows: native records under other keys, usage among the metadata, a step while a model trains."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from calipers.errors import InputError
from calipers.formats.format import BAD, Beginning, Format, Progress, Text
from calipers.formats.jsonl import JsonLines, texts
from calipers.formats.lines import LineError
from calipers.formats.source import BOM, LONGEST_LINE, LongLine, Source, line_blocks
from calipers.rollouts.part import Part

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


def read_predictions(
    source: Source, names: Mapping[str, str], labels: Collection[str], progress: Progress
) -> list[Part]:
    """The rollouts of a JSON Lines source of prediction rows, of either form."""
    source.head = source.head.removeprefix(BOM)
    reader = JsonLines(source.path, {**NAMES, **names}, labels)
    try:
        for block in line_blocks(source.readinto):
            reader.read(b"\n".join([_record(line) for line in bytes(block).split(b"\n")]))
            progress(len(block))
        return [reader.finish()]
    except LongLine:
        wrong = f"a line is longer than {LONGEST_LINE >> 20} MiB"
        raise InputError.at(f"{source.path}:{reader.lines + 1}", wrong, "expected one rollout a line") from None
    except LineError as error:
        raise error.at(source.path) from None


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


PREDICTIONS = Format("evsys_predictions", read_predictions, _is_prediction, _texts)
