"""Runs written to files, for comparisons."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np


def put(path: Path, *rows: Mapping[str, Any]) -> str:
    """Write a file with one record per line; return its path."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def run(path: Path, tasks: Mapping[str, Sequence[float | None]], **same: Any) -> str:
    """Write a file of rewards by task and sample; every record also has the keys of ``same``."""
    return put(
        path,
        *(
            {"task": task, "sample": sample, "reward": reward, **same}
            for task, rewards in tasks.items()
            for sample, reward in enumerate(rewards)
        ),
    )


def drawn(rng: np.random.Generator, tasks: int, samples: int, shift: float = 0.0) -> list[list[float]]:
    """Passes and fails of tasks with different pass probabilities, all raised by ``shift``."""
    chances = np.clip(rng.uniform(0.1, 0.8, tasks) + shift, 0, 1)
    return (rng.random((tasks, samples)) < chances[:, None]).astype(float).tolist()


def pair_of(
    rng: np.random.Generator, tasks: int, samples: int, shift: float
) -> tuple[list[list[float]], list[list[float]]]:
    """Two runs on the same tasks, of which the second passes more often by ``shift``."""
    chances = rng.uniform(0.1, 0.8, tasks)[:, None]
    first, second = ((rng.random((tasks, samples)) < chances + by).astype(float).tolist() for by in (0.0, shift))
    return first, second
