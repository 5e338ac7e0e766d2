"""The benchmark of a run: one of ours, or a task of a task library.

One of ours is a folder, a name in the store, a file of tasks, or a table of questions. A run can name a verifier that
replaces those of the tasks. If it names user code, that code is run.

A task library has the benchmarks that another system's files describe, and reports their runs as that system does. It
is named in `names.py`, and loaded when a job has one of its tasks.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Protocol

from calipers.clients import Client, Connection
from calipers.clients.address import file_sha256
from calipers.clients.secrets import Secrets
from calipers.errors import CalipersError, InputError
from calipers.names import TASK_LIBRARY, code_file, is_code, load
from calipers.reports.figures import counted
from calipers.reports.result import Result
from calipers.running import Job
from calipers.tasks import Suite, Task
from calipers.tasks.jsonl import HarborTask, as_task
from calipers.tasks.questions import COLUMN_SETTINGS, Questions, questions_suite
from calipers.tasks.store import load_suite, names
from calipers.tasks.table import SUFFIXES, is_table, read_table
from calipers.verifiers import NamedVerifier
from calipers.verifiers.user_code import GradeFunction, named_verifier


def questions_of(job: Job) -> Questions:
    """The settings of a job for a table of questions."""
    columns = {name: getattr(job, name) for name in COLUMN_SETTINGS}
    return Questions(**columns, verifier=job.verifier, params=job.params, judged=not job.predict_only, seed=job.seed)


def recorded_questions(settings: Mapping[str, Any]) -> Questions:
    """The settings for questions in the plan of a run."""
    names = (*COLUMN_SETTINGS, "verifier", "params", "seed")
    columns: dict[str, Any] = {name: settings[name] for name in names if name in settings}
    columns |= {name: tuple(columns[name]) for name in ("metadata", "choices") if name in columns}
    return Questions(**columns, judged=not settings.get("predict_only"))


_DEFAULTS: Final = Questions()


def _given(settings: Job | Questions, names: Sequence[str]) -> list[str]:
    """The settings among these names that do not have their default."""
    return [name for name in names if getattr(settings, name) != getattr(_DEFAULTS, name)]


def suite_of(benchmark: str, questions: Questions) -> Suite:
    """The tasks of a benchmark; a table is read with the settings of ``questions``."""
    given = _given(questions, COLUMN_SETTINGS)
    missing = Path(benchmark).suffix.lower() in SUFFIXES and not os.path.lexists(benchmark) and benchmark not in names()
    if missing or is_table(benchmark) or (given and os.path.isfile(benchmark)):
        return questions_suite(read_table(benchmark), questions)
    for name in given:
        problem = f"is for tables of questions, and {benchmark} is not a table"
        raise InputError.at(f"--{name.replace('_', '-')}", problem, "expected a CSV, TSV, JSON or Parquet file")
    suite = load_suite(benchmark)
    if questions.verifier is None and not questions.params:
        return suite
    return replace(suite, tasks=[_judged_by(task, questions) for task in suite.tasks])


def _judged_by(task: Task, questions: Questions) -> Task:
    """A task with the verifier of the run; its params are kept if its verifier stays the same."""
    name = questions.verifier or task.verifier
    params = task.params if name == task.verifier else {}
    return replace(task, verifier=name, params={**params, **questions.params})


def check_of_library(job: Job) -> None:
    """InputError for settings of tables or of our verifiers in a job with a task of lm-evaluation-harness."""
    if job.reasoning == "split":
        problem = f"{job.benchmark} is a task of lm-evaluation-harness, whose filters see the whole completion"
        raise InputError.at(job.location("reasoning"), problem, "remove it")
    for name in _given(job, (*COLUMN_SETTINGS, "verifier", "params")):
        problem = f"is for your own tables and benchmarks, and {job.benchmark} is a task of lm-evaluation-harness"
        raise InputError.at(job.location(name), problem, "remove it: the task defines this itself")


class MemoryBenchmark(Protocol):
    """A benchmark in memory: its tasks as rows, and its verifiers."""

    name: str
    tasks: list[HarborTask]
    metadata: dict[str, Any]
    verifiers: dict[str, NamedVerifier]


def _source(function: Any) -> str:
    """The source of a function; if there is none, its bytecode."""
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        return repr((code.co_code, code.co_consts, code.co_names)) if code else repr(type(function))


def code_of(job: Job) -> str | None:
    """The user's own verifier of a job, as ``FILE.py:OBJECT``; None if the verifier has a name, or if there is none."""
    return job.verifier if job.verifier is not None and is_code(job.verifier) else None


Loaded = Any  # a collection of loaded tasks, so that each task is loaded once
Report = Any  # the library's own report of a run; it has the job


class OwnReport(Protocol):
    """Finished runs of one model, as the library's system reports them."""

    def shown(self, shape: str) -> str:
        """The system's own table, to show below ours or as Markdown by itself; "" if there is none in this shape."""

    def document(self) -> dict[str, Any]:
        """The system's own numbers, as a part of a result."""

    def write(self, folder: Path, moment: datetime) -> list[Path]:
        """Write the system's own files below a folder."""


@dataclass(frozen=True, slots=True)
class CheckedTask:
    """A task of another system that was loaded without a model."""

    task: str
    output_type: str
    documents: int
    repeats: int
    examples: int  # few-shot examples of each document
    notes: Sequence[str]

    def lines(self) -> list[str]:
        """The size of the task in a line, and its notes."""
        sizes = counted(self.documents, "document"), counted(self.repeats, "repeat"), counted(self.examples, "example")
        return [f"{self.task}: {self.output_type}, {', '.join(sizes)}", *(f"note: {note}" for note in self.notes)]


@dataclass(frozen=True, slots=True)
class TaskLibrary:
    """The functions that a run needs for another system's tasks."""

    name: str  # the key of its parts of a result and of a suite's metadata
    is_known: Callable[[str, Sequence[str]], bool]  # (benchmark, folders of tasks)
    settings: Callable[[str, Sequence[str], Mapping[str, Any]], list[dict[str, Any]]]  # likewise, and the options
    checked: Callable[[str, Sequence[str], Mapping[str, Any]], list[CheckedTask]]
    loaded: Callable[[str], Loaded]  # (how prompts are cached on disk: true, refresh, delete, or "" for not at all)
    suite: Callable[[Job, Loaded], tuple[Suite, Mapping[str, NamedVerifier]]]
    check_documents: Callable[[Path, Suite], None]  # InputError if a run was made with other documents
    client: Callable[[Client, Job, Suite], Client]  # a client for completions or for likelihoods, as its tasks need
    template: Callable[[Job], str | None]
    report: Callable[[Job, Path, Loaded | None], Report]
    documents: Callable[[Report, Path], Any]  # the data of each document that its numbers need, to be written
    joined: Callable[[Sequence[Report]], Iterator[OwnReport]]
    integrity: Callable[[Job, Loaded], list[str]]  # notes of checks of a task before the first request
    written_out: Callable[[Job, Loaded], str]  # the prompt and the target of the first document
    shown_config: Callable[[Job, Loaded], str]  # a task's configuration
    listed: Callable[[str, str, Sequence[str]], Mapping[str, str]]  # (tasks, groups or tags; pattern; folders)


def library() -> TaskLibrary:
    """The task library; this loads the other system."""
    tasks: TaskLibrary = load(TASK_LIBRARY)
    return tasks


@dataclass(frozen=True, slots=True)
class JobBenchmark:
    """The tasks of a job and their own verifiers; for a task library, also the loaded tasks."""

    job: Job
    suite: Suite
    verifiers: Mapping[str, NamedVerifier]
    loaded: Loaded | None = None

    @classmethod
    def of(cls, job: Job, tasks: Loaded | None) -> JobBenchmark:
        """The benchmark of a job; ``tasks`` are the library's tasks that earlier jobs have loaded."""
        if not job.from_library:
            check_apart(job)
            verifiers = {job.verifier: named_verifier(job.verifier)} if job.verifier is not None else {}
            return cls(job, suite_of(job.benchmark, questions_of(job)), verifiers, tasks)
        check_of_library(job)
        tasks = tasks or library().loaded("")
        return cls(job, *library().suite(job, tasks), tasks)

    @classmethod
    def in_memory(cls, job: Job, benchmark: MemoryBenchmark) -> JobBenchmark:
        """The benchmark of a job whose tasks are in memory."""
        check_apart(job)
        for name in _given(job, COLUMN_SETTINGS):
            expected = "name the columns in Benchmark.from_table(..., prompt=...)"
            raise InputError.at(name, "is for a table of questions, and this is already a benchmark", expected)
        tasks, verifiers = [as_task(task) for task in benchmark.tasks], dict(benchmark.verifiers)
        if job.verifier is not None or job.params:
            tasks = [_judged_by(task, questions_of(job)) for task in tasks]
        if job.verifier is not None:
            verifiers[job.verifier] = named_verifier(job.verifier)
        return cls(job, Suite(benchmark.name, tasks, benchmark.metadata), verifiers)

    @property
    def code(self) -> str | None:
        """The hash of the user's own verifier code, in a file or as functions in memory; None if there is none."""
        if self.job.from_library:
            return None
        if (code := code_of(self.job)) is not None:
            return file_sha256(Path(code_file(code)))
        functions = [judge.fn for _, judge in sorted(self.verifiers.items()) if isinstance(judge, GradeFunction)]
        if not functions:
            return None
        return sha256("\0".join(map(_source, functions)).encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def template(self) -> str | None:
        """The chat template of a local model that is applied to the prompts; None for none."""
        return library().template(self.job) if self.job.from_library else None

    def connection(self, secrets: Secrets) -> Connection:
        """The connection to the job's model."""
        job = self.job
        served = job.base_url, job.api, job.timeout, job.in_flight, job.price, secrets
        return Connection(*served, self.template, job.model_args, job.trust)

    def client(self, model: Client) -> Client:
        """The client for the benchmark's requests, which are for completions or for likelihoods of texts."""
        return library().client(model, self.job, self.suite) if self.job.from_library else model

    def check_folder(self, path: Path) -> None:
        """Refuse to resume a run whose documents have changed."""
        if self.job.from_library:
            library().check_documents(path, self.suite)

    def report(self, path: Path) -> tuple[Report | None, list[str]]:
        """The library's own report of the run, and a note if it has no numbers."""
        if not self.job.from_library:
            return None, []
        try:
            return library().report(self.job, path, self.loaded), []
        except CalipersError as error:
            return None, [f"lm-evaluation-harness' own numbers: {error}"]


def with_own_numbers(result: Result, reports: Sequence[Report | None]) -> Result:
    """A result with the numbers of the library's own reports of these runs."""
    known = [report for report in reports if report is not None]
    if not known:
        return result
    return replace(result, own={library().name: [report.document() for report in library().joined(known)]})


def loaded_for(jobs: Sequence[Job], cache_requests: str = "") -> Loaded | None:
    """A collection in which each task of several jobs is loaded once; None if no job has a task of a library."""
    return library().loaded(cache_requests) if any(job.from_library for job in jobs) else None


def check_apart(job: Job) -> None:
    """InputError for settings that only a task of lm-evaluation-harness can have."""
    given = {
        "apply_chat_template": job.chats,
        "fewshot_as_multiturn": job.fewshot_as_multiturn is not None,
        "system_instruction": job.system_instruction is not None,
    }
    for name, is_given in given.items():
        if is_given:
            problem = f"is only for tasks of lm-evaluation-harness, and {job.benchmark} is not one"
            raise InputError.at(job.location(name), problem, "remove it; --system-prompt adds a system message")
