"""The seam to a judge of answers: a task and its completion in, a verdict out, or a `VerifierError`."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any, Protocol

import msgspec
from msgspec import field

from calipers.clients.client import Completion
from calipers.errors import InputError, UnknownName
from calipers.tasks.task import Task


class Verdict(msgspec.Struct, frozen=True):
    """What an answer is worth. ``rewards`` is for verifiers with several; ``reward`` is then one of them, or None."""

    reward: float | None
    rewards: Mapping[str, float] = field(default_factory=dict)
    answer: Any = None  # what was found in the text: a JSON scalar or list; maj@k votes with it
    outcome: str = ""  # a word of the ledger other than `scored`, such as `unparsed`; "" leaves it open
    fields: Mapping[str, float] = field(default_factory=dict)  # further columns of numbers
    usage: Mapping[str, float] = field(default_factory=dict)  # what judging itself cost


class Verifier(Protocol):
    """A judge. It must not keep state between calls: the order of rollouts is nobody's promise."""

    async def verify(self, task: Task, completion: Completion) -> Verdict:
        """The verdict; `VerifierError` when there can be none."""
        ...


def fault(task: Task, wrong: str, right: str) -> InputError:
    """The error for a task that its verifier can never judge."""
    return InputError.at(f"task {task.id!r}", wrong, right)


def check_names(task: Task, known: Collection[str]) -> None:
    """Refuse a param that the verifier does not have: a slip of the pen would go unnoticed."""
    for name in task.params:
        if name not in known:
            raise UnknownName(f"task {task.id!r}: {UnknownName.of(f'param of {task.verifier}', name, known)}")


def check_flag(task: Task, name: str) -> None:
    """Refuse a param that is neither true nor false; any text would be true, "false" included."""
    value = task.params.get(name, False)
    if value not in (True, False):
        raise fault(task, f"{name} is {value!r}", "expected true or false")


def check_number(task: Task, name: str, *, least: float = -math.inf) -> None:
    """Refuse a param that is no finite number, or one below the least."""
    value: Any = task.params.get(name)
    if name in task.params and not (is_number(value) and value >= least):
        right = "expected a number" if least == -math.inf else f"expected a number of at least {least:g}"
        raise fault(task, f"{name} is {value!r}", right)


def is_number(value: Any) -> bool:
    """Whether a JSON value is a finite number; true and false are none."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)
