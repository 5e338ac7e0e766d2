"""What EvSys demands of a metric; lent as ``evsys_sdk.protocols``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol, runtime_checkable

__all__ = ["Metric"]


@runtime_checkable
class Metric(Protocol):
    """A name and a ``compute``; ``isinstance`` looks for both attributes and at nothing else."""

    name: ClassVar[str]

    def compute(self, task_rewards: Sequence[Sequence[float]]) -> float:
        """One number from the rewards of every sample, ``task_rewards[task][sample]``."""
        ...
