"""The reader of open-instruct's rollout files, ``{run}_rollouts_000000.jsonl``.

The model's name is read from ``{run}_metadata.jsonl`` beside them. Token ids are never decoded.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Final

import msgspec

from calipers.formats import Beginning, Format, Raw
from calipers.formats.lines import ABSENT, NOTHING
from calipers.formats.system_rows import STEP, Layout, Number, PromptTasks, RowBlock, beside, read_noted

FIELDS: Final[list[tuple[str, Any, Any]]] = [
    ("step", int | None, None),
    ("prompt_tokens", Raw, msgspec.NODEFAULT),
    ("response_tokens", Raw, NOTHING),
    ("reward", Number, ABSENT),
    ("advantage", Number, ABSENT),
    ("finish_reason", str | None, ABSENT),
    ("dataset", str | list[Any] | None, ABSENT),
    ("ground_truth", Raw, NOTHING),
    ("request_info", Raw, NOTHING),
]
SYSTEM: Final = "open_instruct"
FILTERED: Final = "open-instruct drops groups by active sampling and zero variance before it writes: they are not here"
_SHARD: Final = re.compile(r"([^/\\]*)_rollouts_[0-9]+\.jsonl")


def take(rows: RowBlock) -> None:
    """Add a block of rows; each row is a rollout."""
    builder = rows.builder
    tasks = rows.memory.setdefault("tasks", PromptTasks(tokens=True))
    builder.tasks(tasks.of(rows["prompt_tokens"], rows["ground_truth"]))
    builder.numbers("reward", "reward", rows["reward"])
    builder.numbers("column", "advantage", rows["advantage"])
    for name, key in (("input_tokens", "prompt_tokens"), ("output_tokens", "response_tokens")):
        builder.numbers("column", name, [_length(bytes(raw)) for raw in rows[key]])
    builder.labels(STEP, rows[STEP])
    rows.labelled.update((STEP, "dataset"))
    builder.labels("metadata.dataset", [_dataset_name(dataset) for dataset in rows["dataset"]])
    model = rows.memory.setdefault("model", _model(rows.path))
    if isinstance(model, str):
        rows.constant("model", model)
    rows.metadata(rows["request_info"])


def _length(tokens: bytes) -> int | None:
    """The number of elements in the JSON text of a list of numbers; None if the text is not a list."""
    if tokens[:1] != b"[":
        return None
    return tokens.count(b",") + 1 if tokens.strip(b"[] \t") else 0


def _dataset_name(dataset: Any) -> str | None:
    """The names of a prompt's datasets, joined by commas: a prompt may belong to several."""
    if isinstance(dataset, list):
        return ", ".join(map(str, dataset))
    return dataset if isinstance(dataset, str) else None


def _model(path: str) -> Any:
    shard = _SHARD.search(path)
    return beside(path, f"{shard[1]}_metadata.jsonl").get("model_name") if shard else None


LAYOUT: Final = Layout(SYSTEM, FIELDS, take)


def recognise(start: Beginning) -> bool:
    """Whether the first row has open-instruct's keys: ``prompt_tokens response_tokens reward prompt_idx``."""
    keys = {"prompt_tokens", "response_tokens", "reward", "prompt_idx"}
    return start.row is not None and keys <= start.row.keys()


ROLLOUTS: Final = Format(
    SYSTEM, partial(read_noted, "calipers.systems.open_instruct:LAYOUT", [FILTERED]), recognise, in_folders=True
)
