"""Finished runs of lm-evaluation-harness' tasks, found again from their folders: what was run, without a model.

The documents are read again from the task's own files; what a model said to them stands in the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from calipers.errors import InputError
from calipers.formats.run_plan import PLAN, is_run, read_plan
from calipers.running import provenance
from calipers.running.job import Job
from calipers.running.settings import load_seeds
from calipers.systems.lm_eval.jobs.settings import Loaded, wanted
from calipers.systems.lm_eval.jobs.suite import check_documents, suite
from calipers.tasks.load_seeds import LOAD_SEEDS

KEPT = (
    *("benchmark", "model", "samples", "lm_eval", "num_fewshot", "include_path", "load_seeds", "confidence", "seed"),
    *("apply_chat_template", "fewshot_as_multiturn", "system_instruction", "default_metrics"),
)


class _Setting(msgspec.Struct):
    value: Any = None


class _Settings(msgspec.Struct):
    settings: dict[str, _Setting] = {}


def is_theirs(path: str) -> bool:
    """Whether a path is the folder of a run of such a task."""
    return is_run(path) and _settings(path).get("lm_eval") is not None


def stored_runs(
    paths: Sequence[str], tasks: Loaded | None = None, *, trust: bool = False
) -> tuple[list[tuple[Job, Path]], list[str]]:
    """The runs in some folders, as `lm_eval_report.theirs` takes them; and notes on task files that have changed.

    A run's own word that its code is to be trusted is not enough, as who reads it may be somebody else: ``trust`` is
    the reader's.
    """
    tasks = tasks or Loaded()
    found: list[tuple[Job, Path]] = []
    notes: list[str] = []
    for path in paths:
        settings = _settings(path)
        held = {name: value for name, value in settings.items() if name in KEPT}
        if not isinstance(held.get("benchmark"), str) or not isinstance(held.get("model"), str):
            raise InputError.at(str(Path(path) / PLAN), "does not say what was run", "expected the plan of a run")
        held["include_path"] = tuple(held.get("include_path") or ())
        held["load_seeds"] = load_seeds(str(Path(path) / PLAN), held.get("load_seeds", LOAD_SEEDS))
        job = Job(**held, trust=trust)
        judged = settings.get("predict_only") is not True  # its plan is of tasks that nobody scores
        then = replace(wanted(job), predict_only=not judged)
        asked = suite(tasks.task(job.benchmark, str(job.lm_eval), then), scored=judged)
        check_documents(Path(path), asked.name, asked.metadata["lm_eval"]["document_hashes"])
        if provenance.identity(job, asked)["tasks"] != read_plan(path).identity.get("tasks"):
            notes.append(f"{path}: {job.benchmark} is not what it was when it was run; it is scored as it is now")
        found.append((job, Path(path)))
    return found, notes


def _settings(path: str) -> dict[str, Any]:
    place = Path(path) / PLAN
    try:
        held = msgspec.json.decode(place.read_bytes(), type=_Settings).settings
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError.at(str(place), f"is no plan of a run ({error})") from None
    return {name: setting.value for name, setting in held.items()}
