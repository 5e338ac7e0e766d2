"""Runs a job without Harbor: one agent on each task several times, in our own containers, with Harbor's files."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final

import msgspec

from calipers.errors import InputError
from calipers.formats.run_folder import IDENTITY
from calipers.running.folder import PRIVATE
from calipers.running.log import mode_in, put
from calipers.systems.harbor.task import TaskDirectory
from calipers.systems.harbor.trials import Progress, read_config, read_json
from calipers.systems.harbor.trials.agents import CommandAgent, ContainerAgent
from calipers.systems.harbor.trials.environment import HERE
from calipers.systems.harbor.trials.trial import FINDING, OpenContainers, now, run_trial
from calipers.systems.harbor.wire import RETRIES

INTERRUPTED_AFTER: Final = 0.1  # seconds until trials are stopped after Ctrl-C, at most
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
"""Exceptions that a retry cannot fix, or that are the trial's result; by default, they are not retried."""


@dataclass(frozen=True, slots=True)
class Retry:
    """A job's ``retry`` settings, with the names that they have there."""

    max_retries: int = 0
    include_exceptions: Collection[str] | None = None  # only these; None or empty: all
    exclude_exceptions: Collection[str] | None = HOPELESS  # never these, even if included
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
        """The seconds to wait after an attempt; the first attempt has number 0.

        >>> [Retry(wait_multiplier=3.0, max_wait_sec=5.0).seconds(n) for n in range(3)]
        [1.0, 3.0, 5.0]
        """
        try:
            return min(self.min_wait_sec * self.wait_multiplier**attempt, self.max_wait_sec)
        except OverflowError:
            return self.max_wait_sec


LONGEST_STEM: Final = 32  # characters of a task's name in the names of its trials


@dataclass(frozen=True, slots=True)
class ContainerJob:
    """The trials to run: each task ``samples`` times with one agent."""

    folder: Path
    source: str | None  # the dataset's name
    tasks: Sequence[TaskDirectory]
    agent: ContainerAgent
    samples: int = 1
    concurrent: int = 4
    retry: Retry = field(default_factory=Retry)
    unable: Sequence[TaskDirectory] = ()  # planned tasks that cannot run here
    dataset: Path | None = None  # the folder of the dataset and its metric, if it is not the parent of the tasks
    identity: Mapping[str, Any] | None = None  # of the run, if the job is in a run's folder


@dataclass(frozen=True, slots=True)
class _Planned:
    task: TaskDirectory
    name: str


@dataclass(frozen=True, slots=True)
class TaskTrials:
    """The names that the trials of a job share."""

    agent: str
    model: str | None
    source: str | None  # the dataset's name


def write_declined(folder: Path, group: TaskTrials, trials: Sequence[TaskDirectory]) -> None:
    """Write a job that only plans trials, one per entry of ``trials``: requested trials that no other job has.

    Its lock lists them, so that a reader of all jobs counts them as not run.
    """
    agent = {"name": group.agent, **({"model_name": group.model} if group.model else {})}
    folder.mkdir(PRIVATE, parents=True, exist_ok=True)
    _write(folder / "config.json", {"job_name": folder.name, "agents": [agent]})
    _write_lock(folder, trials, agent, group.source)
    _write_result(folder, 0, len(trials), finished=True)


def run_here(job: ContainerJob, progress: Progress = lambda done, planned: None) -> Path:
    """Run the outstanding trials of a job; returns its directory. InputError if the directory contains a different job.

    Ctrl-C stops the running trials, which become outstanding again, and keeps the others.
    """
    with locked(job.folder):
        planned = list(_plan(job))
        _write_job_files(job, planned)
        if job.identity is not None:
            keep_identity(job.folder.parent, job.identity)
        outstanding = [trial for trial in planned if not _is_finished(job.folder / trial.name)]
        done = len(planned) - len(outstanding)
        progress(done, len(planned))
        containers = OpenContainers()
        with (
            held_interrupts() as raise_interrupt,
            ThreadPoolExecutor(job.concurrent, thread_name_prefix="trial") as pool,
        ):
            running: set[Future[None]] = {pool.submit(_run, job, trial, containers) for trial in outstanding}
            try:
                while running:
                    ended, running = wait(running, INTERRUPTED_AFTER, FIRST_COMPLETED)
                    raise_interrupt()
                    for future in ended:
                        future.result()
                        done += 1
                    if ended:
                        progress(done, len(planned))
                raise_interrupt()
            except BaseException:
                for future in running:
                    future.cancel()
                containers.close()  # otherwise leaving the pool waits until the agents are done
                raise
        _write_job_result(job, planned, finished=True)
    return job.folder


def keep_identity(folder: Path, identity: Mapping[str, Any]) -> None:
    """Write a run's identity to its folder, by which the folder is read as one run, unless the folder has one."""
    if not (folder / IDENTITY).exists():
        put(folder / IDENTITY, [msgspec.json.format(msgspec.json.encode(identity), indent=1), b"\n"])


@contextmanager
def held_interrupts() -> Iterator[Callable[[], None]]:
    """Delay the KeyboardInterrupt of Ctrl-C until the returned function is called.

    An interrupt at any other moment could leave a future's lock acquired, so that trials would wait for it forever. A
    second Ctrl-C is raised at once. Nothing is delayed outside the main thread, or if another handler is installed.
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

    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield raise_interrupt
        return
    signal.signal(signal.SIGINT, hold)
    try:
        yield raise_interrupt
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_finished(trial: Path) -> bool:
    """Whether a trial has a complete result, which is neither empty nor cut off."""
    return isinstance(read_json(trial / "result.json"), dict)


def _plan(job: ContainerJob) -> Iterator[_Planned]:
    """The trials of a job, in Harbor's order: all tasks once, then all tasks again; names end in the sample number."""
    stems = _stems(job.folder, job.tasks)
    for number in range(1, job.samples + 1):
        for task, stem in zip(job.tasks, stems, strict=True):
            yield _Planned(task, f"{stem}__{number:04}")


def _stems(job: Path, tasks: Sequence[TaskDirectory]) -> list[str]:
    """The beginning of the trial names of each task; no two tasks have the same, and a task keeps that of its trials.

    Otherwise the trials of one task would count as those of another when the tasks that can run have changed.
    """
    by_path: dict[str, str] = {}
    for path in sorted([*job.glob("*__*/config.json"), *job.glob(f"{RETRIES}/*/*/config.json")]):
        config = read_json(path)
        with suppress(KeyError, TypeError, AttributeError):  # cut off, or not written by this module
            by_path[config["task"]["path"]] = config["trial_name"].rpartition("__")[0]
    taken = set(by_path.values())
    for task in tasks:
        stem = name = task.name.rpartition("/")[2][:LONGEST_STEM].rstrip("_-") or "task"
        number = 1
        while stem in taken:
            number += 1
            stem = f"{name[: LONGEST_STEM - 4]}_{number}"
        taken.add(by_path.setdefault(_path(task), stem))
    return [by_path[_path(task)] for task in tasks]


def _run(job: ContainerJob, planned: _Planned, containers: OpenContainers) -> None:
    """Run one trial and its retries; its result is written atomically."""
    folder = job.folder / planned.name
    _put_aside(job.folder, planned.name)  # an interrupted attempt
    for attempt in range(job.retry.max_retries + 1):
        if containers.closed.is_set():
            return
        folder.mkdir(parents=True)
        task = _task(planned.task, job.source)
        config = {"task": task, "trial_name": planned.name, "agent": {"name": job.agent.name}}
        _write(folder / "config.json", config)
        result = run_trial(planned.task, job.agent, folder, job.source, [job.folder], containers)
        if containers.closed.is_set():
            return  # the trial may have been interrupted, so it has no result
        _write(folder / "result.json", {**result, "config": config})
        if (result.get(FINDING) or {}).get("outcome"):
            return  # the agent caused the failure, which is the trial's result
        failed = (result["exception_info"] or {}).get("exception_type")
        if attempt == job.retry.max_retries or not job.retry.worthwhile(failed):
            return
        _put_aside(job.folder, planned.name)
        containers.closed.wait(job.retry.seconds(attempt))


def _put_aside(job: Path, name: str) -> None:
    """Move an attempt that will be replaced to the folder of retries."""
    if not (job / name).exists():
        return
    folder = job / RETRIES / name
    folder.mkdir(parents=True, exist_ok=True)
    number = 1 + sum(1 for _ in folder.iterdir())
    shutil.move(job / name, folder / f"retry-{number}")


def _write_job_files(job: ContainerJob, planned: Sequence[_Planned]) -> None:
    """Write the job's configuration, lock and result; InputError if the folder contains a different job."""
    path = job.folder / "config.json"
    config = {
        "job_name": job.folder.name,
        "jobs_dir": str(job.folder.parent.absolute()),
        "n_attempts": job.samples,
        "agents": [
            {"name": job.agent.name, "kwargs": {"line": job.agent.line} if isinstance(job.agent, CommandAgent) else {}}
        ],
        "datasets": [{"name": job.source, "path": str((job.dataset or job.tasks[0].path.parent).absolute())}],
        "environment": {"import_path": HERE},
    }
    if path.is_file():
        old = read_config(job.folder)
        if old.get("agents") != config["agents"] or old.get("datasets") != config["datasets"]:
            raise InputError.at(
                str(job.folder), "contains a different job", "expected the same agent and dataset, or another --out"
            )
        if old.get("n_attempts", 1) > job.samples:
            config["n_attempts"] = old["n_attempts"]
    _write(path, config)
    trials = [*(trial.task for trial in planned), *(task for task in job.unable for _ in range(job.samples))]
    _write_lock(job.folder, trials, {"name": job.agent.name}, job.source)
    _write_job_result(job, planned, finished=False)


def _write_lock(folder: Path, tasks: Sequence[TaskDirectory], agent: Mapping[str, str], source: str | None) -> None:
    """Write a job's lock, which plans one trial per entry of ``tasks``."""
    entries = {path: _task(task, source) for path, task in {task.path: task for task in tasks}.items()}  # hashed once
    trials = [{"task": entries[task.path], "agent": agent} for task in tasks]
    _write(folder / "lock.json", {"schema_version": 3, "created_at": now(), "trials": trials})


def _write_job_result(job: ContainerJob, planned: Sequence[_Planned], *, finished: bool) -> None:
    done = sum(_is_finished(job.folder / trial.name) for trial in planned)
    _write_result(job.folder, done, len(planned) + job.samples * len(job.unable), finished=finished)


def _write_result(folder: Path, done: int, total: int, *, finished: bool) -> None:
    """Write a job's result without statistics, which are computed from its trials; its id and its start are kept."""
    stored = read_json(folder / "result.json")
    before = stored if isinstance(stored, dict) else {}
    moment = now()
    result = {
        "id": before.get("id") or str(uuid.uuid4()),
        "started_at": before.get("started_at") or moment,
        "updated_at": moment,
        "finished_at": moment if finished else None,
        "n_total_trials": total,
        "stats": {"n_completed_trials": done, "n_running_trials": 0, "n_pending_trials": total - done, "evals": {}},
    }
    _write(folder / "result.json", result)


def _task(task: TaskDirectory, source: str | None) -> dict[str, Any]:
    entry = {"name": task.name, "type": "local", "digest": task.digest, "path": _path(task)}
    return {**entry, "source": source} if source else entry


def _path(task: TaskDirectory) -> str:
    return str(task.path.absolute())


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a job's directory; InputError if another process holds it, or it cannot be written."""
    import fcntl

    try:
        folder.mkdir(PRIVATE, parents=True, exist_ok=True)
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode_in(folder))
    except (FileExistsError, NotADirectoryError):
        raise InputError.at(str(folder), "is a file, or is inside one", "expected a directory for the run") from None
    except OSError as error:
        raise InputError.at(str(folder), f"cannot be written ({error.strerror})", "choose another --out") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError.at(
                str(folder), "another process is running this job", "wait for it, or choose another --out"
            ) from None
        yield
    finally:
        os.close(descriptor)


def _write(path: Path, content: Any) -> None:
    put(path, [msgspec.json.format(msgspec.json.encode(content), indent=4)])
