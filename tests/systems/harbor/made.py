"""Helpers that write small job directories in Harbor's form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import calipers

GOLDEN = Path(__file__).parents[2] / "golden" / "harbor" / "job_small"
AGENT = {"name": "solver", "model_name": "openai/coder-1"}
NO_REWARD: Mapping[str, float] = {}


def at(second: float) -> str:
    """The time that is ``second`` seconds after nine o'clock."""
    return f"2026-04-02T09:{int(second) // 60:02d}:{second % 60:09.6f}Z"


def phase(start: float, end: float) -> dict[str, str]:
    """The start and end of a part of a trial."""
    return {"started_at": at(start), "finished_at": at(end)}


def asked(task: str, source: str | None = "d") -> dict[str, Any]:
    """The configuration of a trial of a local task."""
    return {"task": {"path": f"data/{task}", "source": source}, "agent": AGENT}


def result(name: str, rewards: Any = None, exception: str | None = None, **more: Any) -> dict[str, Any]:
    """A trial's result; the task is in its name. Without ``rewards`` there is no verifier result."""
    task = name.rpartition("__")[0] or name
    return {
        "id": f"id of {name}",
        "task_name": task,
        "trial_name": name,
        "source": "d",
        "task_checksum": f"sum of {task}",
        "config": asked(task),
        "agent_info": {"name": "solver", "version": "1", "model_info": {"name": "coder-1", "provider": "openai"}},
        "agent_result": {"n_input_tokens": 10, "n_cache_tokens": 4, "n_output_tokens": 2, "cost_usd": 0.5},
        "verifier_result": None if rewards is None else {"rewards": rewards},
        "exception_info": None if exception is None else {"exception_type": exception},
        **phase(0, 30),
        "environment_setup": phase(0, 5),
        "agent_setup": phase(5, 7),
        "agent_execution": phase(7, 27),
        "verifier": phase(27, 29.5),
        "step_results": None,
        **more,
    }


def job(folder: Path, *trials: Mapping[str, Any] | str, locked: Mapping[str, int] | None = None, **about: Any) -> str:
    """Write a job with a trial for each result; a trial given by its name only has started and not ended.

    ``locked`` is the number of planned trials of each task; ``about`` goes into the job's own result.json.
    """
    folder.mkdir(exist_ok=True)
    for trial in trials:
        name = trial if isinstance(trial, str) else trial["trial_name"]
        (folder / name).mkdir(parents=True)
        config = {**asked(name.rpartition("__")[0]), "trial_name": name}
        write(folder / name / "config.json", config)
        if not isinstance(trial, str):
            write(folder / name / "result.json", trial)
    if locked is not None:
        entries = [{"name": task, **asked(task)["task"]} for task, count in locked.items() for _ in range(count)]
        write(folder / "lock.json", {"trials": [{"task": entry, "agent": AGENT} for entry in entries]})
    if about:
        write(folder / "result.json", {"stats": {}, **about})
    return str(folder)


def write(path: Path, value: Any) -> None:
    """Write a JSON file; Python writes NaN as NaN."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def outcomes(path: str) -> dict[str, int]:
    """The outcomes of a job's only group."""
    (group,) = calipers.score(path).groups
    return group.ledger.outcomes
