"""Rollouts made by hand, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from calipers.formats.jsonl import JsonLines
from calipers.rollouts.column import Column, Groups
from calipers.rollouts.table import Rollouts, assemble

GAP = None


def rewards(*tasks: Sequence[float | None]) -> tuple[Column, Groups]:
    """The rewards of some tasks, GAP where there is none, and the partition into tasks."""
    flat = [reward for task in tasks for reward in task]
    column = Column.of([0.0 if reward is GAP else reward for reward in flat], [reward is not GAP for reward in flat])
    code = np.repeat(np.arange(len(tasks)), [len(task) for task in tasks])
    return column, Groups.of(code, len(tasks))


def rollouts(*records: dict[str, Any], labels: Sequence[str] = ()) -> Rollouts:
    """A table of native records."""
    import json

    reader = JsonLines("made.jsonl", {}, labels)
    reader.read("".join(json.dumps(record) + "\n" for record in records).encode())
    return assemble([reader.finish()])
