"""NeMo Gym's rollouts for tests, and its statistics by the plainest code there can be."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

from calipers.formats.read import begin

STATISTICS = {
    "mean": statistics.fmean,
    "max": max,
    "min": min,
    "median": statistics.median,
    "std": lambda values: statistics.stdev(values) if len(values) > 1 else 0.0,
}


def row(task: Any, rollout: Any, reward: Any = 1.0, agent: str | None = "a", **more: Any) -> dict[str, Any]:
    """One rollout as the collector writes it."""
    named = {} if agent is None else {"agent_ref": {"name": agent}}
    return {"_ng_task_index": task, "_ng_rollout_index": rollout, **named, "reward": reward, **more}


def put(path: Path, *rows: Any) -> str:
    """A file of rows; a text is a line of its own. Its path."""
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in rows))
    return str(path)


def exported(*paths: str, **asked: Any) -> Any:
    """The metrics file that these files give, decoded."""
    from calipers.systems.nemo_gym.aggregate import entries_of, file_chunks, gym_table

    kept: list[Any] = []
    begin(paths, kept=kept, **asked)
    return json.loads(b"".join(file_chunks(entries_of(gym_table(kept)))))


def plainly(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The pooled and the per-task statistics of rows, field by field, as section by section they are defined."""
    ordered = sorted(rows, key=lambda one: (one["_ng_task_index"], one["_ng_rollout_index"]))
    numbers = [_numbers(one) for one in ordered]
    fields = list(dict.fromkeys(name for one in numbers for name in one))
    tasks: dict[Any, list[dict[str, float]]] = {}
    for one, held in zip(ordered, numbers, strict=True):
        tasks.setdefault(one["_ng_task_index"], []).append(held)
    return {
        "pooled": _described(numbers, fields),
        "tasks": {task: _described(of, fields) for task, of in tasks.items()},
    }


def _numbers(one: dict[str, Any]) -> dict[str, float]:
    usage = (one.get("response") or {}).get("usage") or {}
    seen = {**one, **usage}
    return {
        name: value
        for name, value in seen.items()
        if isinstance(value, (int, float)) and name not in ("_ng_task_index", "_ng_rollout_index")
    }


def _described(rows: list[dict[str, float]], fields: list[str]) -> dict[str, float]:
    found = {}
    for name, statistic in STATISTICS.items():
        for field in fields:
            values = [float(one[field]) for one in rows if field in one and not math.isnan(one[field])]
            if values and (name != "std" or len(values) > 1 or len(rows) == 1):
                found[f"{name}/{field}"] = statistic(values)
    return found
