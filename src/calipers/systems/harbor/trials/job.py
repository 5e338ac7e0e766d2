"""A job without Harbor: each task some times by one agent, in rooms of ours, with Harbor's own files."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final

import msgspec

from calipers.errors import InputError, LogError
from calipers.running.folder import PRIVATE
from calipers.running.log import mode_in, put
from calipers.systems.harbor.task import TaskDirectory
from calipers.systems.harbor.trials.engine import Progress, read_config, read_json
from calipers.systems.harbor.trials.environment import HERE
from calipers.systems.harbor.trials.trial import BLAME, ContainerAgent, OpenContainers, now, run_trial
from calipers.systems.harbor.wire import RETRIES

INTERRUPTED_AFTER: Final = 0.1  # seconds; at most so long after Ctrl-C trials are stopped
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
    folder.mkdir(PRIVATE, parents=True, exist_ok=True)
    _write(folder / "config.json", {"job_name": folder.name, "agents": [agent]})
    _write(folder / "lock.json", {"schema_version": 3, "created_at": now(), "trials": locked})
    _write(folder / "result.json", _counts(0, len(trials), finished=True))


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
        containers.ended(job.retry.seconds(attempt))


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
    line = getattr(job.agent, "line", "")
    config = {
        "job_name": job.folder.name,
        "jobs_dir": str(job.folder.parent.absolute()),
        "n_attempts": job.samples,
        "agents": [{"name": job.agent.name, "kwargs": {"line": line} if line else {}}],
        "datasets": [{"name": job.source, "path": str((job.dataset or job.tasks[0].path.parent).absolute())}],
        "environment": {"import_path": HERE},
    }
    if path.is_file():
        before = read_config(job.folder)
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


def _result(job: ContainerJob, planned: Sequence[_Planned], *, finished: bool) -> dict[str, Any]:
    done = sum(_whole_result(job.folder / trial.name) for trial in planned)
    return _counts(done, len(planned) + job.samples * len(job.unable), finished=finished)


def _counts(done: int, total: int, *, finished: bool) -> dict[str, Any]:
    """A job's result, as far as its own files say it: how many trials ended."""
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
