"""EvSys' prediction rows: native records under other keys, usage among the metadata, a step while a model trains.

A benchmark's rollouts become such rows, and are handed to a store of EvSys'.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from calipers.formats import BAD, Beginning, Columns, Extras, Format, Text
from calipers.formats.jsonl import JsonLines, of_blocks, texts
from calipers.formats.lines import Block, read_lines
from calipers.formats.repeated_keys import twice
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
"""What a prediction row calls the roles of a record."""

USAGE: Mapping[str, str] = {
    "latency_s": "latency_s",
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
}
"""Keys of a prediction row's metadata that are usage, and what we call them."""

_ROW = msgspec.json.Decoder(dict[str, msgspec.Raw])
_USAGE: Final = ("latency_s", "prompt_tokens", "completion_tokens")
_PASSED_ON: Final = ("eval_id", "task_id", "instruction", "expected", "reward", "step")


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
    if not added:
        return line
    if any(name in row and bytes(row[name]) == b"null" for name in added) and twice(line) is None:
        return msgspec.json.encode({**row, **added})
    return line.rstrip()[:-1] + b"," + msgspec.json.encode(added)[1:]  # as it was, so that a key twice is still seen


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
    """A row for each rollout that survived, task by task, numbered within its task; usage is among the metadata."""
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
                    "metadata": {**task.metadata, **{key: usage.get(key) for key in _USAGE}},
                }
            )
    return rows


def check_sink(store: Any) -> None:
    """WrongType for a store that takes no prediction rows."""
    if not any(callable(getattr(store, name, None)) for name in ("log_predictions", "add_prediction")):
        right = "expected an object with log_predictions(run_id, rows), or with add_prediction(run_id=, kind=, ...)"
        raise WrongType(f"the store is a {type(store).__name__} that does not accept predictions; {right}")


def upload_eval_rollouts(store: Any, run_id: str | None, predictions: Sequence[Mapping[str, Any]]) -> None:
    """Hand prediction rows to a store: all at once where it has ``log_predictions``, else one by one.

    Nothing is done without a store, a run or rows.
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
            **{key: row.get(key) for key in _PASSED_ON},
        )
