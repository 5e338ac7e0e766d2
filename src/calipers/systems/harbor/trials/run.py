"""Harbor's datasets run by an agent: through Harbor where it is installed, else in rooms of our own."""

from __future__ import annotations

import asyncio
import glob
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from calipers.clients.address import called, without_keys
from calipers.errors import HarborError, InputError
from calipers.running.job import first, limit_of
from calipers.running.log import put
from calipers.running.resume import ENDPOINT, differences, folder_name
from calipers.systems.harbor.tasks.dataset import METRIC, is_dataset, read_dataset
from calipers.systems.harbor.tasks.manifest import DATASET_TOML
from calipers.systems.harbor.tasks.registry import REGISTRY, is_spec, resolve
from calipers.systems.harbor.tasks.task import TaskDirectory
from calipers.systems.harbor.trials.agents import COMMAND, NAMES, find_agent
from calipers.systems.harbor.trials.engine import CHAT, ROOM, Engine, find_engine, finished, run_job
from calipers.systems.harbor.trials.job import ContainerJob, Retry, TaskTrials, locked, run_here, write_declined
from calipers.systems.harbor.trials.trial import declined

IDENTITY: Final = "identity.json"
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
                "--base-url", "the URL holds a key, which Harbor would write down", "expected none in it"
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
    return fresh, [f"{fresh}: a new run begins, as {folder} is another one ({_why_new(there, identity, 'there')})"]


def check_folder(folder: Path, identity: Mapping[str, Any]) -> None:
    """InputError for a folder in which another server was asked; one that does not say goes on."""
    kept, there = _kept(folder), recorded(folder)
    if there is not None and ENDPOINT in identity and there != identity[ENDPOINT]:
        difference = _why_new(there, identity, "here")
        raise InputError.at(str(folder), f"holds another run: {difference}", "choose another --out")
    if kept is not None and ENDPOINT not in identity and ENDPOINT in kept:
        difference = "; ".join(differences({ENDPOINT: kept[ENDPOINT]}, {}))
        raise InputError.at(str(folder), f"holds another run: {difference}", "choose another --out")


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
            agent = msgspec.json.decode(config.read_bytes())["agents"][0]
            return without_keys(agent["kwargs"]["server"])
        except (OSError, msgspec.DecodeError, KeyError, TypeError, IndexError, AttributeError, InputError):
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
    try:
        return msgspec.json.decode((folder / IDENTITY).read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _rest(identity: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in identity.items() if name != ENDPOINT}


def _why_new(there: str | None, identity: Mapping[str, Any], where: str) -> str:
    requested = identity[ENDPOINT]
    return f"{ENDPOINT}: {there} {where}, {requested} asked" if there else f"{_UNKNOWN} {where}, {requested} asked"


ROOMS: Final = "room"
RUNS: Final = "runs"
CONCURRENT: Final = 4
DATASET: Final = "dataset"
DECLINED: Final = "declined"
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """A dataset, who is to work on it, and how often."""

    benchmark: str
    agent: str = "oracle"
    model: str | None = None
    samples: int = 1
    limit: float | None = None  # the first so many tasks, or a share of them below 1
    concurrent: int = CONCURRENT
    retries: int = 0
    registry: str | None = None
    environment: str = ROOMS  # of Harbor's: docker, or module:Class
    base_url: str | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)  # for the chat agent
    out: Path | None = None


@dataclass(frozen=True, slots=True)
class Performed:
    """Where the jobs are, and what the user should know."""

    folder: Path
    notes: Sequence[str]
    left_out: int = 0  # tasks that are wrong, or that nothing here can run


@dataclass(frozen=True, slots=True)
class ChosenTasks:
    """The tasks of a run, and how Harbor is told of them."""

    name: str
    tasks: Sequence[TaskDirectory]
    settings: Mapping[str, Any]
    path: Path  # of its metric, if it has one


def is_agents(benchmark: str, registry: str | None = None) -> bool:
    """Whether a benchmark is one for agents: Harbor's directory of tasks, or a name in a registry of them."""
    return is_dataset(benchmark) or (is_spec(benchmark) and (registry is not None or os.path.isdir(REGISTRY)))


def perform(request: AgentRequest, progress: Progress, tell: Callable[[str], None] = lambda note: None) -> Performed:
    """Run what is still owed. InputError or HarborError when nothing can run.

    ``tell`` is called with what somebody should know before the first call.
    """
    if request.samples < 1:
        raise InputError.at("--samples", f"it is {request.samples}", "expected at least 1")
    for name, value, least in (("--concurrency", request.concurrent, 1), ("--retries", request.retries, 0)):
        if value < least:
            raise InputError.at(name, f"it is {value}", f"expected at least {least}")
    chosen, notes = _tasks(request)
    engine = _engine(request)
    _check_agent(request, here=engine is None)
    who = "-".join(part for part in (request.agent.partition(":")[0], request.model) if part)
    identity = _identity(request, chosen)
    folder, begins = (request.out, []) if request.out else find_folder(Path(RUNS), chosen.name, who, identity)
    check_folder(folder, identity)
    for note in begins:  # before the first call: a new run costs what the old one has paid for
        tell(note)
    why = {task.name: reason for task in chosen.tasks if (reason := declined(task))} if in_containers(request) else {}
    notes += [f"{name}: not run: {reason}; --environment docker runs it, by Harbor" for name, reason in why.items()]
    able = [task for task in chosen.tasks if task.name not in why]
    unable = [task for task in chosen.tasks if task.name in why]
    if not able:
        raise InputError(f"{request.benchmark}: nothing in it can run here: {notes[-1]}")
    if engine is None:
        how = (find_agent(request.agent), request.samples, request.concurrent, Retry(max_retries=request.retries))
        run_here(ContainerJob(folder / "1", chosen.name, able, *how, unable, chosen.path), progress)
    else:
        with locked(folder):
            keep_identity(folder, identity)
            _count_in(folder, chosen, unable, request)
            _by_harbor(
                engine,
                request,
                _harbor_tasks(chosen, able, folder, some=bool(notes or request.limit)),
                folder,
                progress,
            )
            _count_in(folder, chosen, unable, request)  # by the names that its trials have now
    return Performed(folder, notes, left_out=len(notes))


def _identity(request: AgentRequest, chosen: ChosenTasks) -> dict[str, Any]:
    """What makes two runs of agents the same run: who works on what, how, and where their model is asked."""
    where = agent_endpoint(request.agent, request.model, request.base_url if request.agent == "chat" else None)
    return {
        "agent": request.agent,
        "model": request.model,
        "environment": request.environment,
        "dataset": chosen.settings,
        "sampling": dict(request.sampling),
        **({} if where is None else {ENDPOINT: where}),
    }


def _tasks(request: AgentRequest) -> tuple[ChosenTasks, list[str]]:
    if is_dataset(request.benchmark):
        dataset = read_dataset(request.benchmark)
        tasks, faults = _whole(dataset.tasks)
        faults = [*dataset.faults, *faults]
        if not tasks:
            raise InputError(faults[0] if faults else f"{request.benchmark}: there is no task in it")
        path = str(Path(request.benchmark).absolute())
        settings: dict[str, Any] = {"path": path}
        name = Path(os.path.abspath(request.benchmark)).name
        chosen, notes = (
            ChosenTasks(name, tasks, settings, Path(path)),
            [f"{fault}; it is left out" for fault in faults],
        )
    elif is_spec(request.benchmark):
        at = resolve(request.benchmark, request.registry)
        settings = {"name": at.name, "version": at.version, "digest": at.digest}
        chosen, notes = ChosenTasks(at.name, at.tasks, settings, at.path), []
    else:
        right = "expected a directory of tasks, or org/name[@version] with --registry"
        raise InputError.at(request.benchmark, "is no dataset for agents", right)
    limit = limit_of("--limit", request.limit)
    if limit is not None:
        most = first(len(chosen.tasks), limit)
        settings = {**chosen.settings, "n_tasks": most if limit < 1 else limit}
        chosen = replace(chosen, tasks=chosen.tasks[:most], settings=settings)
    return chosen, notes


def _whole(tasks: Sequence[TaskDirectory]) -> tuple[list[TaskDirectory], list[str]]:
    """The tasks whose files are all their own, and what is wrong with the others, such as a link that leads out."""
    whole, faults = [], []
    for task in tasks:
        try:
            _ = task.digest
            whole.append(task)
        except InputError as error:
            faults.append(str(error))
    return whole, faults


def _engine(request: AgentRequest) -> Engine | None:
    """Harbor; None where our own rooms do: an agent of ours, and no Harbor or none wanted."""
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
    """Refuse settings that the agent would never see: a number must not look like another model's."""
    if request.agent != "chat" and request.sampling:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in request.sampling)
        raise InputError.at("--agent", f"{request.agent!r} takes no {names}", "expected chat")
    if here and request.model:
        find_agent(request.agent)  # one that there is not is the greater mistake
        wrong = f"nobody would ask it: {request.agent.partition(':')[0]} works without one"
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

    A task may have been able once, or become so since: what was never run of it stays owed.
    """
    jobs = _jobs(folder)
    samples = max(request.samples, sum(int(config.get("n_attempts", 1)) for _, config in jobs))
    known = Counter(name for job, _ in jobs for name in _locked_tasks(job))
    names = {*(task.name for task in unable), *_locked_tasks(folder / DECLINED)}
    owing = [task for task in chosen.tasks if task.name in names]
    trials = [task for task in owing for _ in range(samples - known[task.name])]
    if trials:
        write_declined(
            folder / DECLINED, _named(folder) or TaskTrials(request.agent, request.model, chosen.name), trials
        )


def _locked_tasks(job: Path) -> list[str]:
    """The task of each trial that a job has planned."""
    try:
        return [trial["task"]["name"] for trial in msgspec.json.decode((job / "lock.json").read_bytes())["trials"]]
    except (OSError, msgspec.DecodeError, KeyError, TypeError):
        return []


def _named(folder: Path) -> TaskTrials | None:
    """What Harbor calls the agent, the model and the dataset, as its first finished trial says; None before that."""
    for path in sorted(folder.glob("[0-9]*/*/result.json")):
        try:
            trial = msgspec.json.decode(path.read_bytes())
            info = trial["agent_info"]
            return TaskTrials(info["name"], (info.get("model_info") or {}).get("name"), trial.get("source"))
        except (OSError, msgspec.DecodeError, KeyError, TypeError, AttributeError):
            continue
    return None


def _jobs(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Harbor's jobs in a run's folder, in their order, each with its configuration."""
    places = sorted((job for job in folder.glob("[0-9]*") if (job / "config.json").is_file()), key=_number)
    return [(job, msgspec.json.decode((job / "config.json").read_bytes())) for job in places]


def _by_harbor(
    engine: Engine, request: AgentRequest, tasks: Mapping[str, Any], folder: Path, progress: Progress
) -> None:
    """Finish what the folder's jobs owe, then run the attempts that no job has planned yet."""
    agent = _agent(request)
    planned = 0
    jobs = _jobs(folder)
    for job, config in jobs:
        planned += int(config.get("n_attempts", 1))
        if not finished(job):
            forget_cut_off(job)
            _ask(engine, {**config, "job_name": job.name, "jobs_dir": str(folder.absolute())}, progress)
    if planned >= request.samples:
        return
    config = {
        "job_name": str(_number(jobs[-1][0]) + 1 if jobs else 1),
        "jobs_dir": str(folder.absolute()),
        "n_attempts": request.samples - planned,
        "n_concurrent_trials": request.concurrent,
        "quiet": True,
        "retry": {"max_retries": request.retries},
        "environment": {"import_path" if ":" in harbor_environment(request) else "type": harbor_environment(request)},
        "agents": [agent],
        **tasks,
    }
    _ask(engine, config, progress)


def forget_cut_off(job: Path) -> None:
    """Make room for trials that were cut off with the job: Harbor would count them as done, or fail over half a file.

    A job's own result that was cut off while it was written is removed: Harbor writes it anew.
    """
    for path in [*job.glob("*/result.json"), *job.glob("*/config.json")]:
        if not path.exists():
            continue  # gone with its trial
        content = _json(path)
        failed = content.get("exception_info") if isinstance(content, dict) else None
        if content is None or (isinstance(failed, dict) and failed.get("exception_type") == "CancelledError"):
            shutil.rmtree(path.parent)
    result = job / "result.json"
    if result.exists() and _json(result) is None:
        result.unlink()


def _json(path: Path) -> Any:
    """What a file holds; None where that is no JSON, as of a file that a kill has cut off."""
    try:
        return msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _ask(engine: Engine, config: Mapping[str, Any], progress: Progress) -> None:
    asyncio.run(run_job(engine, config, progress))


def in_containers(request: AgentRequest) -> bool:
    """Whether trials happen in rooms of ours, whoever runs them."""
    return request.environment == ROOMS or request.agent.startswith(COMMAND)


def harbor_environment(request: AgentRequest) -> str:
    """What Harbor calls the environment."""
    return ROOM if request.environment == ROOMS else request.environment


def _agent(request: AgentRequest) -> dict[str, Any]:
    """The agent as Harbor is configured with it; ``chat`` is ours."""
    path = CHAT if request.agent == "chat" else request.agent
    agent: dict[str, Any] = {"import_path" if ":" in path else "name": path}
    if request.model:
        agent["model_name"] = request.model
    if request.agent == "chat":
        if not request.model:
            raise InputError.at("--agent", "'chat' asks a model", "expected --model NAME, too")
        agent["kwargs"] = {**request.sampling, **({"server": request.base_url} if request.base_url else {})}
    return agent


def _number(job: Path) -> int:
    return int(job.name) if job.name.isdecimal() else 0
