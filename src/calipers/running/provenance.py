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
from calipers.formats import target_hash
from calipers.names import TASK_LIBRARY_NAME, code_file
from calipers.running import Job
from calipers.running.folder import ENDPOINT, JUDGES
from calipers.running.library import code_of
from calipers.tasks import Suite, Task
from calipers.tasks.questions import is_template_file


def identity(
    job: Job,
    suite: Suite,
    endpoint: str | None = None,
    judges: Mapping[str, str] | None = None,
    code: str | None = None,
) -> dict[str, Any]:
    """What makes two runs the same run: what is asked, of whom and where, and how it is judged.

    ``judges`` are the models that judge and where the environment says they are: the tasks name them, and no place.
    ``code`` is the hash of the user's own code that judges.

    Not how much of it (samples, limit), how fast (concurrency, retries, device) or what is made of it (metrics).
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
    }


def plan(
    job: Job, suite: Suite, order: Sequence[Task], endpoint: str | None = None, batch: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The plan of a run: every setting and where it came from, the tasks in their order, and what made them.

    Its settings, versions and inputs are those of the latest start; ``starts`` has all of them.
    """
    settings = job.settings()
    versions = {"calipers": __version__, "python": sys.version.split()[0], **_libraries()}
    made = {"versions": versions, "git": _commit(), "inputs": _inputs(job, suite)}
    now = datetime.now(UTC).isoformat(timespec="seconds")
    given = {name: setting["value"] for name, setting in settings.items() if setting["from"] != "default"}
    return {
        "dataset": suite.name,
        "model": job.model,
        "samples": job.samples,
        "settings": settings,
        **made,
        "created_at": now,
        "starts": [{"at": now, ENDPOINT: endpoint, "settings": given, **made}],
        **({} if batch is None else {"batch": batch}),
        **{name: suite.metadata[name] for name in (TASK_LIBRARY_NAME,) if name in suite.metadata},
        "tasks": PlannedTasks(order),
    }


@cache  # a group of hundreds of tasks is as many runs of one process
def _libraries() -> dict[str, str]:
    return {name: version(name) for name in ("aiohttp", "msgspec", "numpy")}


class PlannedTasks:
    """The tasks as rows of the plan, each made when it is looked at: they may be many."""

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
    """The hash of what the tasks say, whatever the order of their file."""
    encode = msgspec.json.Encoder(order="sorted").encode
    hasher = sha256()
    for task in sorted(tasks, key=lambda task: task.id):  # ids stand once each
        hasher.update(encode(task) + b"\n")
    return hasher.hexdigest()


def _inputs(job: Job, suite: Suite) -> list[Mapping[str, str]]:
    """Every file the run reads, with its hash: the tasks, and a model, a verifier or a template that is a file."""
    inputs: list[Mapping[str, str]] = []
    if suite.sha256:
        inputs.append({"path": str(suite.root or job.benchmark), "sha256": suite.sha256})
    kind, _, rest = job.model.partition("/")
    file = source_file(rest) if kind == "python" else Path(rest) if kind == "replay" else None
    files = [file, Path(code_file(code)) if (code := code_of(job)) is not None else None]
    if job.template is not None and is_template_file(job.template):
        files.append(Path(job.template))
    there = [file for file in files if file is not None and file.is_file()]
    return [*inputs, *({"path": str(file), "sha256": file_sha256(file)} for file in there)]


def _commit() -> str | None:
    """The commit of the project the run is started in, where there is one."""
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
