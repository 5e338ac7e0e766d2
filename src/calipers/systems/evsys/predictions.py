"""EvSys' prediction rows: their reader, and their upload to a store of EvSys.

They are native records with other keys, with the usage in the metadata, and with a step if a model is being trained.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from calipers.formats import BAD, Beginning, Columns, Extras, Format, Text
from calipers.formats.jsonl import JsonLines, of_blocks, texts
from calipers.formats.lines import Block, read_lines
from calipers.formats.repeated_keys import repeated_key
from calipers.formats.rewards import TrajectoryGroup
from calipers.formats.source import Source, blocks_of
from calipers.rollouts.table import Part
from calipers.tasks.jsonl import HarborTask, WrongType

NAMES: Mapping[str, str] = {
    "task": "task_id",
    "sample": "sample_idx",
    "prompt": "instruction",
    "completion": "output",
    "dataset": "eval_id",
}
"""The roles of a record -> the keys of a prediction row."""

USAGE: Mapping[str, str] = {
    "latency_s": "latency_s",
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
}
"""The usage keys in a prediction row's metadata -> Calipers' names."""

_ROW = msgspec.json.Decoder(dict[str, msgspec.Raw])
_UPLOADED: Final = ("eval_id", "task_id", "instruction", "expected", "reward", "step")


class PredictionLines(JsonLines):
    """A reader that takes blocks of prediction rows, and returns one `Part`."""

    def read(self, block: Block) -> None:
        """Add one block of whole lines; LineError for the first line that is not a rollout."""
        super().read(b"\n".join([_record(line) for line in bytes(block).split(b"\n")]))


def lines(path: str, names: Mapping[str, str], labels: Collection[str], start: int | None) -> PredictionLines:
    """A reader of prediction rows that can start at any line of a file."""
    return PredictionLines(path, {**NAMES, **names}, labels)


def _record(line: bytes) -> bytes:
    """A prediction row with its usage and its step under the keys of a record; an invalid line is not changed."""
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
    if not added:
        return line
    if any(name in row and bytes(row[name]) == b"null" for name in added) and repeated_key(line) is None:
        return msgspec.json.encode({**row, **added})
    # keeps the text, so a repeated key is still found
    return line.rstrip()[:-1] + b"," + msgspec.json.encode(added)[1:]


def _absent(raw: msgspec.Raw | None) -> bool:
    return raw is None or bytes(raw) == b"null"


def _is_number(raw: msgspec.Raw) -> bool:
    return bytes(raw)[:1] in b"-0123456789"


def _is_prediction(start: Beginning) -> bool:
    return start.row is not None and not start.is_record and "task_id" in start.row


def _texts(path: str, columns: Mapping[str, str], wanted: Collection[str]) -> Iterator[Text]:
    return texts(blocks_of(Source(path)), {**NAMES, **columns}, wanted)


_read: Callable[..., list[Part]] = partial(read_lines, "calipers.systems.evsys.predictions:lines")


def _extras(part: Part, columns: Columns) -> Extras:
    return of_blocks(blocks_of(Source(part.places.path)), {**NAMES, **columns})


PREDICTIONS = Format("evsys_predictions", _read, _is_prediction, _texts, extras=_extras)


def eval_predictions(
    tasks: Sequence[HarborTask],
    groups: Sequence[TrajectoryGroup],
    *,
    eval_id: str | None = None,
    step: int | None = None,
) -> list[dict[str, Any]]:
    """A prediction row for each successful rollout, numbered within its task; the usage is in the metadata."""
    rows = []
    for task, group in zip(tasks, groups, strict=True):
        for sample, trajectory in enumerate(group.trajectories):
            usage = trajectory.metadata.get("usage") or {}
            rows.append(
                {
                    "kind": "eval",
                    "eval_id": eval_id,
                    "task_id": task.task_id,
                    "sample_idx": sample,
                    "step": step,
                    "instruction": task.instruction,
                    "expected": getattr(task.verifier, "expected", None),
                    "reward": trajectory.reward,
                    "completion_token_ids": trajectory.turns[-1].completion_tokens if trajectory.turns else [],
                    "metadata": {**task.metadata, **{key: usage.get(key) for key in USAGE}},
                }
            )
    return rows


def check_sink(store: Any) -> None:
    """Raise WrongType for a store that does not accept prediction rows."""
    if not any(callable(getattr(store, name, None)) for name in ("log_predictions", "add_prediction")):
        expected = "expected an object with log_predictions(run_id, rows), or with add_prediction(run_id=, kind=, ...)"
        raise WrongType(f"the store is a {type(store).__name__} that does not accept predictions; {expected}")


def upload_eval_rollouts(store: Any, run_id: str | None, predictions: Sequence[Mapping[str, Any]]) -> None:
    """Upload prediction rows to a store: in one call of ``log_predictions``, if it has this method, or else one by one.

    Without a store, a run or rows, nothing is done.
    """
    if not store or not run_id or not predictions:
        return
    check_sink(store)
    if callable(getattr(store, "log_predictions", None)):
        store.log_predictions(run_id, predictions)
        return
    for row in predictions:
        tokens = {"completion_token_ids": row.get("completion_token_ids", [])}
        store.add_prediction(
            run_id=run_id,
            kind=row.get("kind", "eval"),
            sample_idx=row.get("sample_idx", 0),
            metadata={**(row.get("metadata") or {}), **tokens},
            **{key: row.get(key) for key in _UPLOADED},
        )
