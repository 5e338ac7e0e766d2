"""Helpers for the tests of readers: files, the errors for them, and the values read from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calipers.errors import InputError
from calipers.formats.read import read
from calipers.rollouts.record import GROUP, OUTCOMES, label
from calipers.rollouts.table import Rollouts


def written(folder: Path, content: str | bytes, name: str = "rollouts.jsonl") -> str:
    """The path of a new file with this content."""
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def refused(*paths: str, **asked: Any) -> str:
    """The error for reading these files, without the path, with which it must start."""
    with pytest.raises(InputError) as caught:
        read(paths, **asked)
    text = str(caught.value)
    assert "\n" not in text
    path = next((path for path in paths if text.startswith(f"{path}:")), None)
    assert path, f"{text!r} does not say where"
    return text.removeprefix(path)


def seen(table: Rollouts) -> list[dict[str, Any]]:
    """The values of every rollout of a table, in the table's order, without gaps."""
    rows: list[dict[str, Any]] = []
    lost = np.zeros(len(table), dtype=bool) if table.before_answer is None else table.before_answer
    for row, task in enumerate(table.task.tolist()):
        group = zip(GROUP, table.keys[int(table.owner[task])], strict=True)
        numbers = [*((f"reward {key}", column) for key, column in table.rewards.items()), *table.columns.items()]
        labels = [(f"label {key}", held.values, int(held.code[row])) for key, held in table.labels.items()]
        rows.append(
            {"task": table.tasks[task], "sample": int(table.sample[row]), "outcome": OUTCOMES[table.outcome[row]]}
            | {key: value for key, value in group if value is not None}
            | {key: float(column.values[row]) for key, column in numbers if column.given[row]}
            | ({"lost": "before an answer"} if lost[row] else {})
            | {key: label(values[code]) for key, values, code in labels if code >= 0 and values[code] is not None}
        )
    return rows
