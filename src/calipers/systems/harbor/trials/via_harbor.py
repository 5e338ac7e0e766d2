"""Runs EvSys' benchmarks with Harbor: writes the tasks, configures the job, and verifies answers in this process."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import os
import re
import shutil
import warnings
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import zip_longest
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from types import NoneType
from typing import Any, Final, NamedTuple

import msgspec

from calipers.errors import HarborError, InputError
from calipers.formats.rewards import USAGE, Trajectory, TrajectoryGroup, Turn
from calipers.formats.rows import PartBuilder
from calipers.rollouts.ledger import ERROR_KIND
from calipers.rollouts.record import CODE, UNSTATED
from calipers.rollouts.table import Part, Places
from calipers.systems.harbor.read import OUTCOME_OF, USAGE_NAMES, read_groups
from calipers.systems.harbor.trials import CALLING, CHAT, ROOM, find_engine, run_job
from calipers.systems.harbor.wire import failure_cause
from calipers.tasks.jsonl import HarborTask

SPEC: Final = "evsys_verifier.json"
LIMIT: Final = 600.0  # seconds for the agent, and for the verifier
TASK: Final = f"""\
schema_version = "1.4"

[agent]
timeout_sec = {LIMIT}

[verifier]
timeout_sec = {LIMIT}
"""
NEVER_RUN: Final = "#!/bin/sh\n# the verdict is given outside; see {spec}\nexit 1\n"


def write_tasks(tasks: Sequence[HarborTask], folder: Path) -> list[str]:
    """Write each task to its own directory in ``folder``, which is emptied first; returns the directories' names."""
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
    """A distinct directory name for each task id."""
    taken: set[str] = set()
    names = []
    for task_id in ids:
        name = base = re.sub(r"[^0-9A-Za-z_-]", "_", task_id) or "_"
        number = 2
        while name.lower() in taken:  # some file systems do not distinguish a and A
            name, number = f"{base}_{number}", number + 1
        taken.add(name.lower())
        names.append(name)
    return names


LARGEST: Final = 128 << 20  # bytes of a request
NO_TEXT: Final = "the agent wrote no completion"
Judge = Callable[[str], float]


@asynccontextmanager
async def answering(judges: Mapping[str, Judge]) -> AsyncIterator[str]:
    """Serve rewards on a Unix socket while the block runs; yields its path. A request is a task and a completion.

    Only this user can access the socket's folder. Judges are called one at a time in the thread of this event loop, as
    in `Benchmark.score`.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = msgspec.json.decode(await reader.readline())
            writer.write(msgspec.json.encode(_reply(judges, request)) + b"\n")
            await writer.drain()
        except (OSError, ValueError, msgspec.DecodeError):
            pass  # the client is gone, or the request is invalid; without a reply, the client's verification fails
        finally:
            writer.close()

    with TemporaryDirectory(prefix="calipers-") as folder:
        path = str(Path(folder, "verify"))
        server = await asyncio.start_unix_server(serve, path, limit=LARGEST)
        async with server:
            yield path


def _reply(judges: Mapping[str, Judge], request: dict[str, str | None]) -> dict[str, float | str]:
    """The reward of a completion, or an error."""
    task, text = request.get("task"), request.get("completion")
    if text is None:
        return {"error": NO_TEXT}
    try:
        reward = float(judges[task or ""](text))
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"reward": reward} if math.isfinite(reward) else {"error": f"the reward is {reward}"}


NOWHERE: Final = "calipers_harbor.environment:Nowhere"
JobFactory = Callable[[dict[str, Any]], Any]
"""A function, async or not, that runs a job from its configuration and returns its directory or its trials."""

JOB: Final = "expected the directory of a job, or an object with trial_results, the list of its trials"


class FactoryConfig(dict[str, Any]):
    """A job's configuration for a factory: Harbor's keys as items and as attributes, plus ``tasks``."""

    def __init__(self, config: Mapping[str, Any], tasks: Sequence[Path] = ()) -> None:
        super().__init__(config)
        self._tasks = tasks

    def __getattr__(self, name: str) -> Any:
        if name == "tasks":
            return [FactoryConfig({"path": str(path)}) for path in self._tasks]
        if name.startswith("_") or name not in self:
            raise AttributeError(f"the job's configuration has no {name!r}; it has {', '.join(self)}")
        value = self[name]
        if isinstance(value, dict):
            return FactoryConfig(value)
        if isinstance(value, list):
            return [FactoryConfig(item) if isinstance(item, dict) else item for item in value]
        return Path(value) if name in ("jobs_dir", "path") else value


@dataclass(frozen=True, slots=True)
class HarborRequest:
    """The settings for running a benchmark with Harbor."""

    model_name: str
    model_client: str
    workspace: Path
    samples: int
    sampling: Mapping[str, Any]  # max_tokens, temperature, system_prompt
    concurrent: int
    retries: int
    agent: str | None  # the import path of an agent for Harbor, instead of the chat agent


async def harvest(
    tasks: Sequence[HarborTask], judges: Sequence[Callable[[str], float]], factory: JobFactory | None, **settings: Any
) -> tuple[Path | Part, list[str], list[TrajectoryGroup]]:
    """Run a benchmark's tasks as a Harbor job; returns the job, the tasks' names in it, and their surviving rollouts.

    The job is its directory, or its rollouts if a factory returned trials. HarborError if Harbor is not installed or
    does not finish the job; then no files are written, or only those of the tasks.
    """
    request = HarborRequest(**settings)
    if request.samples < 1:
        raise InputError(f"num_samples is {request.samples}; expected at least 1")
    _check_factory(factory)
    run = factory or partial(run_job, find_engine())
    if request.model_client == "tinker" and request.agent is None and factory is None:
        raise HarborError(
            "Harbor's Python has no tinker, which a checkpoint needs; "
            "give agent_import_path, your own agent that has it, or model_client='litellm'"
        )
    folder = request.workspace / "tasks"
    names = write_tasks(tasks, folder)
    async with answering(dict(zip(names, judges, strict=True))) as socket:
        config = _config(request, socket)
        returned = run(FactoryConfig(config, [folder.absolute() / name for name in names]) if factory else config)
        job = await returned if inspect.isawaitable(returned) else returned
    if not isinstance(job, (str, os.PathLike)):
        part, groups = harvest_trials(job, tasks, names, request)
        return part, names, groups
    if not Path(job).is_dir():
        raise HarborError(f"the job factory returned {str(job)!r}; {JOB}")
    return Path(job), names, read_groups(job, names)


def _check_factory(factory: Any) -> None:
    """HarborError unless a factory can be called with the job's configuration."""
    if factory is None:
        return
    try:
        inspect.signature(factory).bind({})
    except ValueError:
        return  # a function in C has no signature
    except TypeError:
        expected = "expected a function that takes the job's configuration"
        raise HarborError(f"_job_factory is {_shown(factory)}; {expected}") from None


_ABSENT: Final = object()


class HarvestedTrial(NamedTuple):
    """The result of a trial that a factory returned."""

    trajectory: Trajectory | None  # None for a trial that did not survive
    outcome: int  # a code of OUTCOMES
    exception: str | None = None


class UnknownTrial(UserWarning):
    """A trial of an unknown task, which is excluded."""


def harvest_trials(
    job: Any, tasks: Sequence[HarborTask], names: Sequence[str], request: HarborRequest
) -> tuple[Part, list[TrajectoryGroup]]:
    """The rollouts of a job that a factory returned as an object, and the trajectories of each task's survivors.

    A trial survives, as in EvSys, if it has no exception and has a turn of tokens or a verdict. Every task has the
    requested number of rollouts; those without a trial are missing.
    """
    trials = _field(job, "trial_results", _ABSENT)
    if trials is _ABSENT or not isinstance(trials, (list, tuple, NoneType)):
        value = _shown(job) if trials is _ABSENT else f"trial_results that are {_shown(trials)}"
        raise HarborError(f"the job factory returned {value}; {JOB}")
    index = {_plain(str(task.task_id)): number for number, task in reversed(list(enumerate(tasks)))}
    index |= {name: number for number, name in enumerate(names)}
    by_task: list[list[HarvestedTrial]] = [[] for _ in tasks]
    for number, trial in enumerate(trials or ()):
        location = f"trial_results[{number}]"
        name = _field(trial, "task_name", _ABSENT)
        if not isinstance(name, str):
            value = "missing" if name is _ABSENT else _shown(name)
            expected = f"expected the name of a task's directory, as {names[0]!r}"
            raise HarborError(f"{location}.task_name is {value}; {expected}")
        if name in index:
            by_task[index[name]].append(_harvested(location, trial))
        else:
            unknown = f"{location} is of {name!r}, which is not a task of the benchmark, and is excluded"
            warnings.warn(f"{unknown}; expected one of {', '.join(names[:5])}", UnknownTrial, stacklevel=2)
    missing = HarvestedTrial(None, UNSTATED)
    groups = [
        TrajectoryGroup([trial.trajectory for trial in of_task if trial.trajectory], _tags(task))
        for task, of_task in zip(tasks, by_task, strict=True)
    ]
    filled = [[*of_task, *[missing] * (request.samples - len(of_task))] for of_task in by_task]
    return _as_part(filled, names, request.model_name), groups


def _tags(task: HarborTask) -> list[str]:
    tags = task.metadata.get("tags")
    return list(tags) if isinstance(tags, (list, tuple)) else []


def _plain(task_id: str) -> str:
    """EvSys' name for a task's directory, which keeps the letters of all scripts."""
    return "".join(sign if sign.isalnum() or sign in "-_" else "_" for sign in task_id)


def _as_part(by_task: Sequence[Sequence[HarvestedTrial]], names: Sequence[str], model: str) -> Part:
    """The trials of each task as rollouts, numbered within their tasks in the order given."""
    rows = [trial for of_task in by_task for trial in of_task]
    usage = [row.trajectory.metadata["usage"] if row.trajectory else {} for row in rows]
    builder = PartBuilder()
    builder.tasks([name for name, of_task in zip(names, by_task, strict=True) for _ in of_task])
    builder.whole("sample", [sample for of_task in by_task for sample in range(len(of_task))])
    builder.whole("outcome", [row.outcome for row in rows])
    builder.numbers("reward", "reward", [row.trajectory.reward if row.trajectory else None for row in rows])
    for theirs, ours in USAGE.items():
        builder.numbers("column", ours, [used.get(theirs) for used in usage])
    builder.labels("model", [model] * len(rows))
    builder.labels(ERROR_KIND, [row.exception for row in rows])
    builder.rows = len(rows)
    places = Places("trial_results")
    places.add(0, 0)
    return replace(builder.finish(places), planned_from="num_samples")


def _harvested(location: str, trial: Any) -> HarvestedTrial:
    """The result of a trial; HarborError, with its location, if it is invalid."""
    exception = _field(trial, "exception_info")
    if exception:
        kind = str(_field(exception, "exception_type") or type(exception).__name__)
        return HarvestedTrial(None, CODE[OUTCOME_OF.get(failure_cause(kind), "client_failed")], kind)
    turns, verdict = _turns(location, trial), _field(trial, "verifier_result")
    if not turns and verdict is None:
        return HarvestedTrial(None, CODE["not_run"])
    rewards = _field(verdict, "rewards") or {}
    if not isinstance(rewards, Mapping):
        raise HarborError(f"{location}.verifier_result.rewards is {_shown(rewards)}; expected an object of numbers")
    reward = _number(f"{location}.verifier_result.rewards['reward']", rewards.get("reward", 0.0))
    if reward is None:
        raise HarborError(f"{location}.verifier_result.rewards['reward'] is None; expected a number")
    return HarvestedTrial(Trajectory(turns, reward, {"usage": _usage(location, trial, turns)}), CODE["scored"])


def _turns(location: str, trial: Any) -> list[Turn]:
    """The turns of a trial's first chat, in tokens; none if no tokens are recorded, as for models behind an API."""
    details = _field(_field(trial, "agent_result"), "rollout_details")
    if not details:
        return []
    try:
        chat = dict(details[0])
        keys = ("prompt_token_ids", "completion_token_ids", "logprobs")
        prompts, completions, logprobs = ([list(turn) for turn in chat.get(key) or ()] for key in keys)
    except (TypeError, ValueError, KeyError, IndexError):
        expected = "expected a list of {prompt_token_ids, completion_token_ids, logprobs}, each a list of lists"
        raise HarborError(f"{location}.agent_result.rollout_details is {_shown(details)}; {expected}") from None
    turns = zip_longest(prompts[: len(completions)], completions, logprobs[: len(completions)], fillvalue=())
    return [Turn(list(prompt), list(completion), list(logs)) for prompt, completion, logs in turns]


def _usage(location: str, trial: Any, turns: Sequence[Turn]) -> dict[str, float | None]:
    """A trial's usage; token counts that are not reported are those of its turns, and None without turns."""
    agent_result = _field(trial, "agent_result")
    usage = {
        name: _number(f"{location}.agent_result.{key}", _field(agent_result, key)) for key, name in USAGE_NAMES.items()
    }
    for name in ("prompt_tokens", "completion_tokens"):
        if usage[name] is None and turns:
            usage[name] = sum(len(getattr(turn, name)) for turn in turns)
    return usage | {"latency_s": _duration(_field(trial, "agent_execution")) or _duration(trial)}


def _duration(phase: Any) -> float | None:
    """The seconds between the start and the end, which are datetimes or texts; None if one is unknown."""
    times = [_field(phase, name) for name in ("started_at", "finished_at")]
    try:
        start, end = (datetime.fromisoformat(time) if isinstance(time, str) else time for time in times)
        return float((end - start).total_seconds())
    except (AttributeError, TypeError, ValueError):
        return None


def _field(thing: Any, name: str, default: Any = None) -> Any:
    """A field of an object or of a mapping."""
    return thing.get(name, default) if isinstance(thing, Mapping) else getattr(thing, name, default)


def _number(location: str, value: Any) -> float | None:
    if value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise HarborError(f"{location} is {_shown(value)}; expected a number") from None


def _shown(value: Any) -> str:
    """A value as a short text for an error."""
    text = repr(value)
    if callable(value):
        return f"{getattr(value, '__qualname__', type(value).__name__)}()"
    return text if len(text) <= 60 and " at 0x" not in text else f"an object of type {type(value).__name__}"


def _config(request: HarborRequest, socket: str) -> dict[str, Any]:
    """The job's configuration for Harbor."""
    agent: dict[str, Any] = {"import_path": request.agent or CHAT, "model_name": request.model_name}
    if request.agent is None:  # EvSys passes no settings to a custom agent
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
