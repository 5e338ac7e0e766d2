"""EvSys' benchmarks through Harbor: tasks written, a job configured, its verdicts given from here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

from calipers.errors import InputError
from calipers.run.harbor_answers import answering
from calipers.run.harbor_engine import CALLING, CHAT, ROOM, HarborError, find_engine, run_job
from calipers.tasks.evsys import HarborTask
from calipers.tasks.harbor.written import write_tasks

NOWHERE: Final = "calipers_harbor.environment:Nowhere"
JobFactory = Callable[[dict[str, Any]], Any]
"""Runs a job from its configuration and returns its directory, at once or awaited."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a rollout of a benchmark through Harbor is told."""

    model_name: str
    model_client: str
    workspace: Path
    samples: int
    sampling: Mapping[str, Any]  # max_tokens, temperature, system_prompt
    concurrent: int
    retries: int
    agent: str | None  # an import path of Harbor's, instead of the chat agent


async def roll_out(
    tasks: Sequence[HarborTask], judges: Sequence[Callable[[str], float]], asked: Asked, factory: JobFactory | None
) -> tuple[Path, list[str]]:
    """Run the job: its directory, and what each task is called in it.

    HarborError when there is no Harbor, or it leaves no finished job; then nothing, or only the tasks, is written.
    """
    if asked.samples < 1:
        raise InputError(f"num_samples is {asked.samples}; expected at least 1")
    run = factory or partial(run_job, find_engine())
    if asked.model_client == "tinker" and asked.agent is None and factory is None:
        raise HarborError(
            "Harbor's interpreter has no tinker to ask a checkpoint with; "
            "give agent_import_path, an agent of yours that has, or model_client='litellm'"
        )
    names = write_tasks(tasks, asked.workspace / "tasks")
    async with answering(dict(zip(names, judges, strict=True))) as socket:
        made = run(_config(asked, socket))
        job = Path(await made if inspect.isawaitable(made) else made)
    if not job.is_dir():
        raise HarborError(f"the job factory gave {str(job)!r}; expected the directory of a job")
    return job, names


def _config(asked: Asked, socket: str) -> dict[str, Any]:
    """Harbor's own job configuration."""
    agent: dict[str, Any] = {"import_path": asked.agent or CHAT, "model_name": asked.model_name}
    if asked.agent is None:  # EvSys hands a custom agent nothing
        agent |= {"kwargs": {key: value for key, value in asked.sampling.items() if value is not None}}
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S")
    return {
        "job_name": f"{now}-{token_hex(3)}",
        "jobs_dir": str(asked.workspace.absolute() / "jobs"),
        "n_attempts": asked.samples,
        "n_concurrent_trials": asked.concurrent,
        "quiet": True,
        "retry": {"max_retries": asked.retries},
        "environment": {"import_path": ROOM if asked.agent else NOWHERE},
        "verifier": {"import_path": CALLING, "kwargs": {"socket": socket}},
        "agents": [agent],
        "datasets": [{"path": str(asked.workspace.absolute() / "tasks")}],
    }
