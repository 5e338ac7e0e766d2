"""A task library: benchmarks that the files of another system describe, and what its own terms make of their runs.

The library is named in `names.py` and loaded when a job is of one of its tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from calipers.clients.client import Client
from calipers.errors import InputError
from calipers.names import TASK_LIBRARY, load
from calipers.running.job import Job
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
    loaded: Callable[[], Loaded]
    suite: Callable[[Job, Loaded], tuple[Suite, Mapping[str, NamedVerifier]]]
    check_documents: Callable[[Path, Suite], None]  # InputError where a run was asked about others
    client: Callable[[Client, Job, Suite], Client]  # as its tasks ask: for answers, or for likelihoods
    template: Callable[[Job], str | None]
    report: Callable[[Job, Path, Loaded | None], Report]
    documents: Callable[[Report, Path], Any]  # what each document keeps for its numbers, to be written
    joined: Callable[[Sequence[Report]], Iterator[OwnReport]]


def library() -> TaskLibrary:
    """The library; it loads the other system."""
    found: TaskLibrary = load(TASK_LIBRARY)
    return found


def check_apart(job: Job) -> None:
    """Refuse, for another benchmark, what only a task of lm-evaluation-harness can be asked with."""
    given = {
        "apply_chat_template": job.chats,
        "fewshot_as_multiturn": job.fewshot_as_multiturn is not None,
        "system_instruction": job.system_instruction is not None,
    }
    for name, is_given in given.items():
        if is_given:
            wrong = f"is for tasks of lm-evaluation-harness, and {job.benchmark} is none"
            raise InputError.at(job.place(name), wrong, "expected none; --system-prompt is a system turn")
