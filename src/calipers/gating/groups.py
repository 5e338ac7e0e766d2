"""The groups of a result and their numbers, as far as a gate needs them."""

from __future__ import annotations

from typing import Any

import msgspec


class Number(msgspec.Struct, frozen=True, gc=False):
    """An estimate, as far as a gate needs it."""

    value: float | None
    interval: tuple[float, float] | None = None
    why: str | None = None
    tasks: int = 0
    better: bool | None = None  # of a number of lm-evaluation-harness' table: whether a higher one is
    bounds: tuple[float, float] | None = None  # where the value may lie, whatever the gaps hold
    remark: str | None = None  # what must be said beside the answer
    samples: int = 0
    higher_is_better: bool | None = None
    lacking: bool = False  # of a difference: some rollouts of its tasks are missing


class Ledger(msgspec.Struct, frozen=True, gc=False):
    """How many rollouts there should be, and how many have no number."""

    planned: int
    gaps: int


class Stopped(msgspec.Struct, frozen=True, gc=False):
    """The stopping rule that ended a run early."""

    bias: str | None = None


class Cut(msgspec.Struct, frozen=True):
    """Some rollouts of a group."""

    ledger: Ledger
    metrics: dict[str, Number]


class Group(msgspec.Struct, frozen=True):
    """The rollouts of one agent, model and dataset."""

    ledger: Ledger
    metrics: dict[str, Number]
    agent: str | None = None
    model: str | None = None
    dataset: str | None = None
    breakdowns: dict[str, dict[str, Cut]] = msgspec.field(default_factory=dict)
    economics: dict[str, Any] = msgspec.field(default_factory=dict)
    stopped: Stopped | None = None

    @property
    def who(self) -> tuple[str | None, str | None, str | None]:
        """Agent, model and dataset."""
        return self.agent, self.model, self.dataset

    @property
    def title(self) -> str:
        """``dataset · model · agent``, as far as they are known."""
        return " · ".join(part for part in (self.dataset, self.model, self.agent) if part) or "(unnamed)"

    def numbers(self) -> dict[str, Number]:
        """Its metrics, and those of what it cost."""
        spent = {name: one for name, one in self.economics.items() if name != "total"}
        return {**msgspec.convert(spent, dict[str, Number]), **self.metrics}
