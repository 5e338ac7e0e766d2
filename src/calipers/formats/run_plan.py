"""The files of a run beside its log: its plan, and how it stopped.

The stop of a run that ``--until`` ended, as its folder keeps it.

::

    runs/arith-openai_m-1f0a4c2e/
      stopped.json      the rule and how far the run came; written when the rule is reached, before the last calls end

Folders of earlier versions have no such file: there the sentence under ``stopped`` in result.json says it.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import IO, Annotated, Any, Final

import msgspec

from calipers.errors import InputError
from calipers.formats.source import BLOCK
from calipers.rollouts.stop import Stop

PLAN, LOG = "plan.json", "rollouts.jsonl"
IDENTITY = "identity.json"  # of a run of agents, whose jobs have their own plans
DOCUMENTS = "documents.jsonl"  # what each document of a task keeps for numbers of all of them together
PLAN_SCHEMA = "calipers.plan/1"
TORN = f"{LOG}: the last line was cut off by a crash and is dropped; its rollout will run again"

_Samples = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class PlannedTask(msgspec.Struct, gc=False):
    """A task of a plan. ``samples`` stands there only where it is not the plan's own number."""

    task: str
    metadata: msgspec.Raw = msgspec.Raw(b"null")  # an object or null
    samples: _Samples | None = None
    target: str = ""  # the hash of its target; "" without one, and in plans of earlier versions


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


class PlannedSetting(msgspec.Struct):
    """A setting of a run, as its plan keeps it."""

    value: Any = None


class _PlannedSettings(msgspec.Struct):
    settings: dict[str, PlannedSetting] = {}


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
        if schema != PLAN_SCHEMA:
            right = f"expected {PLAN_SCHEMA!r}; was it written by another version?"
            raise InputError.at(path, f"schema is {schema[:60]!r}", right)
        plan = msgspec.json.decode(data, type=RunPlan)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError.at(
            path, f"is not the plan of a run ({error})", "expected the file as calipers wrote it"
        ) from None
    seen = set[str]()
    for task in plan.tasks:
        if task.task in seen:
            raise InputError.at(path, f"task {task.task!r} appears twice", "expected each task once")
        if bytes(memoryview(task.metadata)[:1]) not in (b"{", b"n"):
            raise InputError.at(
                path, f"the metadata of task {task.task!r} is not an object", "expected an object or null"
            )
        seen.add(task.task)
    return plan


def read_settings(folder: str) -> dict[str, Any]:
    """The settings of a run's latest start, from the plan in its directory; InputError when it is none."""
    path = os.path.join(folder, PLAN)
    try:
        with open(path, "rb") as file:
            settings = msgspec.json.decode(file.read(), type=_PlannedSettings).settings
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError.at(path, f"is not the plan of a run ({error})") from None
    return {name: setting.value for name, setting in settings.items()}


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
        newline = file.read(step).rfind(b"\n")
        if newline >= 0:
            return end - step + newline + 1
        end -= step
    return 0


def _is_json(line: bytes) -> bool:
    try:
        msgspec.json.decode(line or b"{}", type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return not line.strip()  # a blank line is none that a crash left
    return True


STOPPED, RESULT = "stopped.json", "result.json"
STOP_SCHEMA: Final = "calipers.stopped/1"

_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
_SENTENCE: Final = re.compile(r"--until (['\"])(.*)\1 stopped the run after ([\d,]+) of ([\d,]+) tasks", re.DOTALL)
_RULE: Final = re.compile(r"\s*(width|lower|upper)\s*\((.+)\)\s*[<>]=?\s*\S+\s*", re.DOTALL)


class RunStop(msgspec.Struct, kw_only=True, frozen=True):
    """What a folder says of the stop of its run."""

    schema: str = STOP_SCHEMA
    rule: str
    metric: str
    side: str  # width, lower or upper
    tasks: _Count  # settled at the stop
    planned_tasks: _Count
    rollouts: _Count | None = None  # in the log at the stop; None where an earlier version did not say
    planned_rollouts: _Count | None = None  # of the whole plan, by which a later start is held against it
    stopped_at: str | None = None
    finished: bool = True  # the calls that were in flight at the stop have ended
    continued: bool = False  # a later start went on, and was not stopped by a rule
    completed: bool = False  # a later start came to the end of the plan: a fixed sample again

    def of_plan(self, planned: int, owed: int) -> Stop | None:
        """The stop as it concerns whoever reads so many planned rollouts, some still owed; None for a fixed sample.

        A run that came to the end of the very plan that it was stopped in is a fixed sample again. One that
        was continued to anything else is none: how far it went depends on what it showed.
        """
        if self.completed or (not owed and self.planned_rollouts in (None, planned)):
            return None
        return Stop(self.rule, self.metric, self.side, self.tasks, self.planned_tasks, self.continued)


class _Result(msgspec.Struct):
    stopped: str | None = None


def read_stop(folder: str) -> RunStop | None:
    """What a run's folder says of its stop; None where no rule stopped it. InputError for what cannot be read."""
    path = os.path.join(folder, STOPPED)
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return _of_result(folder)
    except OSError as error:
        raise InputError.at(path, f"cannot be read ({error.strerror})") from None
    try:
        stop = msgspec.json.decode(data, type=RunStop)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        right = "expected the file as calipers wrote it"
        raise InputError.at(path, f"is not the stop file of a run ({error})", right) from None
    if stop.schema != STOP_SCHEMA:
        right = f"expected {STOP_SCHEMA!r}; was it written by another version?"
        raise InputError.at(path, f"schema is {stop.schema[:60]!r}", right)
    return stop


def _of_result(folder: str) -> RunStop | None:
    """The stop of a run of an earlier version, from the sentence in its result."""
    sentence = None
    path = os.path.join(folder, RESULT)
    with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError), open(path, "rb") as file:
        sentence = msgspec.json.decode(file.read(), type=_Result).stopped
    return stop_said(sentence) if sentence else None


def stop_said(sentence: str) -> RunStop:
    """The stop that the sentence under ``stopped`` of a result is about; without a rule where it names none."""
    match = _SENTENCE.search(sentence)
    rule, tasks, planned = (match[2], _number(match[3]), _number(match[4])) if match else ("", 0, 0)
    parts = _RULE.fullmatch(rule)
    side, metric = (parts[1], parts[2].strip()) if parts else ("", "")
    return RunStop(rule=rule, metric=metric, side=side, tasks=tasks, planned_tasks=planned)


def _number(text: str) -> int:
    return int(text.replace(",", ""))
