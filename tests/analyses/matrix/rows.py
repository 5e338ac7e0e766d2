"""Rows of models on benchmarks, made up from counts."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

OLD, NEW = "Claude-3.5-Sonnet-20240620", "Claude-3.5-Sonnet-20241022"
PARTS = {  # tasks, passed by both, by the old model only, by the new one only: nothing is decided alone
    "leetcode-easy": (101, 96, 1, 3),
    "leetcode-medium": (153, 98, 8, 14),
    "leetcode-hard": (65, 10, 3, 6),
    "atcoder-easy": (133, 122, 3, 6),
    "atcoder-hard": (128, 3, 1, 4),
}


def suite_rows(parts: Mapping[str, tuple[int, int, int, int]] = PARTS) -> list[dict[str, Any]]:
    """Two models on the parts of a benchmark, one sample a task."""
    rows = []
    for dataset, (tasks, both, old, new) in parts.items():
        outcomes = [(1, 1)] * both + [(1, 0)] * old + [(0, 1)] * new
        outcomes += [(0, 0)] * (tasks - len(outcomes))
        random.Random(0).shuffle(outcomes)
        for number, pair in enumerate(outcomes):
            rows += [
                {"dataset": dataset, "task": f"t{number}", "model": model, "reward": float(reward)}
                for model, reward in zip((OLD, NEW), pair, strict=True)
            ]
    return rows


def rows_of(table: Mapping[tuple[str, str], Any], **more: Any) -> list[dict[str, Any]]:
    """Rows for each (benchmark, model) from the rewards of its tasks; None is a task that the model does not have."""
    return [
        {"dataset": dataset, "model": model, "task": f"t{task}", "reward": reward, **more}
        for (dataset, model), rewards in table.items()
        for task, reward in enumerate(rewards)
        if reward is not None
    ]


def share(rate: float, tasks: int = 60, step: int = 7) -> list[float]:
    """Rewards with this share of passes; the order of tasks is the same for all shares."""
    return [float((task * step) % tasks < rate * tasks) for task in range(tasks)]
