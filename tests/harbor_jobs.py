"""Helpers that make Harbor's trials and jobs by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from calipers.systems.harbor.wire import Trial, decode_trial


def document(task: str = "t", trial: str = "t__0", **short: Any) -> dict[str, Any]:
    """A trial's result.json from a few values; without ``rewards`` there is no verifier result."""
    model, steps = short.get("model"), short.get("steps")
    return {
        "id": str(uuid5(NAMESPACE_URL, trial)),
        "task_name": task,
        "trial_name": trial,
        "source": short.get("source"),
        "agent_info": {"name": short.get("agent", "a1"), "version": "1", "model_info": model and {"name": model}},
        **_ended(short),
        "started_at": short.get("started_at", "2026-04-02T09:00:00Z"),
        "finished_at": "2026-04-02T09:01:00Z",
        "step_results": None if steps is None else [{"step_name": "s", **_ended(step)} for step in steps],
    }


def made(task: str = "t", trial: str = "t__0", **short: Any) -> Trial:
    """The same trial, decoded."""
    return decode_trial(json.dumps(document(task, trial, **short)).encode(), trial)


def job(folder: Path, *trials: dict[str, Any], config: dict[str, Any] | None = None, **result: Any) -> str:
    """Write a job's directory with these trials, and its result.json if it has values; returns its name."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"job_name": folder.name, **(config or {})}))
    if result:
        (folder / "result.json").write_text(json.dumps({"id": "5a11b0b5-0000-4000-8000-000000000001", **result}))
    for number, short in enumerate(trials):
        one = {"trial": f"{short.get('task', 't')}__{number}", **short}
        place = folder / one["trial"]
        place.mkdir()
        asked = {"task": {"path": one.get("task", "t"), "source": one.get("source")}, "agent": {"name": "a1"}}
        (place / "config.json").write_text(json.dumps({**asked, "trial_name": place.name}))
        if not one.pop("running", False):
            (place / "result.json").write_text(json.dumps(document(**one)))
    return folder.name


def _ended(short: dict[str, Any]) -> dict[str, Any]:
    exception = short.get("exception_type")
    return {
        "agent_result": short.get("agent_result"),
        "verifier_result": {"rewards": short["rewards"]} if "rewards" in short else None,
        "exception_info": exception
        and {"exception_type": exception, "exception_message": "", "exception_traceback": ""},
    }
