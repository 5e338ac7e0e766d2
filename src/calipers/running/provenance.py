"""The provenance of a run, written before it starts: its identity and its plan."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from calipers import __version__
from calipers.clients.address import file_sha256, source_file
from calipers.clients.huggingface import PLACEMENT
from calipers.errors import InputError
from calipers.formats import target_hash
from calipers.names import TASK_LIBRARY_NAME, code_file
from calipers.running import Job
from calipers.running.folder import ENDPOINT, JUDGES
from calipers.running.library import code_of
from calipers.tasks import Suite, Task
from calipers.tasks.questions import is_template_file
from calipers.verifiers import REASONING, SPLIT
from calipers.verifiers.reasoning import splits


def identity(
    job: Job,
    suite: Suite,
    endpoint: str | None = None,
    judges: Mapping[str, str] | None = None,
    code: str | None = None,
) -> dict[str, Any]:
    """The identity of a run: its tasks, its model and endpoint, its requests, and its verification.

    Runs with the same identity are the same run. Not part of it are the amount (samples, limit), the speed
    (concurrency, retries, device) and the metrics.

    ``judges`` has the endpoint of each judge model that the environment determines, as the tasks name only the models.
    ``code`` is the hash of the user's own verifier code.
    """
    model_args = {name: value for name, value in job.model_args.items() if name not in PLACEMENT}
    return {
        "benchmark": suite.name,
        "tasks": _content(suite.tasks),
        "model": job.model,
        **({} if endpoint is None else {ENDPOINT: endpoint}),
        **({"model_args": model_args} if model_args else {}),
        "prompt": {
            "system": job.system_prompt,
            "template": job.user_template,
            "api": job.api,
            **({"chat_template": job.apply_chat_template} if isinstance(job.apply_chat_template, str) else {}),
        },
        "sampling": {
            "max_tokens": job.max_tokens,
            "temperature": job.temperature,
            "stop": list(job.stop),
            "extra": dict(job.gen_kwargs),
            "seed": job.seed,
        },
        "judged": not job.predict_only,
        **({} if job.documents is None else {"documents": sorted({*job.documents})}),
        **({JUDGES: dict(judges)} if judges else {}),
        **({} if code is None else {"verifier_code": code}),
        **({REASONING: SPLIT} if _splits_reasoning(job, suite) else {}),
    }


def _splits_reasoning(job: Job, suite: Suite) -> bool:
    """Whether reasoning is split off the completions of any task; a run that verifies whole ones has no such key."""
    return job.splits_reasoning and any(task.verifier is not None and splits(task) for task in suite.tasks)


def plan(
    job: Job, suite: Suite, order: Sequence[Task], endpoint: str | None = None, batch: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The plan of a run: every setting with its origin, the tasks in their order, versions and input files.

    Its settings, versions and inputs are those of the latest start; ``starts`` has those of all starts.
    """
    settings = job.settings()
    versions = {"calipers": __version__, "python": sys.version.split()[0], **_libraries()}
    sources = {"versions": versions, "git": _commit(), "inputs": _inputs(job, suite)}
    now = datetime.now(UTC).isoformat(timespec="seconds")
    given = {name: setting["value"] for name, setting in settings.items() if setting["from"] != "default"}
    return {
        "dataset": suite.name,
        "model": job.model,
        "samples": job.samples,
        "settings": settings,
        **sources,
        "created_at": now,
        "starts": [{"at": now, ENDPOINT: endpoint, "settings": given, **sources}],
        **({} if batch is None else {"batch": batch}),
        **{name: suite.metadata[name] for name in (TASK_LIBRARY_NAME,) if name in suite.metadata},
        "tasks": PlannedTasks(order),
    }


@cache  # because a group of hundreds of tasks is hundreds of runs of one process
def _libraries() -> dict[str, str]:
    return {name: version(name) for name in ("aiohttp", "msgspec", "numpy")}


class PlannedTasks:
    """The tasks as rows of the plan; each row is made when it is needed, as there may be many."""

    def __init__(self, order: Sequence[Task]) -> None:
        self._order = order

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for task in self._order:
            metadata = {"metadata": task.metadata} if task.metadata else {}
            hashed = target_hash(task.target)
            yield {"task": task.id, **metadata, **({"target": hashed} if hashed else {})}


def _content(tasks: Sequence[Task]) -> str:
    """The hash of the tasks' content, independent of their order; InputError for text that no file could have."""
    encode = msgspec.json.Encoder(order="sorted").encode
    hasher = sha256()
    for task in sorted(tasks, key=lambda task: task.id):  # ids are unique
        try:
            hasher.update(encode(task) + b"\n")
        except UnicodeEncodeError:
            problem = "half of a surrogate pair stands alone in its text"
            raise InputError.at(f"task {task.id!r}", problem, "expected whole characters") from None
    return hasher.hexdigest()


def _inputs(job: Job, suite: Suite) -> list[Mapping[str, str]]:
    """The files that the run reads, with their hashes: the tasks, and a model, a verifier or a template in a file."""
    inputs: list[Mapping[str, str]] = []
    if suite.sha256:
        inputs.append({"path": str(suite.root or job.benchmark), "sha256": suite.sha256})
    kind, _, name = job.model.partition("/")
    file = source_file(name) if kind == "python" else Path(name) if kind == "replay" else None
    files = [file, Path(code_file(code)) if (code := code_of(job)) is not None else None]
    if job.template is not None and is_template_file(job.template):
        files.append(Path(job.template))
    existing = [file for file in files if file is not None and file.is_file()]
    return [*inputs, *({"path": str(file), "sha256": file_sha256(file)} for file in existing)]


def _commit() -> str | None:
    """The git commit of the working directory; None if it is not in a repository."""
    try:
        git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return git.stdout.strip() or None
