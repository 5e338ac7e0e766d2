"""The tasks of a benchmark: a folder, a name in the store, a file of tasks, or a table of questions.

A run can name a verifier that replaces those of the tasks. If it names user code, that code is run.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

from calipers.clients.address import file_sha256
from calipers.errors import InputError
from calipers.names import code_file, is_code
from calipers.running.job import Job
from calipers.tasks.benchmark_row import HarborTask, as_task
from calipers.tasks.questions import COLUMN_SETTINGS, Questions, questions_suite
from calipers.tasks.store import load_suite, names
from calipers.tasks.table import SUFFIXES, is_table, read_table
from calipers.tasks.task import Suite, Task
from calipers.verifiers.find import NamedVerifier, named_verifier
from calipers.verifiers.user_code import GradeFunction


def benchmark_of(job: Job) -> tuple[Suite, Mapping[str, NamedVerifier]]:
    """The benchmark of a job, and the verifiers that the user named for it, by their names in its tasks."""
    verifiers = {job.verifier: named_verifier(job.verifier)} if job.verifier is not None else {}
    return suite_of(job.benchmark, questions_of(job)), verifiers


def questions_of(job: Job) -> Questions:
    """The settings of a job for its questions."""
    columns = {name: getattr(job, name) for name in COLUMN_SETTINGS}
    return Questions(**columns, verifier=job.verifier, params=job.params, judged=not job.predict_only, seed=job.seed)


def recorded_questions(settings: Mapping[str, Any]) -> Questions:
    """The settings for questions in the plan of a run."""
    names = (*COLUMN_SETTINGS, "verifier", "params", "seed")
    columns: dict[str, Any] = {name: settings[name] for name in names if name in settings}
    columns |= {name: tuple(columns[name]) for name in ("metadata", "choices") if name in columns}
    return Questions(**columns, judged=not settings.get("predict_only"))


def suite_of(benchmark: str, questions: Questions) -> Suite:
    """The tasks of a benchmark; a table is read with the settings of ``questions``."""
    given = [name for name in COLUMN_SETTINGS if getattr(questions, name) not in (None, (), False)]
    missing = Path(benchmark).suffix.lower() in SUFFIXES and not os.path.lexists(benchmark) and benchmark not in names()
    if missing or is_table(benchmark) or (given and os.path.isfile(benchmark)):
        return questions_suite(read_table(benchmark), questions)
    for name in given:
        wrong = f"is for tables of questions, and {benchmark} is not a table"
        raise InputError.at(f"--{name.replace('_', '-')}", wrong, "expected a CSV, TSV, JSON or Parquet file")
    suite = load_suite(benchmark)
    if questions.verifier is None and not questions.params:
        return suite
    return replace(suite, tasks=[_judged_by(task, questions) for task in suite.tasks])


def _judged_by(task: Task, questions: Questions) -> Task:
    """A task with the verifier of the run; it keeps its params if it keeps its verifier."""
    name = questions.verifier or task.verifier
    params = task.params if name == task.verifier else {}
    return replace(task, verifier=name, params={**params, **questions.params})


def check_of_library(job: Job) -> None:
    """Reject settings for tables and for our verifiers if the task is one of lm-evaluation-harness."""
    for name in (*COLUMN_SETTINGS, "verifier", "params"):
        if getattr(job, name) not in (None, (), False, {}):
            wrong = f"is for your own tables and benchmarks, and {job.benchmark} is a task of lm-evaluation-harness"
            raise InputError.at(job.place(name), wrong, "remove it: the task defines this itself")


class MemoryBenchmark(Protocol):
    """A benchmark in memory: its tasks as rows, and its verifiers."""

    name: str
    tasks: list[HarborTask]
    metadata: dict[str, Any]
    verifiers: dict[str, NamedVerifier]


def memory_suite(benchmark: MemoryBenchmark, job: Job) -> tuple[Suite, Mapping[str, NamedVerifier]]:
    """The tasks of a benchmark in memory and its verifiers, with the settings of a job."""
    for name in COLUMN_SETTINGS:
        if getattr(job, name) not in (None, (), False):
            right = "name the columns in Benchmark.from_table(..., prompt=...)"
            raise InputError.at(name, "is for a table of questions, and this is already a benchmark", right)
    suite = Suite(benchmark.name, [as_task(task) for task in benchmark.tasks], benchmark.metadata)
    verifiers = dict(benchmark.verifiers)
    if job.verifier is not None or job.params:
        suite = replace(suite, tasks=[_judged_by(task, questions_of(job)) for task in suite.tasks])
    if job.verifier is not None:
        verifiers[job.verifier] = named_verifier(job.verifier)
    return suite, verifiers


def code_digest(job: Job, verifiers: Mapping[str, NamedVerifier]) -> str | None:
    """The hash of the user's verifier code: of its file, or of functions in memory; None if there is none."""
    if (code := code_of(job)) is not None:
        return file_sha256(Path(code_file(code)))
    functions = [judge.fn for _, judge in sorted(verifiers.items()) if isinstance(judge, GradeFunction)]
    if not functions:
        return None
    return sha256("\0".join(map(_source, functions)).encode("utf-8", "surrogatepass")).hexdigest()


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
