"""The parts that readers share to compare a system's own numbers with ours: its document, and our numbers.

The functions count every value that the rollouts have, also of a rollout whose outcome is no score, because systems
count these. A system that counts a missing value as 0 says so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from calipers.formats.source import BOM
from calipers.rollouts.column import Bools, Column, Floats, Ints, total
from calipers.rollouts.table import Part, join_codes

LARGEST: Final = 64 << 20  # bytes of a document with numbers


def document_at(path: str) -> Any:
    """The JSON document in a file, in which NaN may occur, as Python writes it; None if the file has none.

    None also for a file that does not exist, that is too large, or that is no regular file.
    """
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > LARGEST:
            return None
        with open(path, "rb") as file:
            return parsed(file.read(LARGEST).removeprefix(BOM))
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return None


def parsed(text: str | bytes) -> Any:
    """A JSON document, in which NaN may occur, as Python writes it; None for text that is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # also for an integer of thousands of digits, and bytes that are not UTF-8
        return None


def numbers_in(document: Any) -> list[float]:
    """The numbers that are values of an object, which show how its writer rounds; none for anything else."""
    values = document.values() if isinstance(document, dict) else ()
    return [value for value in values if isinstance(value, float)]


def inside(document: Any, *keys: str | int) -> Any:
    """The value at this path of keys in a document; None if there is none.

    >>> inside({"results": [{"score": 1}]}, "results", 0, "score"), inside({"results": 3}, "results", "score")
    (1, None)
    """
    for key in keys:
        if isinstance(key, str):
            document = document.get(key) if isinstance(document, dict) else None
        else:
            document = document[key] if isinstance(document, list) and key < len(document) else None
    return document


def text_inside(document: Any, *keys: str | int) -> str:
    """The text at this path of keys in a document; "" if there is none."""
    value = inside(document, *keys)
    return value if isinstance(value, str) else ""


Where = Mapping[str, str | int | None]
"""Labels of the rollouts to count, such as the dataset; None for rollouts without the label."""
EVERYWHERE: Final[Where] = MappingProxyType({})


def rows_where(part: Part, where: Where) -> Bools:
    """Whether each row of a part has these labels, [R]."""
    rows = np.ones(len(part), dtype=bool)
    for name, value in where.items():
        labels = part.labels.get(name)
        if labels is None:
            rows &= value is None
        elif value is None:
            rows &= labels.code == -1
        else:
            codes = [code for code, known in enumerate(labels.values) if known == value]
            rows &= np.isin(labels.code, codes)
    return rows


def labels_of(parts: Sequence[Part], name: str) -> list[Any]:
    """The distinct values of a label in the parts of one file."""
    values: dict[Any, None] = {}
    for part in parts:
        labels = part.labels.get(name)
        if labels is not None:
            values.update(dict.fromkeys(labels.values[code] for code in np.unique(labels.code).tolist() if code >= 0))
    return list(values)


def pooled_mean(
    parts: Sequence[Part], reward: str, where: Where = EVERYWHERE, *, missing_is_zero: bool = False
) -> float | None:
    """The mean of a reward over the rollouts of one file that have it, or over all of them; None without any."""
    values, _, rollouts = _values(parts, reward, where)
    count = rollouts if missing_is_zero else len(values)
    with np.errstate(over="ignore", invalid="ignore"):  # a sum of huge values is no number, which is not compared
        return float(total(values)) / count if count else None


def mean_of_task_means(parts: Sequence[Part], reward: str, where: Where = EVERYWHERE) -> float | None:
    """The mean over tasks of the mean of their values of a reward, in the parts of one file; None without any."""
    values, task, _ = _values(parts, reward, where)
    if not len(values):
        return None
    counts = np.bincount(task)
    with np.errstate(over="ignore", invalid="ignore"):
        means = np.bincount(task, values)[counts > 0] / counts[counts > 0]
        return float(total(means)) / len(means)


def _values(parts: Sequence[Part], reward: str, where: Where) -> tuple[Floats, Ints, int]:
    """The values of a reward without gaps, [V], the code of the task of each, [V], and the number of rollouts."""
    _, task = join_codes([part.tasks for part in parts], [part.task for part in parts])
    rows = np.concatenate([rows_where(part, where) for part in parts])
    column = Column.joined([part.rewards.get(reward) or Column.gaps(len(part)) for part in parts])
    given = rows & column.given
    return column.values[given], task[given], int(np.count_nonzero(rows))
