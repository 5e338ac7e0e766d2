"""Run an agent on Harbor's datasets: with Harbor if it is installed, else in our own containers."""

from __future__ import annotations

import asyncio
import glob
import os
import re
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, Final

import msgspec

from calipers.clients.address import called, without_keys
from calipers.errors import HarborError, InputError, LogError
from calipers.formats.run_folder import IDENTITY
from calipers.running.folder import ENDPOINT, PRIVATE, differences, folder_name
from calipers.running.job import first, limit_of
from calipers.running.log import mode_in, put
from calipers.systems.harbor.folder import RETRIES
from calipers.systems.harbor.tasks.dataset import METRIC, is_dataset, read_dataset, select
from calipers.systems.harbor.tasks.manifest import DATASET_TOML
from calipers.systems.harbor.tasks.registry import REGISTRY, is_spec, resolve
from calipers.systems.harbor.tasks.task import TaskDirectory
from calipers.systems.harbor.trials.agents import COMMAND, NAMES, ContainerAgent, find_agent, unsolved
from calipers.systems.harbor.trials.engine import (
    CHAT,
    ROOM,
    Engine,
    Progress,
    find_engine,
    finished,
    read_json,
    refusals,
    run_job,
)
from calipers.systems.harbor.trials.environment import (
    AUTO,
    DOCKER,
    HERE,
    PODMAN,
    ROOMS,
    check_environment,
    check_name,
    check_podman,
    remove_leftovers,
    settle_environment,
)
from calipers.systems.harbor.trials.trial import (
    BLAME,
    OpenContainers,
    declined,
    environment_plan,
    now,
    run_trial,
    to_build,
    unbuilt,
)

RUNS: Final = "runs"
CONCURRENT: Final = 4
INTERRUPTED_AFTER: Final = 0.1  # seconds; at most so long after Ctrl-C trials are stopped
DATASET: Final = "dataset"
DECLINED: Final = "declined"
ORACLE: Final = "oracle"
ELSEWHERE: Final = "--environment docker runs it with Harbor"
WRONG: Final = re.compile(r"/environment/Dockerfile:\d+: |, and \S+ does not exist$")  # no engine could build it
NAMED: Final = 5  # tasks that a note lists by name
KINDS: Final = ("it needs the image", "it is for ", "it works as user", "it collects from the service")
"""The common start of reasons of one kind; the rest is about a single task."""


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """A dataset, the agent to run on it, and the number of samples."""

    benchmark: str
    agent: str = "oracle"
    model: str | None = None
    samples: int = 1
    limit: float | None = None  # the number of tasks, or a fraction of them below 1
    concurrent: int = CONCURRENT
    retries: int = 0
    registry: str | None = None
    environment: str = AUTO  # or room, or of Harbor's: docker, or module:Class
    base_url: str | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)  # for the chat agent
    out: Path | None = None


@dataclass(frozen=True, slots=True)
class Performed:
    """The folder of the jobs, and notes for the user."""

    folder: Path
    notes: Sequence[str]
    environment: str  # which, and why
    left_out: int = 0  # tasks with errors, or that cannot run here


@dataclass(frozen=True, slots=True)
class ChosenTasks:
    """The tasks of a run, and their settings for Harbor."""

    name: str
    tasks: Sequence[TaskDirectory]
    settings: Mapping[str, Any]
    path: Path  # of its metric, if it has one


def is_agents(benchmark: str, registry: str | None = None) -> bool:
    """Whether a benchmark is for agents: a Harbor directory of tasks, or a name in a Harbor registry."""
    return is_dataset(benchmark) or (is_spec(benchmark) and (registry is not None or os.path.isdir(REGISTRY)))


def perform(request: AgentRequest, progress: Progress, tell: Callable[[str], None] = lambda note: None) -> Performed:
    """Run the outstanding trials. InputError or HarborError if nothing can run.

    ``tell`` is called with notes for the user before the first trial.
    """
    if request.samples < 1:
        raise InputError.at("--samples", f"it is {request.samples}", "expected at least 1")
    for name, value, least in (("--concurrency", request.concurrent, 1), ("--retries", request.retries, 0)):
        if value < least:
            raise InputError.at(name, f"it is {value}", f"expected at least {least}")
    chosen, notes = _tasks(request)
    who = "-".join(part for part in (request.agent.partition(":")[0], request.model) if part)
    request, environment = _with_environment(request, chosen, who)
    engine = _engine(request)
    _check_agent(request, here=engine is None)
    identity = _identity(request, chosen)
    folder, begins = (request.out, []) if request.out else find_folder(Path(RUNS), chosen.name, who, identity)
    check_folder(folder, identity)
    check_environment(folder, ROOMS if in_containers(request) else request.environment)
    for note in begins:  # before the first trial: a new run repeats the cost of the old one
        tell(note)
    why = {task.name: reason for task in chosen.tasks if (reason := _declined(request, task))}
    if in_containers(request):
        why |= _build_images([task for task in chosen.tasks if task.name not in why], request.concurrent, tell)
        environment = "; ".join((environment, *_bases(task for task in chosen.tasks if task.name not in why)))
    left_out = len(notes) + len(why)
    notes = [*alike(notes), *declined_notes(why)]
    able = [task for task in chosen.tasks if task.name not in why]
    unable = [task for task in chosen.tasks if task.name in why]
    if not able:
        raise InputError(f"{request.benchmark}: no task can run here: {notes[-1]}")
    if engine is None:
        how = (find_agent(request.agent), request.samples, request.concurrent, Retry(max_retries=request.retries))
        run_here(ContainerJob(folder / "1", chosen.name, able, *how, unable, chosen.path), progress)
    else:
        owing = sum(int(config.get("n_attempts", 1)) for _, config in _jobs(folder)) < request.samples
        if owing and request.environment == PODMAN:
            check_podman()
        with locked(folder):
            keep_identity(folder, identity)
            if owing:
                refused = _refused(engine, request, able)
                if len(refused) == len(able):
                    raise HarborError(f"Harbor rejects all of {request.benchmark}: {next(iter(refused.values()))}")
                notes += declined_notes({name: f"Harbor rejects it: {reason}" for name, reason in refused.items()})
                left_out += len(refused)
                unable += [task for task in able if task.name in refused]
                able = [task for task in able if task.name not in refused]
            _count_in(folder, chosen, unable, request)
            some = _harbor_tasks(chosen, able, folder, some=bool(left_out or request.limit))
            try:
                _by_harbor(engine, request, some, folder, progress)
            except HarborError as error:
                refused = _refused(engine, request, able)
                by_task = "".join(f"; {name}: {reason}" for name, reason in refused.items())
                raise HarborError(f"{error}{by_task}") from None
            _count_in(folder, chosen, unable, request)  # by the names that its trials have now
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
    if reason:
        return reason if WRONG.search(reason) else f"{reason}; {ELSEWHERE}"
    return unsolved(task) if request.agent == ORACLE else None


def _build_images(tasks: Sequence[TaskDirectory], concurrent: int, tell: Callable[[str], None]) -> dict[str, str]:
    """Build the images that tasks need and that do not exist yet; returns why a build failed, by the task's name."""
    wanted = [task for task in tasks if to_build(task)]
    if not wanted:
        return {}
    tell(f"building the images of {len(wanted)} task{'s' * (len(wanted) > 1)}, once; this can take minutes")
    with ThreadPoolExecutor(concurrent, thread_name_prefix="image") as pool:
        reasons = pool.map(unbuilt, wanted)
        why = {task.name: reason for task, reason in zip(wanted, reasons, strict=True) if reason}
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
    names = ", ".join(others[:NAMED]) + (", ..." if len(others) > NAMED else "")
    return f"{first}; {len(others)} more task{'s' * (len(others) > 1)} for the same reason: {names}"


def _identity(request: AgentRequest, chosen: ChosenTasks) -> dict[str, Any]:
    """The identity of a run of agents: agent, model, environment, dataset, sampling settings and endpoint."""
    where = agent_endpoint(request.agent, request.model, request.base_url if request.agent == "chat" else None)
    return {
        "agent": request.agent,
        "model": request.model,
        "environment": request.environment,
        "dataset": chosen.settings,
        "sampling": dict(request.sampling),
        **({} if where is None else {ENDPOINT: where}),
    }


def _refused(engine: Engine, request: AgentRequest, tasks: Sequence[TaskDirectory]) -> dict[str, str]:
    """The tasks that Harbor would reject, which would stop the whole job, and why."""
    settings = {"agent": _agent(request), "environment": _environment(request)}
    names = {str(task.path.absolute()): task.name for task in tasks}
    return {names[path]: reason for path, reason in refusals(engine, settings, list(names)).items() if path in names}


def _tasks(request: AgentRequest) -> tuple[ChosenTasks, list[str]]:
    if is_dataset(request.benchmark):
        dataset = read_dataset(request.benchmark)
        tasks, faults = _whole(dataset.tasks)
        faults = [*dataset.faults, *faults]
        if not tasks:
            raise InputError(faults[0] if faults else f"{request.benchmark}: contains no task")
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
        right = "expected a directory of tasks, or org/name[@version] with --registry"
        raise InputError.at(request.benchmark, "is not a dataset for agents", right)
    limit = limit_of("--limit", request.limit)
    if limit is not None:
        most = first(len(chosen.tasks), limit)
        settings = {**chosen.settings, "n_tasks": most if limit < 1 else limit}
        chosen = replace(chosen, tasks=select(chosen.tasks, first=most, name=lambda task: task.name), settings=settings)
    return chosen, notes


def _whole(tasks: Sequence[TaskDirectory]) -> tuple[list[TaskDirectory], list[str]]:
    """The tasks without errors in their files, and the errors of the others, such as a link that leads outside."""
    whole, faults = [], []
    for task in tasks:
        try:
            _ = task.digest
            whole.append(task)
        except InputError as error:
            faults.append(str(error))
    return whole, faults


def _engine(request: AgentRequest) -> Engine | None:
    """The Harbor to use; None if the trials run in our own rooms, with an agent of ours."""
    ours = request.agent in NAMES and request.environment == ROOMS
    if request.agent.startswith(COMMAND):
        return None
    try:
        return find_engine()
    except HarborError:
        if os.environ.get("CALIPERS_HARBOR"):
            raise
        if not ours and request.environment == ROOMS:
            find_agent(request.agent)  # which says what there is without Harbor
        if ours:
            return None
        raise


def _check_agent(request: AgentRequest, *, here: bool) -> None:
    """Reject settings that the agent would ignore: a result must not look as if it had used them."""
    if request.agent != "chat" and request.sampling:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in request.sampling)
        raise InputError.at("--agent", f"{request.agent!r} does not accept {names}", "expected chat")
    if here and request.model:
        find_agent(request.agent)  # one that there is not is the greater mistake
        wrong = f"has no effect: {request.agent.partition(':')[0]} does not use a model"
        raise InputError.at("--model", wrong, "expected --agent chat, or one of Harbor's agents")


def _harbor_tasks(chosen: ChosenTasks, able: Sequence[TaskDirectory], folder: Path, *, some: bool) -> dict[str, Any]:
    """How Harbor is told what to run: a dataset, a task alone, or the tasks of a dataset whose name is no directory's.

    Harbor calls a dataset by its directory, and would look afar for ``org/name``: told of tasks, it takes our word.
    """
    if "path" not in chosen.settings:
        copies = _laid_out(chosen, folder)
        return {"tasks": [{"path": str(copies / task.path.name), "source": chosen.name} for task in able]}
    settings: dict[str, Any] = {"path": str(chosen.settings["path"])}
    if chosen.path == able[0].path.absolute():
        return {"tasks": [settings]}  # a task is no dataset to Harbor
    if some:  # else Harbor would count off others for those left out
        settings["task_names"] = [glob.escape(task.path.name) for task in able]
    return {"datasets": [settings]}


def _laid_out(chosen: ChosenTasks, folder: Path) -> Path:
    """The tasks of a dataset from a registry, side by side, and a word on where its metric is for whoever scores."""
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


def _count_in(folder: Path, chosen: ChosenTasks, unable: Sequence[TaskDirectory], request: AgentRequest) -> None:
    """Put the trials that no room can have into the ledger: as many as there are attempts, less those a job has.

    A task may have been able once, or become so since: its trials that never ran are outstanding.
    """
    jobs = _jobs(folder)
    samples = max(request.samples, sum(int(config.get("n_attempts", 1)) for _, config in jobs))
    known = Counter(name for job, _ in jobs for name in _locked_tasks(job))
    names = {*(task.name for task in unable), *_locked_tasks(folder / DECLINED)}
    owing = [task for task in chosen.tasks if task.name in names]
    trials = [task for task in owing for _ in range(samples - known[task.name])]
    if trials:
        group = _named(folder) or TaskTrials(request.agent, request.model, chosen.name)
        write_declined(folder / DECLINED, group, trials)


def _locked_tasks(job: Path) -> list[str]:
    """The task of each trial that a job has planned."""
    try:
        return [trial["task"]["name"] for trial in read_json(job / "lock.json")["trials"]]
    except (KeyError, TypeError):
        return []


def _named(folder: Path) -> TaskTrials | None:
    """What Harbor calls the agent, the model and the dataset, as its first finished trial says; None before that."""
    for path in sorted(folder.glob("[0-9]*/*/result.json")):
        try:
            trial = read_json(path)
            info = trial["agent_info"]
            return TaskTrials(info["name"], (info.get("model_info") or {}).get("name"), trial.get("source"))
        except (KeyError, TypeError, AttributeError):
            continue
    return None


def _jobs(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Harbor's jobs in a run's folder, in their order, each with its configuration."""
    places = sorted((job for job in folder.glob("[0-9]*") if (job / "config.json").is_file()), key=_number)
    return [(job, msgspec.json.decode((job / "config.json").read_bytes())) for job in places]


def _by_harbor(
    engine: Engine, request: AgentRequest, tasks: Mapping[str, Any], folder: Path, progress: Progress
) -> None:
    """Finish the folder's jobs, then run the attempts that no job has planned yet."""
    agent = _agent(request)
    planned = 0
    jobs = _jobs(folder)
    for job, config in jobs:
        planned += int(config.get("n_attempts", 1))
        if not finished(job):  # Harbor was killed, and could not remove them
            remove_leftovers(request.environment, job)
        if forget_cut_off(job) or not finished(job):
            again = {**config, "job_name": job.name, "jobs_dir": str(folder.absolute())}
            _ask(engine, request.environment, again, progress)
    if planned >= request.samples:
        return
    config = {
        "job_name": str(_number(jobs[-1][0]) + 1 if jobs else 1),
        "jobs_dir": str(folder.absolute()),
        "n_attempts": request.samples - planned,
        "n_concurrent_trials": request.concurrent,
        "quiet": True,
        "retry": {"max_retries": request.retries},
        "environment": _environment(request),
        "agents": [agent],
        **tasks,
    }
    _ask(engine, request.environment, config, progress)


NEVER_RAN: Final = ("CancelledError", "ServerNotAskedError")  # of trials that are run by the same command again


def forget_cut_off(job: Path) -> bool:
    """Make room for trials that were cut off with the job: Harbor would count them as done, or fail over half a file.

    A job's own result that was cut off while it was written is removed: Harbor writes it anew. True if a trial must
    run again, even if the job counts as finished.
    """
    forgotten = False
    for path in [*job.glob("*/result.json"), *job.glob("*/config.json")]:
        if not path.exists():
            continue  # gone with its trial
        content = read_json(path)
        failed = content.get("exception_info") if isinstance(content, dict) else None
        if content is None or (isinstance(failed, dict) and failed.get("exception_type") in NEVER_RAN):
            shutil.rmtree(path.parent)
            forgotten = True
    result = job / "result.json"
    if result.exists() and read_json(result) is None:
        result.unlink()
    return forgotten


def _ask(engine: Engine, environment: str, config: Mapping[str, Any], progress: Progress) -> None:
    """Have Harbor run a job; what its trials leave in a container engine is removed, however it ends."""
    try:
        asyncio.run(run_job(engine, config, progress))
    finally:
        remove_leftovers(environment, Path(config["jobs_dir"], config["job_name"]))


def in_containers(request: AgentRequest) -> bool:
    """Whether trials happen in rooms of ours, whoever runs them."""
    return request.environment == ROOMS or request.agent.startswith(COMMAND)


def _environment(request: AgentRequest) -> dict[str, str]:
    """The environment as Harbor is configured with it."""
    name = ROOM if request.environment == ROOMS else request.environment
    return {"import_path" if ":" in name else "type": name}


def _agent(request: AgentRequest) -> dict[str, Any]:
    """The agent as Harbor is configured with it; ``chat`` is ours."""
    path = CHAT if request.agent == "chat" else request.agent
    agent: dict[str, Any] = {"import_path" if ":" in path else "name": path}
    if request.model:
        agent["model_name"] = request.model
    if request.agent == "chat":
        if not request.model:
            raise InputError.at("--agent", "'chat' needs a model", "add --model NAME")
        agent["kwargs"] = {**request.sampling, **({"server": request.base_url} if request.base_url else {})}
    return agent


def _number(job: Path) -> int:
    return int(job.name) if job.name.isdecimal() else 0


CHAT_AGENT: Final = "chat"
_UNKNOWN: Final = f"{ENDPOINT}: not recorded"


def agent_endpoint(agent: str, model: str | None, base_url: str | None) -> str | None:
    """The base URL that an agent's model is asked at, without keys; None where nobody knows, or no model is asked.

    InputError for a URL with a password or a key: Harbor writes it down.
    """
    provider, _, rest = (model or "").partition("/")
    if model is None:
        return None
    if base_url:
        address = called(base_url)
        if agent == CHAT_AGENT and "?" in base_url and address.count("=") < base_url.count("="):
            raise InputError.at(
                "--base-url",
                ("the URL contains a key, which Harbor would write to its files"),
                "remove the key from the URL",
            )
        return address
    if agent == CHAT_AGENT and (provider == "openai" or not rest):
        return called(None)
    named = (f"{(provider if rest else 'openai').upper()}_{end}" for end in ("BASE_URL", "API_BASE"))
    variable_url = next((os.environ[variable] for variable in named if os.environ.get(variable)), None)
    return without_keys(variable_url) if variable_url else None


def find_folder(root: Path, dataset: str, who: str, identity: Mapping[str, Any]) -> tuple[Path, list[str]]:
    """The folder of a run of agents below ``root``, and why it is a new one where another differs in its endpoint."""
    fresh = root / folder_name(dataset, who, identity)
    if fresh.exists() or ENDPOINT not in identity:
        return fresh, []
    others = list(_others(fresh, root / folder_name(dataset, who, _rest(identity)), identity))
    for folder, there in others:
        if there == identity[ENDPOINT]:
            return folder, []
    if not others:
        return fresh, []
    folder, there = others[-1]
    return fresh, [f"{fresh}: starting a new run, because {folder} differs ({_why_new(there, identity, 'there')})"]


def check_folder(folder: Path, identity: Mapping[str, Any]) -> None:
    """InputError for a folder of a run with another server; a folder without a recorded server is resumed."""
    kept, there = _kept(folder), recorded(folder)
    if there is not None and ENDPOINT in identity and there != identity[ENDPOINT]:
        difference = _why_new(there, identity, "here")
        raise InputError.at(str(folder), f"contains a different run: {difference}", "choose another --out")
    if kept is not None and ENDPOINT not in identity and ENDPOINT in kept:
        difference = "; ".join(differences({ENDPOINT: kept[ENDPOINT]}, {}))
        raise InputError.at(str(folder), f"contains a different run: {difference}", "choose another --out")


def keep_identity(folder: Path, identity: Mapping[str, Any]) -> None:
    """Write down which run a folder is of, once."""
    if not (folder / IDENTITY).exists():
        put(folder / IDENTITY, [msgspec.json.format(msgspec.json.encode(identity), indent=1), b"\n"])


def recorded(folder: Path) -> str | None:
    """The endpoint that a folder's identity names, or else its jobs; None where neither does."""
    kept = _kept(folder)
    if kept is not None:
        return kept.get(ENDPOINT)
    for config in sorted(folder.glob("[0-9]*/config.json")):
        try:
            return without_keys(read_json(config)["agents"][0]["kwargs"]["server"])
        except (KeyError, TypeError, IndexError, AttributeError, InputError):
            continue
    return None


def _others(fresh: Path, earlier: Path, identity: Mapping[str, Any]) -> Iterator[tuple[Path, str | None]]:
    """Folders of runs that differ in nothing but the endpoint, and theirs; that of an earlier version comes first."""
    if earlier.exists() and _kept(earlier) is None:
        yield earlier, recorded(earlier)
    for path in sorted(fresh.parent.glob(f"{fresh.name[:-8]}{'[0-9a-f]' * 8}/{IDENTITY}")):
        kept = _kept(path.parent)
        if kept is not None and ENDPOINT in kept and not [*differences(_rest(kept), _rest(identity))]:
            yield path.parent, kept[ENDPOINT]


def _kept(folder: Path) -> dict[str, Any] | None:
    identity = read_json(folder / IDENTITY)
    return identity if isinstance(identity, dict) else None


def _rest(identity: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in identity.items() if name != ENDPOINT}


def _why_new(there: str | None, identity: Mapping[str, Any], where: str) -> str:
    requested = identity[ENDPOINT]
    return (
        f"{ENDPOINT}: {there} {where}, {requested} requested" if there else f"{_UNKNOWN} {where}, {requested} requested"
    )


HOPELESS: Final = frozenset(
    {
        "AgentAuthenticationError",
        "AgentSafetyRefusalError",
        "AgentTimeoutError",
        "ApiUsageLimitError",
        "ModelNotFoundError",
        "RewardFileEmptyError",
        "RewardFileNotFoundError",
        "UnsupportedModelParametersError",
        "VerifierOutputParseError",
        "VerifierTimeoutError",
    }
)
"""What no second try mends, or what is the trial's own result: not run again unless a job says otherwise."""


@dataclass(frozen=True, slots=True)
class Retry:
    """A job's ``retry`` settings, by their names there."""

    max_retries: int = 0
    include_exceptions: Collection[str] | None = None  # only these; None or none of them: any
    exclude_exceptions: Collection[str] | None = HOPELESS  # never these, included or not
    wait_multiplier: float = 1.0
    min_wait_sec: float = 1.0
    max_wait_sec: float = 60.0

    def worthwhile(self, exception: str | None) -> bool:
        """Whether to retry after an exception, by its class name; never for None.

        Rewards and the number of attempts are not considered: the caller applies ``max_retries``.
        """
        if exception is None or exception in (self.exclude_exceptions or ()):
            return False
        return not self.include_exceptions or exception in self.include_exceptions

    def seconds(self, attempt: int) -> float:
        """How long to wait after this attempt, counted from 0.

        >>> [Retry(wait_multiplier=3.0, max_wait_sec=5.0).seconds(n) for n in range(3)]
        [1.0, 3.0, 5.0]
        """
        try:
            return min(self.min_wait_sec * self.wait_multiplier**attempt, self.max_wait_sec)
        except OverflowError:
            return self.max_wait_sec


NAME: Final = 32  # characters of a task's name in its trials'


@dataclass(frozen=True, slots=True)
class ContainerJob:
    """What is to be run: each task ``samples`` times by one agent."""

    folder: Path
    source: str | None  # the dataset's name
    tasks: Sequence[TaskDirectory]
    agent: ContainerAgent
    samples: int = 1
    concurrent: int = 4
    retry: Retry = field(default_factory=Retry)
    unable: Sequence[TaskDirectory] = ()  # planned, and known not to run here
    dataset: Path | None = None  # where its metric may lie, unless beside its tasks


@dataclass(frozen=True, slots=True)
class _Planned:
    task: TaskDirectory
    name: str


@dataclass(frozen=True, slots=True)
class TaskTrials:
    """What the trials of a job are called by."""

    agent: str
    model: str | None
    source: str | None  # the dataset's name


def write_declined(folder: Path, group: TaskTrials, trials: Sequence[TaskDirectory]) -> None:
    """A job of nothing but a plan: the trials, each by its task, that were requested and that no other job has.

    They are in its lock, so that a reader of all jobs counts them as not run.
    """
    agent = {"name": group.agent, **({"model_name": group.model} if group.model else {})}
    entries = {task.path: _task(task, group.source) for task in trials}
    locked = [{"task": entries[task.path], "agent": agent} for task in trials]
    moment = now()
    stats = {"n_completed_trials": 0, "n_running_trials": 0, "n_pending_trials": len(trials), "evals": {}}
    times = {"started_at": moment, "updated_at": moment, "finished_at": moment}
    folder.mkdir(PRIVATE, parents=True, exist_ok=True)
    _write(folder / "config.json", {"job_name": folder.name, "agents": [agent]})
    _write(folder / "lock.json", {"schema_version": 3, "created_at": moment, "trials": locked})
    _write(folder / "result.json", {**times, "n_total_trials": len(trials), "stats": stats})


def run_here(job: ContainerJob, progress: Progress = lambda done, planned: None) -> Path:
    """Run the outstanding trials of a job; returns its directory. InputError if the directory contains a different job.

    Ctrl-C stops the running trials, which become outstanding again, and keeps the others.
    """
    planned = list(_plan(job))
    with locked(job.folder):
        _write_job_files(job, planned)
        outstanding = [item for item in planned if not _whole_result(job.folder / item.name)]
        done = len(planned) - len(outstanding)
        progress(done, len(planned))
        containers = OpenContainers()
        with (
            held_interrupts() as raise_interrupt,
            ThreadPoolExecutor(job.concurrent, thread_name_prefix="trial") as pool,
        ):
            running: set[Future[None]] = {pool.submit(_run, job, item, containers) for item in outstanding}
            try:
                while running:
                    ended, running = wait(running, INTERRUPTED_AFTER, FIRST_COMPLETED)
                    raise_interrupt()
                    for item in ended:
                        item.result()
                        done += 1
                    if ended:
                        progress(done, len(planned))
                raise_interrupt()
            except BaseException:
                for item in running:
                    item.cancel()
                containers.close()  # or we would wait for agents that nobody waits for
                raise
        _write(job.folder / "result.json", _result(job, planned, finished=True))
    return job.folder


@contextmanager
def held_interrupts() -> Iterator[Callable[[], None]]:
    """Hold Ctrl-C back until the function that this gives is called, which raises KeyboardInterrupt then.

    Raised anywhere, it may leave a lock of a future acquired, for which the trials would wait for ever. A second Ctrl-C
    is raised at once. Nothing is held back outside the main thread, nor where somebody else handles the signal.
    """
    pressed = False

    def hold(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True

    def raise_interrupt() -> None:
        if pressed:
            raise KeyboardInterrupt

    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield raise_interrupt
        return
    signal.signal(signal.SIGINT, hold)
    try:
        yield raise_interrupt
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _whole_result(trial: Path) -> bool:
    """Whether a trial has ended: its result is there, and neither empty nor cut off."""
    return isinstance(read_json(trial / "result.json"), dict)


def _plan(job: ContainerJob) -> Iterator[_Planned]:
    """Attempts outside, tasks inside, as Harbor expands them; an attempt's name says which it is."""
    stems = _stems(job.tasks)
    for number in range(1, job.samples + 1):
        for task, stem in zip(job.tasks, stems, strict=True):
            yield _Planned(task, f"{stem}__{number:04}")


def _stems(tasks: Sequence[TaskDirectory]) -> list[str]:
    taken: dict[str, int] = {}
    stems = []
    for task in tasks:
        stem = task.name.rpartition("/")[2][:NAME].rstrip("_-") or "task"
        count = taken[stem] = taken.get(stem, 0) + 1
        stems.append(stem if count == 1 else f"{stem[: NAME - 4]}_{count}")
    return stems


def _run(job: ContainerJob, planned: _Planned, containers: OpenContainers) -> None:
    """One trial, and its further tries; its result is written whole or not at all."""
    folder = job.folder / planned.name
    _put_aside(job.folder, planned.name)  # what a cut-off left
    for attempt in range(job.retry.max_retries + 1):
        if containers.closed:
            return
        folder.mkdir(parents=True)
        config = {
            "task": _task(planned.task, job.source),
            "trial_name": planned.name,
            "agent": {"name": job.agent.name},
        }
        _write(folder / "config.json", config)
        result = run_trial(planned.task, job.agent, folder, job.source, [job.folder], containers)
        if containers.closed:
            return  # it may have been ended with us
        _write(folder / "result.json", {**result, "config": config})
        if (result.get(BLAME) or {}).get("outcome"):
            return  # it is the agent's own doing, and its result
        failed = (result["exception_info"] or {}).get("exception_type")
        if attempt == job.retry.max_retries or not job.retry.worthwhile(failed):
            return
        _put_aside(job.folder, planned.name)
        time.sleep(job.retry.seconds(attempt))


def _put_aside(job: Path, name: str) -> None:
    """Keep an attempt that another will replace."""
    if not (job / name).exists():
        return
    kept = job / RETRIES / name
    kept.mkdir(parents=True, exist_ok=True)
    number = 1 + sum(1 for _ in kept.iterdir())
    shutil.move(job / name, kept / f"retry-{number}")


def _write_job_files(job: ContainerJob, planned: Sequence[_Planned]) -> None:
    path = job.folder / "config.json"
    config = {
        "job_name": job.folder.name,
        "jobs_dir": str(job.folder.parent.absolute()),
        "n_attempts": job.samples,
        "agents": [{"name": job.agent.name, "kwargs": {"line": line} if (line := _line(job)) else {}}],
        "datasets": [{"name": job.source, "path": str((job.dataset or job.tasks[0].path.parent).absolute())}],
        "environment": {"import_path": HERE},
    }
    if path.is_file():
        before = msgspec.json.decode(path.read_bytes())
        if before.get("agents") != config["agents"] or before.get("datasets") != config["datasets"]:
            raise InputError.at(
                str(job.folder), "contains a different job", "expected the same agent and dataset, or another --out"
            )
        if before.get("n_attempts", 1) > job.samples:
            config["n_attempts"] = before["n_attempts"]
    _write(path, config)
    every = [*(trial.task for trial in planned), *(task for task in job.unable for _ in range(job.samples))]
    entries = {task.path: _task(task, job.source) for task in (*job.tasks, *job.unable)}  # hashed once, not per sample
    locked = [{"task": entries[task.path], "agent": {"name": job.agent.name}} for task in every]
    _write(job.folder / "lock.json", {"schema_version": 3, "created_at": now(), "trials": locked})
    _write(job.folder / "result.json", _result(job, planned, finished=False))


def _line(job: ContainerJob) -> str:
    return str(getattr(job.agent, "line", ""))


def _result(job: ContainerJob, planned: Sequence[_Planned], *, finished: bool) -> dict[str, Any]:
    done = sum(_whole_result(job.folder / trial.name) for trial in planned)
    total = len(planned) + job.samples * len(job.unable)
    stats = {"n_completed_trials": done, "n_running_trials": 0, "n_pending_trials": total - done, "evals": {}}
    moment = now()
    return {
        "started_at": moment,
        "updated_at": moment,
        "finished_at": moment if finished else None,
        "n_total_trials": total,
        "stats": stats,
    }


def _task(task: TaskDirectory, source: str | None) -> dict[str, Any]:
    entry = {"name": task.name, "type": "local", "digest": task.digest, "path": str(task.path.absolute())}
    return {**entry, "source": source} if source else entry


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time in a job's directory."""
    import fcntl

    folder.mkdir(PRIVATE, parents=True, exist_ok=True)
    number = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode_in(folder))
    try:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError.at(
                str(folder), "another process is running this job", "wait for it, or choose another --out"
            ) from None
        yield
    finally:
        os.close(number)


def _write(path: Path, content: Any) -> None:
    try:
        put(path, [msgspec.json.format(msgspec.json.encode(content), indent=4)])
    except OSError as error:
        raise LogError(f"{path}: {error.strerror}; finished trials are kept") from None
