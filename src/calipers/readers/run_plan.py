"""What a run's writer and its readers agree on: the names of its files, its plan, and where its log ends."""

from __future__ import annotations

import os
from typing import IO, Annotated, Any

import msgspec

from calipers.errors import InputError
from calipers.readers.files import BLOCK

PLAN, LOG = "plan.json", "rollouts.jsonl"
SCHEMA = "calipers.plan/1"
TORN = f"{LOG}: the last line was cut off by a crash and is dropped; its rollout is owed again"

_Samples = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class PlannedTask(msgspec.Struct, gc=False):
    """A task of a plan. ``samples`` stands there only where it is not the plan's own number."""

    task: str
    metadata: msgspec.Raw = msgspec.Raw(b"null")  # an object or null
    samples: _Samples | None = None


class RunPlan(msgspec.Struct, kw_only=True):
    """What a run set out to do, as far as others ask."""

    schema: str
    identity: dict[str, Any] = msgspec.field(default_factory=dict)
    dataset: str | None = None
    model: str | None = None
    agent: str | None = None
    samples: _Samples
    tasks: list[PlannedTask]  # in the order of the run
    created_at: str | None = None

    def of(self, task: PlannedTask) -> int:
        """How many samples of a task are planned."""
        return self.samples if task.samples is None else task.samples


class _Schema(msgspec.Struct):
    schema: str = ""


def is_run(path: str) -> bool:
    """Whether a path is the directory of a run: one with a plan."""
    return os.path.isfile(os.path.join(path, PLAN))


def read_plan(folder: str) -> RunPlan:
    """The plan in a run's directory; InputError when it is none that we can read."""
    path = os.path.join(folder, PLAN)
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise InputError.at(path, f"cannot be read ({error.strerror})") from None
    try:
        schema = msgspec.json.decode(data, type=_Schema).schema
        if schema != SCHEMA:
            right = f"expected {SCHEMA!r}; was it written by another version?"
            raise InputError.at(path, f"schema is {schema[:60]!r}", right)
        plan = msgspec.json.decode(data, type=RunPlan)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError.at(path, f"is no plan of a run ({error})", "expected the file as calipers wrote it") from None
    seen = set[str]()
    for task in plan.tasks:
        if task.task in seen:
            raise InputError.at(path, f"task {task.task!r} stands twice", "expected each task once")
        if bytes(memoryview(task.metadata)[:1]) not in (b"{", b"n"):
            raise InputError.at(path, f"the metadata of task {task.task!r} is no object", "expected an object or null")
        seen.add(task.task)
    return plan


def whole(path: str, size: int | None = None) -> int:
    """How many of a log's first ``size`` bytes are whole lines: all, unless a crash cut off the last one.

    A last line is cut off when it has no newline, or is no JSON: after a power failure a file may
    have its size and not all of its bytes.
    """
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END) if size is None else size
        start = _line_start(file, size)
        if start < size:
            return start
        start = _line_start(file, size - 1)
        file.seek(start)
        return size if _is_json(file.read(size - start)) else start


def _line_start(file: IO[bytes], end: int) -> int:
    """Where the line starts that reaches up to ``end``."""
    while end > 0:
        step = min(BLOCK, end)
        file.seek(end - step)
        found = file.read(step).rfind(b"\n")
        if found >= 0:
            return end - step + found + 1
        end -= step
    return 0


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line or b"{}", type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return not line.strip()  # a blank line is none that a crash left
    return True
