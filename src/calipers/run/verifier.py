"""The seam to a judge of answers: a task and its completion in, a verdict out, or a `VerifierError`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec
from msgspec import field

from calipers.run.client import Completion
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
