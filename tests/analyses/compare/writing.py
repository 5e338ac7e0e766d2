"""Runs written to files, for comparisons."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np


def put(path: Path, *rows: Mapping[str, Any]) -> str:
    """A file with a record a line; its path."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def run(path: Path, tasks: Mapping[str, Sequence[float | None]], **same: Any) -> str:
    """A file of rewards by task and sample; ``same`` stands in every record."""
    return put(
        path,
        *(
            {"task": task, "sample": sample, "reward": reward, **same}
            for task, rewards in tasks.items()
            for sample, reward in enumerate(rewards)
        ),
    )


def drawn(rng: np.random.Generator, tasks: int, samples: int, shift: float = 0.0) -> list[list[float]]:
    """Passes and fails of tasks whose chances differ, all raised by ``shift``."""
    chances = np.clip(rng.uniform(0.1, 0.8, tasks) + shift, 0, 1)
    return (rng.random((tasks, samples)) < chances[:, None]).astype(float).tolist()


def pair_of(
    rng: np.random.Generator, tasks: int, samples: int, shift: float
) -> tuple[list[list[float]], list[list[float]]]:
    """Two runs on the same tasks, of which the second passes more often by ``shift``."""
    chances = rng.uniform(0.1, 0.8, tasks)[:, None]
    first, second = ((rng.random((tasks, samples)) < chances + by).astype(float).tolist() for by in (0.0, shift))
    return first, second
