"""The parts that readers share to compare a system's own numbers with ours: its document, and our numbers.

The functions count every value that the rollouts have, also of a rollout whose outcome is no score, because systems
count these. A system that counts a missing value as 0 says so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from calipers.formats.source import BOM
from calipers.rollouts.checks import Printed
from calipers.rollouts.column import Floats, Ints, total
from calipers.rollouts.table import Part, join_codes

LARGEST: Final = 64 << 20  # bytes of a document with numbers


def printed(text: bytes | str) -> Any:
    """A JSON document whose numbers are `Printed`, except whole ones; None for text that is not JSON.

    NaN is accepted, because Python writes it.
    """
    try:
        return json.loads(text, parse_float=Printed)
    except (ValueError, RecursionError):  # also for an integer of thousands of digits, and bytes that are not UTF-8
        return None


def printed_file(path: str) -> Any:
    """The document of a file, see `printed`; None if the file does not exist, is too large, or is no regular file."""
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > LARGEST:
            return None
        with open(path, "rb") as file:
            return printed(file.read(LARGEST).removeprefix(BOM))
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return None


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


def values_of(parts: Sequence[Part], reward: str) -> Floats:
    """The values of a reward in the parts of one file, without gaps."""
    columns = [part.rewards[reward].kept() for part in parts if reward in part.rewards]
    return np.concatenate(columns) if columns else np.zeros(0)


def pooled_mean(parts: Sequence[Part], reward: str, *, missing_is_zero: bool = False) -> float | None:
    """The mean of a reward over all rollouts of one file that have it, or over all of its rollouts; None without any."""
    values = values_of(parts, reward)
    count = sum(map(len, parts)) if missing_is_zero else len(values)
    return float(total(values)) / count if count else None


def mean_of_task_means(parts: Sequence[Part], reward: str) -> float | None:
    """The mean over tasks of the mean of their values of a reward, in the parts of one file; None without any."""
    having = [part for part in parts if reward in part.rewards]
    if not having:
        return None
    tasks, task = join_codes([part.tasks for part in having], [part.task for part in having])
    given = np.concatenate([part.rewards[reward].given for part in having])
    return mean_by(task[given], values_of(having, reward), len(tasks))


def mean_by(code: Ints, values: Floats, size: int) -> float | None:
    """The mean of the mean of each code; codes without values are left out. None if no code has a value."""
    counts = np.bincount(code, minlength=size)
    sums = np.bincount(code, values, minlength=size)
    means = sums[counts > 0] / counts[counts > 0]
    return float(total(means)) / len(means) if len(means) else None
