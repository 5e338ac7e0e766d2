"""The benchmark of a run: one of ours, or a task of a task library.

A task library is benchmarks that the files of another system describe, and what its own terms make of their runs. It
is named in `names.py` and loaded when a job is of one of its tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from calipers.clients.client import Client
from calipers.errors import CalipersError, InputError
from calipers.names import TASK_LIBRARY, load
from calipers.reports.result import Result
from calipers.running.job import Job
from calipers.running.questions import MemoryBenchmark, benchmark_of, check_of_library, code_digest, memory_suite
from calipers.tasks.task import Suite
from calipers.verifiers.find import NamedVerifier

Loaded = Any  # tasks that were loaded, for each to be loaded once
Report = Any  # a run in the library's own terms; it has the job


class OwnReport(Protocol):
    """Finished runs of one model, as the library's system reports them."""

    def shown(self, shape: str) -> str:
        """Its own table beneath ours, or as Markdown alone; "" where there is none in this shape."""

    def document(self) -> dict[str, Any]:
        """What it adds to a result."""

    def write(self, folder: Path, moment: datetime) -> list[Path]:
        """Its own files, below a folder."""


@dataclass(frozen=True, slots=True)
class TaskLibrary:
    """What a run asks of another system's tasks, as functions."""

    name: str  # of what it adds to a result, and to a suite's metadata
    is_known: Callable[[str, Sequence[str]], bool]  # (benchmark, folders of tasks)
    settings: Callable[[str, Sequence[str], Mapping[str, Any]], list[dict[str, Any]]]  # likewise, and what was asked
    checked: Callable[[str, Sequence[str], Mapping[str, Any]], list[str]]  # what can be said before a model is asked
    loaded: Callable[[str], Loaded]  # (whether prompts are kept on disk: true, refresh, delete, or "" for not)
    suite: Callable[[Job, Loaded], tuple[Suite, Mapping[str, NamedVerifier]]]
    check_documents: Callable[[Path, Suite], None]  # InputError where a run was asked about others
    client: Callable[[Client, Job, Suite], Client]  # as its tasks ask: for answers, or for likelihoods
    template: Callable[[Job], str | None]
    report: Callable[[Job, Path, Loaded | None], Report]
    documents: Callable[[Report, Path], Any]  # what each document keeps for its numbers, to be written
    joined: Callable[[Sequence[Report]], Iterator[OwnReport]]
    integrity: Callable[[Job, Loaded], list[str]]  # what a look at a task says, before the first call
    written_out: Callable[[Job, Loaded], str]  # the prompt and the target of the first document
    shown_config: Callable[[Job, Loaded], str]  # a task's configuration
    listed: Callable[[str, str, Sequence[str]], Mapping[str, str]]  # (tasks, groups or tags; pattern; folders)


def library() -> TaskLibrary:
    """The library; it loads the other system."""
    tasks: TaskLibrary = load(TASK_LIBRARY)
    return tasks


@dataclass(frozen=True, slots=True)
class JobBenchmark:
    """The tasks of a job, and the verifiers they bring themselves; of a task library also how they are asked."""

    job: Job
    suite: Suite
    verifiers: Mapping[str, NamedVerifier]
    loaded: Loaded | None = None

    @classmethod
    def of(cls, job: Job, tasks: Loaded | None) -> JobBenchmark:
        """The benchmark of a job; ``tasks`` of a library that jobs before it have loaded."""
        if not job.from_library:
            check_apart(job)
            return cls(job, *benchmark_of(job), tasks)
        check_of_library(job)
        tasks = tasks or library().loaded("")
        return cls(job, *library().suite(job, tasks), tasks)

    @classmethod
    def held(cls, job: Job, benchmark: MemoryBenchmark) -> JobBenchmark:
        """The benchmark of a job that somebody holds in memory."""
        check_apart(job)
        return cls(job, *memory_suite(benchmark, job))

    @property
    def code(self) -> str | None:
        """The hash of the user's own code that judges; None where none does."""
        return None if self.job.from_library else code_digest(self.job, self.verifiers)

    @property
    def template(self) -> str | None:
        """The chat template of a local model that stands around its prompts; None: none."""
        return library().template(self.job) if self.job.from_library else None

    def client(self, model: Client) -> Client:
        """The model as the benchmark asks it: for answers, or for the likelihoods of texts."""
        return library().client(model, self.job, self.suite) if self.job.from_library else model

    def check_folder(self, path: Path) -> None:
        """Refuse to go on with a run whose documents have changed."""
        if self.job.from_library:
            library().check_documents(path, self.suite)

    def report(self, path: Path) -> tuple[Report | None, list[str]]:
        """The run in the library's own terms, and a note where it has no numbers there."""
        if not self.job.from_library:
            return None, []
        try:
            return library().report(self.job, path, self.loaded), []
        except CalipersError as error:
            return None, [f"lm-evaluation-harness' own numbers: {error}"]


def with_own_numbers(result: Result, reports: Sequence[Report | None]) -> Result:
    """A result with every number that the library's own table of these runs has."""
    known = [report for report in reports if report is not None]
    if not known:
        return result
    return replace(result, own={library().name: [report.document() for report in library().joined(known)]})


def loaded_for(jobs: Sequence[Job], cache_requests: str = "") -> Loaded | None:
    """Where the tasks of several jobs are loaded once each; None where no job is of a library."""
    return library().loaded(cache_requests) if any(job.from_library for job in jobs) else None


def check_apart(job: Job) -> None:
    """Refuse, for another benchmark, what only a task of lm-evaluation-harness can be asked with."""
    given = {
        "apply_chat_template": job.chats,
        "fewshot_as_multiturn": job.fewshot_as_multiturn is not None,
        "system_instruction": job.system_instruction is not None,
    }
    for name, is_given in given.items():
        if is_given:
            wrong = f"is only for tasks of lm-evaluation-harness, and {job.benchmark} is not one"
            raise InputError.at(job.place(name), wrong, "remove it; --system-prompt adds a system message")
