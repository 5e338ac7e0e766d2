"""The stop of a run that ``--until`` ended, as its folder keeps it.

::

    runs/arith-openai_m-1f0a4c2e/
      stopped.json      the rule and how far the run came; written when the rule is reached, before the last calls end

Folders of earlier versions have no such file: there the sentence under ``stopped`` in result.json says it.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import Annotated, Final

import msgspec

from calipers.errors import InputError
from calipers.rollouts.stop import Stop

STOPPED, RESULT = "stopped.json", "result.json"
SCHEMA: Final = "calipers.stopped/1"

_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
_SENTENCE: Final = re.compile(r"--until (['\"])(.*)\1 stopped the run after ([\d,]+) of ([\d,]+) tasks", re.DOTALL)
_RULE: Final = re.compile(r"\s*(width|lower|upper)\s*\((.+)\)\s*[<>]=?\s*\S+\s*", re.DOTALL)


class RunStop(msgspec.Struct, kw_only=True, frozen=True):
    """What a folder says of the stop of its run."""

    schema: str = SCHEMA
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
        found = msgspec.json.decode(data, type=RunStop)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        right = "expected the file as calipers wrote it"
        raise InputError.at(path, f"is no stop of a run ({error})", right) from None
    if found.schema != SCHEMA:
        right = f"expected {SCHEMA!r}; was it written by another version?"
        raise InputError.at(path, f"schema is {found.schema[:60]!r}", right)
    return found


def _of_result(folder: str) -> RunStop | None:
    """The stop of a run of an earlier version, from the sentence in its result."""
    said = None
    path = os.path.join(folder, RESULT)
    with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError), open(path, "rb") as file:
        said = msgspec.json.decode(file.read(), type=_Result).stopped
    return stop_said(said) if said else None


def stop_said(sentence: str) -> RunStop:
    """The stop that the sentence under ``stopped`` of a result is about; without a rule where it names none."""
    found = _SENTENCE.search(sentence)
    rule, tasks, planned = (found[2], _number(found[3]), _number(found[4])) if found else ("", 0, 0)
    parts = _RULE.fullmatch(rule)
    side, metric = (parts[1], parts[2].strip()) if parts else ("", "")
    return RunStop(rule=rule, metric=metric, side=side, tasks=tasks, planned_tasks=planned)


def _number(text: str) -> int:
    return int(text.replace(",", ""))
