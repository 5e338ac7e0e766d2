"""EvSys' benchmarks through Harbor: tasks written, a job configured, its verdicts given from this process."""

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
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import zip_longest
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from types import NoneType
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from calipers.errors import HarborError, InputError
from calipers.formats.rewards import USAGE, Trajectory, TrajectoryGroup, Turn
from calipers.rollouts.column import Column
from calipers.rollouts.ledger import ERROR_KIND
from calipers.rollouts.record import CODE, UNSTATED
from calipers.rollouts.table import Labels, Part, Places
from calipers.systems.harbor.read import OUTCOME_OF, read_groups
from calipers.systems.harbor.trials.engine import CALLING, CHAT, ROOM, find_engine, run_job
from calipers.systems.harbor.wire import failure_cause
from calipers.tasks.jsonl import HarborTask

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
"""Runs a job from its configuration and returns its directory or its trials, at once or awaited."""

JOB: Final = "expected the directory of a job, or an object with trial_results, the list of its trials"


class FactoryConfig(dict[str, Any]):
    """A job's configuration for a factory: Harbor's keys, as attributes too, and ``tasks``, as Harbor's object has."""

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
    tasks: Sequence[HarborTask], judges: Sequence[Callable[[str], float]], factory: JobFactory | None, **settings: Any
) -> tuple[Path | Part, list[str], list[TrajectoryGroup]]:
    """Run a benchmark's tasks as a job of Harbor's: the job, what each task is called in it, and each task's survivors.

    The job is its directory, or its rollouts where a factory gave trials and not a directory. HarborError when there is
    no Harbor, or it leaves no finished job; then nothing, or only the tasks, is written.
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
        made = run(FactoryConfig(config, [folder.absolute() / name for name in names]) if factory else config)
        job = await made if inspect.isawaitable(made) else made
    if not isinstance(job, (str, os.PathLike)):
        part, groups = harvest_trials(job, tasks, names, request)
        return part, names, groups
    if not Path(job).is_dir():
        raise HarborError(f"the job factory returned {str(job)!r}; {JOB}")
    return Path(job), names, read_groups(job, names)


def _check_factory(factory: Any) -> None:
    if factory is None:
        return
    try:
        inspect.signature(factory).bind({})
    except ValueError:
        return  # one written in C, which tells nothing of its parameters
    except TypeError:
        right = "expected a function that takes the job's configuration"
        raise HarborError(f"_job_factory is {_shown(factory)}; {right}") from None


_ABSENT: Final = object()
_USAGE: Final = {  # what a trial's agent_result calls its usage -> what a trajectory does
    "cost_usd": "cost_usd",
    "n_input_tokens": "prompt_tokens",
    "n_output_tokens": "completion_tokens",
    "n_cache_tokens": "cached_tokens",
}


class HarvestedTrial(NamedTuple):
    """What a trial that a factory gave came to."""

    trajectory: Trajectory | None  # None: it did not survive
    outcome: int  # a code of OUTCOMES
    exception: str | None = None


class UnknownTrial(UserWarning):
    """A trial of a task that the benchmark does not have."""


def harvest_trials(
    job: Any, tasks: Sequence[HarborTask], names: Sequence[str], request: HarborRequest
) -> tuple[Part, list[TrajectoryGroup]]:
    """The rollouts of a job that a factory gave as an object, and each task's survivors, in the order given.

    A trial survives as in EvSys: no exception is recorded, and there is a turn of tokens or a verdict. Every task has
    as many rollouts as were asked for: one without a trial is missing.
    """
    trials = _field(job, "trial_results", _ABSENT)
    if trials is _ABSENT or not isinstance(trials, (list, tuple, NoneType)):
        given = _shown(job) if trials is _ABSENT else f"trial_results that are {_shown(trials)}"
        raise HarborError(f"the job factory returned {given}; {JOB}")
    index = {_plain(str(task.task_id)): number for number, task in reversed(list(enumerate(tasks)))}
    index |= {name: number for number, name in enumerate(names)}
    ended: list[list[HarvestedTrial]] = [[] for _ in tasks]
    for number, trial in enumerate(trials or ()):
        where = f"trial_results[{number}]"
        name = _field(trial, "task_name", _ABSENT)
        if not isinstance(name, str):
            given = "missing" if name is _ABSENT else _shown(name)
            raise HarborError(f"{where}.task_name is {given}; expected the name of a task's directory, as {names[0]!r}")
        if name in index:
            ended[index[name]].append(_ended(where, trial))
        else:
            unknown = f"{where} is of {name!r}, which is not a task of the benchmark, and is excluded"
            warnings.warn(f"{unknown}; expected one of {', '.join(names[:5])}", UnknownTrial, stacklevel=2)
    missing = HarvestedTrial(None, UNSTATED)
    groups = [
        TrajectoryGroup([trial.trajectory for trial in of_task if trial.trajectory], _tags(task))
        for task, of_task in zip(tasks, ended, strict=True)
    ]
    whole = [[*of_task, *[missing] * (request.samples - len(of_task))] for of_task in ended]
    return _as_part(whole, names, request.model_name), groups


def _tags(task: HarborTask) -> list[str]:
    tags = task.metadata.get("tags")
    return list(tags) if isinstance(tags, (list, tuple)) else []


def _plain(task_id: str) -> str:
    """EvSys' name of a task's directory, which keeps letters of every script."""
    return "".join(sign if sign.isalnum() or sign in "-_" else "_" for sign in task_id)


def _as_part(ended: Sequence[Sequence[HarvestedTrial]], names: Sequence[str], model: str) -> Part:
    """Trials as rollouts, numbered within their tasks as they were given."""
    rows = [trial for of_task in ended for trial in of_task]
    survivors = [row.trajectory for row in rows]
    survived = [trajectory is not None for trajectory in survivors]
    usage = [trajectory.metadata["usage"] if trajectory else {} for trajectory in survivors]
    columns = {ours: [used.get(theirs) for used in usage] for theirs, ours in USAGE.items()}
    kinds = list(dict.fromkeys(row.exception for row in rows if row.exception))
    codes = [kinds.index(row.exception) if row.exception else -1 for row in rows]
    places = Places("trial_results")
    places.add(0, 0)
    return Part(
        places=places,
        tasks=list(names),
        task=np.repeat(np.arange(len(ended)), [len(of_task) for of_task in ended]),
        sample=np.concatenate([np.arange(len(of_task)) for of_task in ended]),
        attempt=np.ones(len(rows), dtype=np.int64),
        outcome=np.array([row.outcome for row in rows], dtype=np.uint8),
        rewards={"reward": Column.of([trajectory.reward if trajectory else 0.0 for trajectory in survivors], survived)},
        columns={name: _reported(values) for name, values in columns.items() if any(v is not None for v in values)},
        labels={
            "model": Labels(np.zeros(len(rows), dtype=np.int64), [model]),
            ERROR_KIND: Labels(np.array(codes, dtype=np.int64), kinds),
        },
        planned_from="num_samples",
    )


def _reported(values: Sequence[float | None]) -> Column:
    return Column.of([0.0 if value is None else value for value in values], [value is not None for value in values])


def _ended(where: str, trial: Any) -> HarvestedTrial:
    exception = _field(trial, "exception_info")
    if exception:
        kind = str(_field(exception, "exception_type") or type(exception).__name__)
        return HarvestedTrial(None, CODE[OUTCOME_OF.get(failure_cause(kind), "client_failed")], kind)
    turns, verdict = _turns(where, trial), _field(trial, "verifier_result")
    if not turns and verdict is None:
        return HarvestedTrial(None, CODE["not_run"])
    rewards = _field(verdict, "rewards") or {}
    if not isinstance(rewards, Mapping):
        raise HarborError(f"{where}.verifier_result.rewards is {_shown(rewards)}; expected an object of numbers")
    reward = _number(f"{where}.verifier_result.rewards['reward']", rewards.get("reward", 0.0))
    if reward is None:
        raise HarborError(f"{where}.verifier_result.rewards['reward'] is None; expected a number")
    return HarvestedTrial(Trajectory(turns, reward, {"usage": _usage(where, trial, turns)}), CODE["scored"])


def _turns(where: str, trial: Any) -> list[Turn]:
    """The turns of a trial's first chat, in tokens; none where no tokens are recorded, as for models behind an API."""
    details = _field(_field(trial, "agent_result"), "rollout_details")
    if not details:
        return []
    try:
        chat = dict(details[0])
        keys = ("prompt_token_ids", "completion_token_ids", "logprobs")
        prompts, completions, logprobs = ([list(turn) for turn in chat.get(key) or ()] for key in keys)
    except (TypeError, ValueError, KeyError, IndexError):
        right = "expected a list of {prompt_token_ids, completion_token_ids, logprobs}, each a list of lists"
        raise HarborError(f"{where}.agent_result.rollout_details is {_shown(details)}; {right}") from None
    turns = zip_longest(prompts[: len(completions)], completions, logprobs[: len(completions)], fillvalue=())
    return [Turn(list(prompt), list(completion), list(logs)) for prompt, completion, logs in turns]


def _usage(where: str, trial: Any, turns: Sequence[Turn]) -> dict[str, float | None]:
    """What a trial used up; tokens that nobody counted are counted in its turns, and stay unknown without any."""
    spent = _field(trial, "agent_result")
    usage = {ours: _number(f"{where}.agent_result.{key}", _field(spent, key)) for key, ours in _USAGE.items()}
    for name in ("prompt_tokens", "completion_tokens"):
        if usage[name] is None and turns:
            usage[name] = sum(len(getattr(turn, name)) for turn in turns)
    return usage | {"latency_s": _lasted(_field(trial, "agent_execution")) or _lasted(trial)}


def _lasted(phase: Any) -> float | None:
    """Seconds between two moments, which are datetimes or their texts; None where one is not known."""
    moments = [_field(phase, name) for name in ("started_at", "finished_at")]
    try:
        began, ended = (datetime.fromisoformat(moment) if isinstance(moment, str) else moment for moment in moments)
        return float((ended - began).total_seconds())
    except (AttributeError, TypeError, ValueError):
        return None


def _field(thing: Any, name: str, default: Any = None) -> Any:
    """A field of an object, or of its JSON."""
    return thing.get(name, default) if isinstance(thing, Mapping) else getattr(thing, name, default)


def _number(where: str, value: Any) -> float | None:
    if value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise HarborError(f"{where} is {_shown(value)}; expected a number") from None


def _shown(value: Any) -> str:
    text = repr(value)
    if callable(value):
        return f"{getattr(value, '__qualname__', type(value).__name__)}()"
    return text if len(text) <= 60 and " at 0x" not in text else f"an object of type {type(value).__name__}"


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
