"""What EvSys demands of a metric, a client and a verifier; lent as ``evsys_sdk.protocols``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol, runtime_checkable

from calipers.systems.evsys.lent.verifiers import VerificationResult, Verifier

__all__ = ["InferenceClient", "Metric", "VerificationResult", "Verifier"]


@runtime_checkable
class Metric(Protocol):
    """A name and a ``compute``; ``isinstance`` looks for both attributes and at nothing else."""

    name: ClassVar[str]

    def compute(self, task_rewards: Sequence[Sequence[float]]) -> float:
        """One number from the rewards of every sample, ``task_rewards[task][sample]``."""
        ...


class TextGenerator(Protocol):
    """What `Benchmark.score` needs of a client: text in, text out."""

    def generate(
        self, *, prompt: str, max_tokens: int = 256, temperature: float = 0.0, stop: list[str] | None = None
    ) -> str:
        """The completion of a prompt."""
        ...


@runtime_checkable
class InferenceClient(TextGenerator, Protocol):
    """A name and a ``generate``. ``isinstance`` looks for both attributes and at nothing else."""

    name: ClassVar[str]
