"""EvSys' benchmarks through Harbor: tasks written, a job configured, its verdicts given from this process."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import re
import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec

from calipers.errors import HarborError, InputError
from calipers.formats.rewards import TrajectoryGroup
from calipers.systems.harbor.texts import read_groups
from calipers.systems.harbor.trials.engine import CALLING, CHAT, ROOM, find_engine, run_job
from calipers.tasks.benchmark_row import HarborTask

SPEC: Final = "evsys_verifier.json"
LIMIT: Final = 600.0  # seconds an agent has
TASK: Final = f"""\
schema_version = "1.4"

[agent]
timeout_sec = {LIMIT}

[verifier]
timeout_sec = {LIMIT}
"""
NEVER_RUN: Final = "#!/bin/sh\n# the verdict is given outside; see {spec}\nexit 1\n"


def write_tasks(tasks: Sequence[HarborTask], folder: Path) -> list[str]:
    """Write each task to a directory of its own in ``folder``, which is emptied first; the directories' names."""
    shutil.rmtree(folder, ignore_errors=True)
    names = _names([str(task.task_id) for task in tasks])
    for task, name in zip(tasks, names, strict=True):
        path = folder / name
        (path / "tests").mkdir(parents=True)
        (path / "environment").mkdir()
        (path / "instruction.md").write_text(str(task.instruction), encoding="utf-8")
        (path / "task.toml").write_text(TASK, encoding="utf-8")
        script = path / "tests" / "test.sh"
        script.write_text(NEVER_RUN.format(spec=SPEC), encoding="utf-8")
        script.chmod(0o755)
        (path / SPEC).write_text(json.dumps(_spec(task), ensure_ascii=False, default=str), encoding="utf-8")
    return names


def _spec(task: HarborTask) -> dict[str, object]:
    verifier = task.verifier
    return {name: getattr(verifier, name, None) for name in ("fn_name", "expected", "params")}


def _names(ids: Sequence[str]) -> list[str]:
    taken: set[str] = set()
    names = []
    for task_id in ids:
        name = base = re.sub(r"[^0-9A-Za-z_-]", "_", task_id) or "_"
        number = 2
        while name.lower() in taken:  # some file systems do not tell a from A
            name, number = f"{base}_{number}", number + 1
        taken.add(name.lower())
        names.append(name)
    return names


LARGEST: Final = 128 << 20  # bytes of a question
NO_TEXT: Final = "the agent wrote no completion"
Judge = Callable[[str], float]


@asynccontextmanager
async def answering(judges: Mapping[str, Judge]) -> AsyncIterator[str]:
    """The path of a socket on which a task's completion is answered with its reward, while the block lasts.

    The folder is its owner's alone, so nobody else on the machine can ask. A judge is called on this event loop's
    thread, one at a time, as `Benchmark.score` does it.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            question = msgspec.json.decode(await reader.readline())
            writer.write(msgspec.json.encode(_answer(judges, question)) + b"\n")
            await writer.drain()
        except (OSError, ValueError, msgspec.DecodeError):
            pass  # whoever asked has gone, or asked nonsense: no answer is a failed verification over there
        finally:
            writer.close()

    with TemporaryDirectory(prefix="calipers-") as folder:
        path = str(Path(folder, "verify"))
        server = await asyncio.start_unix_server(serve, path, limit=LARGEST)
        async with server:
            yield path


def _answer(judges: Mapping[str, Judge], question: dict[str, str | None]) -> dict[str, float | str]:
    task, text = question.get("task"), question.get("completion")
    if text is None:
        return {"error": NO_TEXT}
    try:
        reward = float(judges[task or ""](text))
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"reward": reward} if math.isfinite(reward) else {"error": f"the reward is {reward}"}


NOWHERE: Final = "calipers_harbor.environment:Nowhere"
JobFactory = Callable[[dict[str, Any]], Any]
"""Runs a job from its configuration and returns its directory, at once or awaited."""


@dataclass(frozen=True, slots=True)
class HarborRequest:
    """What a rollout of a benchmark through Harbor is told."""

    model_name: str
    model_client: str
    workspace: Path
    samples: int
    sampling: Mapping[str, Any]  # max_tokens, temperature, system_prompt
    concurrent: int
    retries: int
    agent: str | None  # an import path of Harbor's, instead of the chat agent


async def harvest(
    tasks: Sequence[HarborTask],
    judges: Sequence[Callable[[str], float]],
    factory: JobFactory | None,
    **settings: Any,
) -> tuple[Path, list[TrajectoryGroup]]:
    """Run a benchmark's tasks as a job of Harbor's: its directory, and the trials of each task that survived."""
    job, names = await roll_out(tasks, judges, HarborRequest(**settings), factory)
    return job, read_groups(job, names)


async def roll_out(
    tasks: Sequence[HarborTask],
    judges: Sequence[Callable[[str], float]],
    request: HarborRequest,
    factory: JobFactory | None,
) -> tuple[Path, list[str]]:
    """Run the job: its directory, and what each task is called in it.

    HarborError when there is no Harbor, or it leaves no finished job; then nothing, or only the tasks, is written.
    """
    if request.samples < 1:
        raise InputError(f"num_samples is {request.samples}; expected at least 1")
    run = factory or partial(run_job, find_engine())
    if request.model_client == "tinker" and request.agent is None and factory is None:
        raise HarborError(
            "Harbor's interpreter has no tinker to ask a checkpoint with; "
            "give agent_import_path, an agent of yours that has, or model_client='litellm'"
        )
    names = write_tasks(tasks, request.workspace / "tasks")
    async with answering(dict(zip(names, judges, strict=True))) as socket:
        made = run(_config(request, socket))
        job = Path(await made if inspect.isawaitable(made) else made)
    if not job.is_dir():
        raise HarborError(f"the job factory gave {str(job)!r}; expected the directory of a job")
    return job, names


def _config(request: HarborRequest, socket: str) -> dict[str, Any]:
    """Harbor's own job configuration."""
    agent: dict[str, Any] = {"import_path": request.agent or CHAT, "model_name": request.model_name}
    if request.agent is None:  # EvSys hands a custom agent nothing
        agent |= {"kwargs": {key: value for key, value in request.sampling.items() if value is not None}}
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S")
    return {
        "job_name": f"{now}-{token_hex(3)}",
        "jobs_dir": str(request.workspace.absolute() / "jobs"),
        "n_attempts": request.samples,
        "n_concurrent_trials": request.concurrent,
        "quiet": True,
        "retry": {"max_retries": request.retries},
        "environment": {"import_path": ROOM if request.agent else NOWHERE},
        "verifier": {"import_path": CALLING, "kwargs": {"socket": socket}},
        "agents": [agent],
        "datasets": [{"path": str(request.workspace.absolute() / "tasks")}],
    }
