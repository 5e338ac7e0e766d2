"""lm-evaluation-harness' tasks as a library of benchmarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from calipers.running.job import Job
from calipers.running.library import TaskLibrary
from calipers.systems.lm_eval.jobs import chat, likelihood, report, settings
from calipers.systems.lm_eval.jobs import suite as suites
from calipers.tasks.task import Suite
from calipers.verifiers.find import NamedVerifier

NAME: Final = "lm_eval"
TOLD: Final = ("num_fewshot", "predict_only", "trust")  # what of a command decides how its tasks are loaded


def _settings(benchmark: str, include_path: Sequence[str], told: Mapping[str, Any]) -> list[dict[str, Any]]:
    asked = {key: told[key] for key in TOLD if key in told}
    return settings.settings(benchmark, settings.TaskRequest(tuple(include_path), **asked))


def _suite(job: Job, tasks: settings.Loaded) -> tuple[Suite, Mapping[str, NamedVerifier]]:
    if job.lm_eval is None:
        raise ValueError(f"{job.benchmark} is no task of lm-evaluation-harness")
    return settings.prepared(job.benchmark, job.lm_eval, settings.wanted(job), tasks)


def _check_documents(path: Path, suite: Suite) -> None:
    suites.check_documents(path, suite.name, suite.metadata[NAME]["document_hashes"])


def _joined(parts: Sequence[report.TaskPart]) -> list[dict[str, Any]]:
    return [one.document() for one in report.joined(parts)]


LIBRARY = TaskLibrary(
    name=NAME,
    is_known=lambda benchmark, include_path: settings.is_known(benchmark, tuple(include_path)),
    settings=_settings,
    loaded=settings.Loaded,
    suite=_suite,
    check_documents=_check_documents,
    client=likelihood.asking,
    template=chat.template,
    report=report.part,
    documents=report.documents,
    joined=_joined,
)
