"""Runs agents on Harbor's datasets, with Harbor or in our own containers, and scores the results."""

from __future__ import annotations

import asyncio
import glob
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from calipers.clients.address import called, without_keys
from calipers.errors import HarborError, InputError
from calipers.formats.run_folder import IDENTITY
from calipers.pipeline import score_plan
from calipers.reports.result import Result
from calipers.reports.untrusted_text import safe_json
from calipers.request import make_plan
from calipers.running import count_within, limit_of
from calipers.running.folder import ENDPOINT, differences, folder_name
from calipers.running.log import put
from calipers.systems.harbor.dataset import METRIC, is_dataset, read_dataset, select
from calipers.systems.harbor.manifest import DATASET_TOML
from calipers.systems.harbor.metric_script import check_ready, requested_scripts
from calipers.systems.harbor.registry import REGISTRY, is_spec, resolve
from calipers.systems.harbor.task import TaskDirectory
from calipers.systems.harbor.trials import (
    CHAT,
    ROOM,
    Engine,
    Progress,
    find_engine,
    finished,
    read_config,
    read_json,
    refusals,
    run_job,
)
from calipers.systems.harbor.trials.agents import find_agent, unsolved
from calipers.systems.harbor.trials.environment import (
    AUTO,
    COMMAND,
    DOCKER,
    PODMAN,
    ROOMS,
    check_environment,
    check_name,
    check_podman,
    declined,
    declined_by_docker,
    environment_plan,
    examples,
    job_configs,
    remove_leftovers,
    settle_environment,
    to_build,
    unbuilt,
)
from calipers.systems.harbor.trials.job import (
    ContainerJob,
    Retry,
    TaskTrials,
    keep_identity,
    locked,
    run_here,
    write_declined,
)

SAMPLING: Final = ("max_tokens", "temperature", "system_prompt")
SCORING: Final = (
    *("metrics", "by", "cluster", "dialect", "missing", "reward", "threshold"),
    *("confidence", "seed", "interval"),
)
RUNNING: Final = ("agent", "samples", "limit", "concurrency", "retries", "registry", "environment", "base_url", "out")
OPTIONS: Final = ("model", "trust", *SAMPLING, *SCORING, *RUNNING)
ENVIRONMENTS: Final = "auto, room, or one of Harbor's"
RUNS: Final = "runs"
CONCURRENT: Final = 4
DATASET: Final = "dataset"
DECLINED: Final = "declined"
ORACLE: Final = "oracle"
CHAT_AGENT: Final = "chat"
ELSEWHERE: Final = "--environment docker runs it with Harbor"
NAMED: Final = 5  # tasks that a note lists by name
KINDS: Final = ("it needs the image", "it is for ", "it works as user", "it collects from the service")
"""The beginnings of reasons that are grouped; the text after them is about a single task."""


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """A dataset, the agent to run on it, and the number of samples."""

    benchmark: str
    agent: str = ORACLE
    model: str | None = None
    samples: int = 1
    limit: float | None = None  # the number of tasks, or a fraction of them below 1
    concurrency: int = CONCURRENT
    retries: int = 0
    registry: str | None = None
    environment: str = AUTO  # or room, or one of Harbor's: docker, or module:Class
    base_url: str | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)  # for the chat agent
    out: Path | None = None


@dataclass(frozen=True, slots=True)
class Performed:
    """A finished run: the folder of its jobs, and notes for the user."""

    folder: Path
    notes: Sequence[str]
    environment: str  # a line with its name and the reason
    left_out: int = 0  # tasks with errors, and tasks that cannot run here


@dataclass(frozen=True, slots=True)
class ChosenTasks:
    """The tasks of a run, and their settings for Harbor."""

    name: str
    tasks: Sequence[TaskDirectory]
    settings: Mapping[str, Any]
    path: Path  # of its metric, if it has one


@dataclass(frozen=True, slots=True)
class AgentReport:
    """The result of one run: one dataset and one model."""

    result: Result
    folder: str
    environment: str  # a line with the name of the trials' environment and the reason
    complete: bool  # whether no planned trial is missing


class AgentRuns:
    """The functions that `calipers run` calls for runs of agents."""

    @staticmethod
    def wanted(benchmarks: Sequence[str], given: Mapping[str, Any]) -> bool:
        """Whether a run is a run of agents: it names an agent, or all its benchmarks are datasets for agents."""
        if given.get("agent") is not None:
            return True
        return bool(benchmarks) and all(is_agents(name, given.get("registry")) for name in benchmarks)

    @staticmethod
    def run(
        benchmarks: Sequence[str],
        given: Mapping[str, Any],
        watched: Callable[[], AbstractContextManager[Progress]],
        tell: Callable[[str], None],
    ) -> Iterator[AgentReport]:
        """Run each dataset with each model, score the trials, and store the result in the run's folder."""
        models = given.get("model") or (None,)
        _check(benchmarks, models, given)
        scoring = {name: given[name] for name in SCORING if name in given}
        make_plan(**scoring)  # reports errors before anything runs
        if given.get("trust"):
            check_ready(benchmarks)
        for benchmark in benchmarks:
            for model in models:
                sampling = {name: given[name] for name in SAMPLING if name in given}
                running = {name: given[name] for name in RUNNING if name in given}
                request = AgentRequest(benchmark, model=model, sampling=sampling, **running)
                with watched() as progress:
                    done = perform(request, progress, tell)
                for note in done.notes:  # before the notes of the scoring
                    tell(note)
                folder = str(done.folder)
                scripts = requested_scripts(folder, trust=bool(given.get("trust")), reward=given.get("reward"))
                result = score_plan(folder, make_plan(**scoring, afterwards=scripts))
                put(Path(folder, "result.json"), [safe_json(result.to_json()).encode()])
                gaps = done.left_out > 0 or any(group.ledger.gaps or group.ledger.lacking for group in result.groups)
                yield AgentReport(result, folder, done.environment, not (gaps or result.failed))


def _check(benchmarks: Sequence[str], models: Sequence[str | None], given: Mapping[str, Any]) -> None:
    """InputError for options that a run of agents does not have, or that cannot be combined."""
    for name in given:
        if name not in OPTIONS:
            raise InputError.at(f"--{name.replace('_', '-')}", "is only for models without an agent", "remove it")
    for name, choices in (("agent", "oracle, nop or command:LINE"), ("environment", ENVIRONMENTS)):
        if not given.get(name, choices).strip():  # --agent "$UNSET" must not mean the oracle
            raise InputError.at(f"--{name}", "is empty", f"expected {choices}")
    if given.get("model") and not given.get("agent"):
        message = "has no effect: without --agent the oracle runs the task's own solution"
        raise InputError.at("--model", message, "expected --agent chat, or one of Harbor's agents")
    if given.get("out") and len(models) * len(benchmarks) > 1:
        raise InputError.at("--out", "is one folder, but there are several runs", "expected one dataset and one model")


AGENT_RUNS: Final = AgentRuns()


def is_agents(benchmark: str, registry: str | None = None) -> bool:
    """Whether a benchmark is for agents: a Harbor directory of tasks, or a name in a Harbor registry."""
    return is_dataset(benchmark) or (is_spec(benchmark) and (registry is not None or os.path.isdir(REGISTRY)))


def perform(request: AgentRequest, progress: Progress, tell: Callable[[str], None] = lambda note: None) -> Performed:
    """Run the outstanding trials of a run. InputError or HarborError if none can run.

    ``tell`` is called with notes for the user before the first trial.
    """
    if request.samples < 1:
        raise InputError.at("--samples", f"it is {request.samples}", "expected at least 1")
    for name, value, least in (("--concurrency", request.concurrency, 1), ("--retries", request.retries, 0)):
        if value < least:
            raise InputError.at(name, f"it is {value}", f"expected at least {least}")
    chosen, notes = _tasks(request)
    who = "-".join(part for part in (request.agent.partition(":")[0], request.model) if part)
    request, environment = _with_environment(request, chosen, who)
    engine = _engine(request)
    _check_agent(request, here=engine is None)
    identity = _identity(request, chosen)
    folder, new_run = (request.out, []) if request.out else find_folder(Path(RUNS), chosen.name, who, identity)
    check_folder(folder, identity)
    check_environment(folder, ROOMS if in_containers(request) else request.environment)
    for note in new_run:  # before the first trial, because a new run repeats the cost of the old one
        tell(note)
    why = {task.name: reason for task in chosen.tasks if (reason := _declined(request, task))}
    if in_containers(request):
        why |= _build_images([task for task in chosen.tasks if task.name not in why], request.concurrency, tell)
        environment = "; ".join((environment, *_bases(task for task in chosen.tasks if task.name not in why)))
    left_out = len(notes) + len(why)
    notes = [*alike(notes), *declined_notes(why)]
    able = [task for task in chosen.tasks if task.name not in why]
    unable = [task for task in chosen.tasks if task.name in why]
    if not able:
        raise InputError(f"{request.benchmark}: no task can run here: {notes[-1]}")
    if engine is None:
        settings = (find_agent(request.agent), request.samples, request.concurrency, Retry(max_retries=request.retries))
        run_here(ContainerJob(folder / "1", chosen.name, able, *settings, unable, chosen.path, identity), progress)
    else:
        outstanding = _planned_samples(folder) < request.samples
        if outstanding and request.environment == PODMAN:
            check_podman()
        with locked(folder):
            keep_identity(folder, identity)
            if outstanding:
                refused = _refused(engine, request, able)
                if len(refused) == len(able):
                    raise HarborError(f"Harbor rejects all of {request.benchmark}: {next(iter(refused.values()))}")
                notes += declined_notes({name: f"Harbor rejects it: {reason}" for name, reason in refused.items()})
                left_out += len(refused)
                unable += [task for task in able if task.name in refused]
                able = [task for task in able if task.name not in refused]
            _record_declined(folder, chosen, unable, request)
            tasks = _harbor_tasks(chosen, able, folder, select_names=bool(left_out or request.limit))
            try:
                _run_by_harbor(engine, request, tasks, folder, progress)
            except HarborError as error:
                refused = _refused(engine, request, able)
                by_task = "".join(f"; {name}: {reason}" for name, reason in refused.items())
                raise HarborError(f"{error}{by_task}") from None
            _record_declined(folder, chosen, unable, request)  # again, because finished trials have Harbor's names
    return Performed(folder, notes, environment, left_out=left_out)


def _with_environment(request: AgentRequest, chosen: ChosenTasks, who: str) -> tuple[AgentRequest, str]:
    """The request with the environment that ``auto`` means here, and a line with its name and the reason.

    A resumed run keeps its environment, even if an engine was started or stopped in the meantime.
    """
    check_name(request.environment)
    if request.environment != AUTO:
        return request, f"environment: {request.environment} (as requested)"
    folders = [request.out] if request.out else []
    for name in () if request.out else (ROOMS, DOCKER, PODMAN):
        identity = _identity(replace(request, environment=name), chosen)
        folders.append(find_folder(Path(RUNS), chosen.name, who, identity)[0])
    name, why = settle_environment(request.agent, folders)
    return replace(request, environment=name), f"environment: {name} ({why})"


def _declined(request: AgentRequest, task: TaskDirectory) -> str | None:
    """Why a task is not run, or None."""
    reason = declined(task) if in_containers(request) else None
    if reason:  # no engine can copy a file that does not exist
        return reason if reason.endswith(" does not exist") or declined_by_docker(task) else f"{reason}; {ELSEWHERE}"
    return unsolved(task) if request.agent == ORACLE else None


def _build_images(tasks: Sequence[TaskDirectory], concurrent: int, tell: Callable[[str], None]) -> dict[str, str]:
    """Build the images that tasks need and that do not exist yet; returns why a build failed, by the task's name."""
    missing = [task for task in tasks if to_build(task)]
    if not missing:
        return {}
    tell(f"building the images of {len(missing)} task{'s' * (len(missing) > 1)}, once; this can take minutes")
    with ThreadPoolExecutor(concurrent, thread_name_prefix="image") as pool:
        reasons = pool.map(unbuilt, missing)
        why = {task.name: reason for task, reason in zip(missing, reasons, strict=True) if reason}
    return {name: f"{reason}; {ELSEWHERE}" for name, reason in why.items()}


def _bases(tasks: Iterable[TaskDirectory]) -> list[str]:
    """The replacements of the base images of tasks, each once."""
    plans = (environment_plan(task).image for task in tasks)
    return list(dict.fromkeys(plan.base.words for plan in plans if plan))


def declined_notes(why: Mapping[str, str]) -> list[str]:
    """A note for each kind of reason, with the tasks that do not run."""
    return alike([f"{name}: not run: {reason}" for name, reason in why.items()])


def alike(notes: Sequence[str]) -> list[str]:
    """One note per kind: the first in full, with the number and names of tasks that have the same reason.

    >>> alike(["a: not run: it needs the image x:1", "b: not run: it needs the image y", "c: is no task"])
    ['a: not run: it needs the image x:1; 1 more task for the same reason: b', 'c: is no task']
    """
    kinds: dict[str, list[str]] = {}
    for note in notes:
        kinds.setdefault(_kind(note), []).append(note)
    return [_with_others(first, [other.partition(": ")[0] for other in others]) for first, *others in kinds.values()]


def _kind(note: str) -> str:
    """A note without the parts that differ between tasks: its name, paths, quoted values and numbers."""
    reason = note.partition(": ")[2]
    for start in KINDS:
        if start in reason:
            return start
    return re.sub(r"'[^']*'|\"[^\"]*\"|\S*/\S*|\d+", "_", reason)


def _with_others(first: str, others: Sequence[str]) -> str:
    if not others:
        return first
    count = f"{len(others)} more task{'s' * (len(others) > 1)}"
    return f"{first}; {count} for the same reason: {examples(others, NAMED)}"


def _identity(request: AgentRequest, chosen: ChosenTasks) -> dict[str, Any]:
    """The identity of a run of agents: agent, model, environment, dataset, sampling settings and endpoint."""
    endpoint = agent_endpoint(request.agent, request.model, request.base_url if request.agent == CHAT_AGENT else None)
    return {
        "agent": request.agent,
        "model": request.model,
        "environment": request.environment,
        "dataset": chosen.settings,
        "sampling": dict(request.sampling),
        **({} if endpoint is None else {ENDPOINT: endpoint}),
    }


def _refused(engine: Engine, request: AgentRequest, tasks: Sequence[TaskDirectory]) -> dict[str, str]:
    """The tasks that Harbor would reject, which would stop the whole job, and why."""
    settings = {"agent": _agent(request), "environment": _environment(request)}
    names = {str(task.path.absolute()): task.name for task in tasks}
    return {names[path]: reason for path, reason in refusals(engine, settings, list(names)).items() if path in names}


def _tasks(request: AgentRequest) -> tuple[ChosenTasks, list[str]]:
    """The tasks of the requested benchmark, and notes on tasks with errors."""
    if is_dataset(request.benchmark):
        dataset = read_dataset(request.benchmark)
        tasks, faults = _without_errors(dataset.tasks)
        faults = [*dataset.faults, *faults]
        if not tasks and faults:
            raise InputError(faults[0])
        path = str(Path(request.benchmark).absolute())
        settings: dict[str, Any] = {"path": path}
        name = Path(os.path.abspath(request.benchmark)).name
        chosen, notes = (
            ChosenTasks(name, tasks, settings, Path(path)),
            [f"{fault}; it is excluded" for fault in faults],
        )
    elif is_spec(request.benchmark):
        at = resolve(request.benchmark, request.registry)
        settings = {"name": at.name, "version": at.version, "digest": at.digest}
        chosen, notes = ChosenTasks(at.name, at.tasks, settings, at.path), []
    else:
        expected = "expected a directory of tasks, or org/name[@version] with --registry"
        raise InputError.at(request.benchmark, "is not a dataset for agents", expected)
    if not chosen.tasks:
        raise InputError(f"{request.benchmark}: contains no task")
    limit = limit_of("--limit", request.limit)
    if limit is not None:
        most = count_within(len(chosen.tasks), limit)
        settings = {**chosen.settings, "n_tasks": most if limit < 1 else limit}
        chosen = replace(chosen, tasks=select(chosen.tasks, first=most, name=lambda task: task.name), settings=settings)
    return chosen, notes


def _without_errors(tasks: Sequence[TaskDirectory]) -> tuple[list[TaskDirectory], list[str]]:
    """The tasks without errors in their files, and the errors of the others, such as a link that leads outside."""
    valid, faults = [], []
    for task in tasks:
        try:
            _ = task.digest
            valid.append(task)
        except InputError as error:
            faults.append(str(error))
    return valid, faults


def _engine(request: AgentRequest) -> Engine | None:
    """The Harbor to use; None if the trials run in our own rooms, with an agent of ours."""
    if request.agent.startswith(COMMAND):
        return None
    try:
        return find_engine()
    except HarborError:
        if os.environ.get("CALIPERS_HARBOR") or request.environment != ROOMS:
            raise
        find_agent(request.agent)  # its error names the agents that work without Harbor
        return None


def _check_agent(request: AgentRequest, *, here: bool) -> None:
    """Reject settings that the agent would ignore: a result must not look as if it had used them."""
    if request.agent != CHAT_AGENT and request.sampling:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in request.sampling)
        raise InputError.at("--agent", f"{request.agent!r} does not accept {names}", "expected chat")
    if here and request.model:
        find_agent(request.agent)  # an unknown agent is reported first
        message = f"has no effect: {request.agent.partition(':')[0]} does not use a model"
        raise InputError.at("--model", message, "expected --agent chat, or one of Harbor's agents")


def _harbor_tasks(
    chosen: ChosenTasks, able: Sequence[TaskDirectory], folder: Path, *, select_names: bool
) -> dict[str, Any]:
    """The part of Harbor's configuration that says what to run: a dataset, a single task, or tasks of a registry.

    Harbor names a dataset after its directory, and would download ``org/name``. So the tasks of a registry are listed
    one by one, with the dataset's name as their source.
    """
    if "path" not in chosen.settings:
        copies = _copy_tasks(chosen, folder)
        return {"tasks": [{"path": str(copies / task.path.name), "source": chosen.name} for task in able]}
    settings: dict[str, Any] = {"path": str(chosen.settings["path"])}
    if chosen.path == able[0].path.absolute():
        return {"tasks": [settings]}  # to Harbor, a single task is not a dataset
    if select_names:  # otherwise Harbor would run tasks that were left out
        settings["task_names"] = [glob.escape(task.path.name) for task in able]
    return {"datasets": [settings]}


def _copy_tasks(chosen: ChosenTasks, folder: Path) -> Path:
    """Copy the tasks and the metric of a registry's dataset into one folder, with a config that leads scoring to it."""
    target = (folder / DATASET / chosen.name.rpartition("/")[2]).absolute()
    for task in chosen.tasks:
        shutil.copytree(task.path, target / task.path.name, symlinks=True, dirs_exist_ok=True)
    for name in (METRIC, DATASET_TOML):
        if (chosen.path / name).is_file():
            shutil.copy2(chosen.path / name, target / name)
    put(
        folder / DATASET / "config.json",
        [msgspec.json.encode({"datasets": [{"name": chosen.name, "path": str(target)}]})],
    )
    return target


def _record_declined(folder: Path, chosen: ChosenTasks, unable: Sequence[TaskDirectory], request: AgentRequest) -> None:
    """Write a job with the trials of tasks that cannot run here, so that they are counted as missing.

    Each such task has as many trials as there are samples, less those that a job has planned: a task may have been
    able to run earlier, or become able since.
    """
    samples = max(request.samples, _planned_samples(folder))
    planned = Counter(name for job, _ in _jobs(folder) for name in _locked_tasks(job))
    names = {*(task.name for task in unable), *_locked_tasks(folder / DECLINED)}
    tasks = [task for task in chosen.tasks if task.name in names]
    trials = [task for task in tasks for _ in range(samples - planned[task.name])]
    if trials:
        group = _reported_names(folder) or TaskTrials(request.agent, request.model, chosen.name)
        write_declined(folder / DECLINED, group, trials)


def _locked_tasks(job: Path) -> list[str]:
    """The name of the task of each trial that a job has planned."""
    try:
        return [trial["task"]["name"] for trial in read_json(job / "lock.json")["trials"]]
    except (KeyError, TypeError):
        return []


def _reported_names(folder: Path) -> TaskTrials | None:
    """The agent, model and dataset as the first finished trial of Harbor names them; None if there is no such trial."""
    for path in sorted(folder.glob("[0-9]*/*/result.json")):
        try:
            trial = read_json(path)
            info = trial["agent_info"]
            return TaskTrials(info["name"], (info.get("model_info") or {}).get("name"), trial.get("source"))
        except (KeyError, TypeError, AttributeError):
            continue
    return None


def _jobs(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Harbor's jobs in a run's folder, in order, each with its configuration."""
    jobs = sorted((job for job in folder.glob("[0-9]*") if (job / "config.json").is_file()), key=_number)
    return [(job, read_config(job)) for job in jobs]


def _planned_samples(folder: Path) -> int:
    """The number of samples per task that the jobs in a run's folder have planned together."""
    return sum(int(config.get("n_attempts", 1)) for _, config in _jobs(folder))


def _run_by_harbor(
    engine: Engine, request: AgentRequest, tasks: Mapping[str, Any], folder: Path, progress: Progress
) -> None:
    """Finish the folder's jobs, then run the attempts that no job has planned yet."""
    agent = _agent(request)
    jobs, planned = _jobs(folder), _planned_samples(folder)
    for job, config in jobs:
        if not finished(job):  # Harbor was killed, and could not remove its containers
            remove_leftovers(request.environment, job)
        if forget_cut_off(job) or not finished(job):
            resumed = {**config, "job_name": job.name, "jobs_dir": str(folder.absolute())}
            _run_job(engine, request.environment, resumed, progress)
    if planned >= request.samples:
        return
    config = {
        "job_name": str(_number(jobs[-1][0]) + 1 if jobs else 1),
        "jobs_dir": str(folder.absolute()),
        "n_attempts": request.samples - planned,
        "n_concurrent_trials": request.concurrency,
        "quiet": True,
        "retry": {"max_retries": request.retries},
        "environment": _environment(request),
        "agents": [agent],
        **tasks,
    }
    _run_job(engine, request.environment, config, progress)


NEVER_RAN: Final = ("CancelledError", "ServerNotAskedError")  # exceptions of trials that run again on resuming


def forget_cut_off(job: Path) -> bool:
    """Remove interrupted trials: Harbor would count them as done, or fail on an incomplete file.

    An incomplete result of the job itself is removed too, and Harbor writes it again. True if a trial must run again,
    even if the job counts as finished.
    """
    forgotten = False
    for path in [*job.glob("*/result.json"), *job.glob("*/config.json")]:
        if not path.exists():
            continue  # removed with its trial
        content = read_json(path)
        failed = content.get("exception_info") if isinstance(content, dict) else None
        if content is None or (isinstance(failed, dict) and failed.get("exception_type") in NEVER_RAN):
            shutil.rmtree(path.parent)
            forgotten = True
    result = job / "result.json"
    if result.exists() and read_json(result) is None:
        result.unlink()
    return forgotten


def _run_job(engine: Engine, environment: str, config: Mapping[str, Any], progress: Progress) -> None:
    """Run a job with Harbor; whatever its trials leave in a container engine is removed in any case."""
    try:
        asyncio.run(run_job(engine, config, progress))
    finally:
        remove_leftovers(environment, Path(config["jobs_dir"], config["job_name"]))


def in_containers(request: AgentRequest) -> bool:
    """Whether trials run in our own containers, with or without Harbor."""
    return request.environment == ROOMS or request.agent.startswith(COMMAND)


def _environment(request: AgentRequest) -> dict[str, str]:
    """The environment in Harbor's configuration."""
    name = ROOM if request.environment == ROOMS else request.environment
    return {"import_path" if ":" in name else "type": name}


def _agent(request: AgentRequest) -> dict[str, Any]:
    """The agent in Harbor's configuration; ``chat`` is our own agent."""
    path = CHAT if request.agent == CHAT_AGENT else request.agent
    agent: dict[str, Any] = {"import_path" if ":" in path else "name": path}
    if request.model:
        agent["model_name"] = request.model
    if request.agent == CHAT_AGENT:
        if not request.model:
            raise InputError.at("--agent", "'chat' needs a model", "add --model NAME")
        agent["kwargs"] = {**request.sampling, **({"server": request.base_url} if request.base_url else {})}
    return agent


def _number(job: Path) -> int:
    return int(job.name) if job.name.isdecimal() else 0


def agent_endpoint(agent: str, model: str | None, base_url: str | None) -> str | None:
    """The base URL of an agent's model, without keys; None if it is unknown, or the agent has no model.

    InputError for a URL with a password or a key, because Harbor would write it to disk.
    """
    provider, _, name = (model or "").partition("/")
    if model is None:
        return None
    if base_url:
        address = called(base_url)
        if agent == CHAT_AGENT and "?" in base_url and address.count("=") < base_url.count("="):
            raise InputError.at(
                "--base-url",
                "the URL contains a key, which Harbor would write to its files",
                "remove the key from the URL",
            )
        return address
    if agent == CHAT_AGENT and (provider == "openai" or not name):
        return called(None)
    variables = (f"{(provider if name else 'openai').upper()}_{end}" for end in ("BASE_URL", "API_BASE"))
    url = next((os.environ[variable] for variable in variables if os.environ.get(variable)), None)
    return without_keys(url) if url else None


def find_folder(root: Path, dataset: str, who: str, identity: Mapping[str, Any]) -> tuple[Path, list[str]]:
    """The folder of a run of agents below ``root``, and a note if it is new because another run's endpoint differs."""
    new = root / folder_name(dataset, who, identity)
    if new.exists() or ENDPOINT not in identity:
        return new, []
    others = list(_others(new, root / folder_name(dataset, who, _without_endpoint(identity)), identity))
    for folder, endpoint in others:
        if endpoint == identity[ENDPOINT]:
            return folder, []
    if not others:
        return new, []
    folder, endpoint = others[-1]
    return new, [f"{new}: starting a new run, because {folder} differs ({_difference(endpoint, identity, 'there')})"]


def check_folder(folder: Path, identity: Mapping[str, Any]) -> None:
    """InputError for a folder of a run with another endpoint; a folder without a recorded endpoint is resumed."""
    stored, endpoint = _stored_identity(folder), recorded(folder)
    if endpoint is not None and ENDPOINT in identity and endpoint != identity[ENDPOINT]:
        difference = _difference(endpoint, identity, "here")
        raise InputError.at(str(folder), f"contains a different run: {difference}", "choose another --out")
    if stored is not None and ENDPOINT not in identity and ENDPOINT in stored:
        difference = "; ".join(differences({ENDPOINT: stored[ENDPOINT]}, {}))
        raise InputError.at(str(folder), f"contains a different run: {difference}", "choose another --out")


def recorded(folder: Path) -> str | None:
    """The endpoint in a folder's identity, or else in its jobs; None if it is not recorded."""
    stored = _stored_identity(folder)
    if stored is not None:
        return stored.get(ENDPOINT)
    for config in job_configs(folder):
        try:
            return without_keys(read_json(config)["agents"][0]["kwargs"]["server"])
        except (KeyError, TypeError, IndexError, AttributeError, InputError):
            continue
    return None


def _others(new: Path, old_name: Path, identity: Mapping[str, Any]) -> Iterator[tuple[Path, str | None]]:
    """The folders of runs that differ only in the endpoint, each with its endpoint.

    ``old_name`` is the folder's name in earlier versions of Calipers, where it did not depend on the endpoint.
    """
    if old_name.exists() and _stored_identity(old_name) is None:
        yield old_name, recorded(old_name)
    for path in sorted(new.parent.glob(f"{new.name[:-8]}{'[0-9a-f]' * 8}/{IDENTITY}")):
        stored = _stored_identity(path.parent)
        if stored is None or ENDPOINT not in stored:
            continue
        if not [*differences(_without_endpoint(stored), _without_endpoint(identity))]:
            yield path.parent, stored[ENDPOINT]


def _stored_identity(folder: Path) -> dict[str, Any] | None:
    identity = read_json(folder / IDENTITY)
    return identity if isinstance(identity, dict) else None


def _without_endpoint(identity: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in identity.items() if name != ENDPOINT}


def _difference(endpoint: str | None, identity: Mapping[str, Any], place: str) -> str:
    return f"{ENDPOINT}: {endpoint or 'not recorded'} {place}, {identity[ENDPOINT]} requested"
