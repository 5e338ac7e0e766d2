"""What EvSys writes: rewards as a list of lists, and prediction rows.

Rewards name nothing: tasks and samples are numbered by their place. A prediction row is a native
record under other keys, with its usage among the metadata and, while a model trains, a step.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from calipers.errors import InputError
from calipers.readers.divide import Progress
from calipers.readers.files import BOM, LARGEST_WHOLE, LONGEST_LINE, LongLine, Source, line_blocks
from calipers.readers.frames import shown
from calipers.readers.jsonl import JsonLines, LineError
from calipers.rollouts.column import Column, Ints
from calipers.rollouts.part import Part, Places
from calipers.rollouts.record import UNSTATED

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

_RIGHT = "expected a list with a list of rewards for each task"
_NUMBER = "expected a number of at most 1.8e308 in size, or null"
_REWARDS = msgspec.json.Decoder(list[list[float | bool | None]])
_NUMBERS = (int, float, np.bool_, np.integer, np.floating)
_ROW = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_rewards(source: Source, progress: Progress) -> list[Part]:
    """The rewards in a JSON list of lists: task 0 is the first list, sample 0 its first reward.

    An empty list is a task without rollouts, null a rollout without a reward; NaN and Infinity,
    which Python writes bare, are numbers somebody sent.
    """
    text = source.everything(LARGEST_WHOLE).removeprefix(BOM)
    progress(len(text))
    try:
        rows: Any = _REWARDS.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        rows = _with_constants(text, source.path)
    return [from_rewards(rows, source.path)]


def from_rewards(rows: Sequence[Sequence[float | None]], path: str = "rewards") -> Part:
    """Rewards by task and sample as a `Part`; ``path`` stands in its errors.

    >>> part = from_rewards([[1.0, 0.0], [], [True]])
    >>> part.tasks, part.task.tolist(), part.rewards["reward"].values.tolist()
    (['0', '1', '2'], [0, 0, 2], [1.0, 0.0, 1.0])
    """
    lists = [_list(row, f"task {task}", path) for task, row in enumerate(_list(rows, "it", path))]
    sizes = np.array([len(row) for row in lists], dtype=np.int64)
    flat = [reward for row in lists for reward in row]
    rewards = _numbers(flat, sizes, path)
    task = np.repeat(np.arange(len(lists)), sizes)
    places = Places(path, "reward ")
    places.add(0, 1)
    return Part(
        places=places,
        tasks=[str(number) for number in range(len(lists))],
        task=task,
        sample=np.arange(len(flat)) - (np.cumsum(sizes) - sizes)[task],
        attempt=np.ones(len(flat), dtype=np.int64),
        outcome=np.full(len(flat), UNSTATED, dtype=np.uint8),
        rewards={"reward": rewards} if rewards.given.any() else {},
    )


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
        held = row.get("metadata", msgspec.Raw(b""))
        metadata = _ROW.decode(held) if bytes(held)[:1] == b"{" else {}
        step = msgspec.json.decode(row["step"]) if "step" in row else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return line
    added: dict[str, Any] = {}
    if _absent(row.get("usage")):
        found = {name: metadata[key] for key, name in USAGE.items() if key in metadata and _is_number(metadata[key])}
        added = {"usage": found} if found else {}
    if step is not None and _absent(row.get("model")):
        added["model"] = f"step {step}"
    return msgspec.json.encode({**row, **added}) if added else line


def _absent(raw: msgspec.Raw | None) -> bool:
    return raw is None or bytes(raw) == b"null"


def _is_number(raw: msgspec.Raw) -> bool:
    return bytes(raw)[:1] in b"-0123456789"


def _with_constants(text: bytes, path: str) -> Any:
    """JSON as Python reads it, NaN and Infinity included; InputError for what is no JSON."""
    try:
        return json.loads(text.decode(), parse_float=_or_text(float), parse_int=_or_text(int))
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        raise InputError.at(f"{path}:{line}", "a byte is not UTF-8", "expected UTF-8 text") from None
    except json.JSONDecodeError as error:
        wrong = f"not JSON ({error.msg} at column {error.colno})"
        raise InputError.at(f"{path}:{error.lineno}", wrong, _RIGHT) from None
    except RecursionError:
        raise InputError.at(path, "it is nested too deeply", _RIGHT) from None


def _or_text(number: type[float]) -> Callable[[str], float | str]:
    """A decoder of numbers that leaves one out of range as its text, to be refused where it stands."""

    def decoded(text: str) -> float | str:
        try:
            value = number(text)
            return text if math.isinf(value) else value
        except (OverflowError, ValueError):
            return text

    return decoded


def _list(value: Any, what: str, path: str) -> Sequence[Any]:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        right = f"{_RIGHT}, or one JSON object a line" if isinstance(value, Mapping) else _RIGHT
        raise InputError.at(path, f"{what} is {shown(value)}", right)
    return value if isinstance(value, (list, tuple)) else list(value)


def _numbers(flat: Sequence[Any], sizes: Ints, path: str) -> Column:
    """Rewards as a column; InputError names the task and the sample of one that is no number."""
    given = np.array([reward is not None for reward in flat], dtype=bool)
    if all(issubclass(kind, _NUMBERS) for kind in set(map(type, flat)) - {type(None)}):
        try:
            return Column(np.array([0.0 if reward is None else reward for reward in flat], dtype=np.float64), given)
        except OverflowError:
            pass  # an integer beyond every float
    row = next(row for row, reward in enumerate(flat) if reward is not None and not _fits(reward))
    task = int(np.searchsorted(np.cumsum(sizes), row, side="right"))
    sample = row - int(sizes[:task].sum())
    raise InputError.at(path, f"task {task} sample {sample} is {shown(flat[row])}", _NUMBER)


def _fits(reward: Any) -> bool:
    if not isinstance(reward, _NUMBERS):
        return False
    try:
        float(reward)
    except OverflowError:
        return False
    return True
