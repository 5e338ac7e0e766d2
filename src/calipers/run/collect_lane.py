"""Agents while a collection is going: who they are, how many calls each bears, and where it all stands."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Protocol

from calipers.run.collect_row import Row
from calipers.run.pace import Pace


class Agent(Protocol):
    """Whoever makes rollouts. ``run`` is called by many workers of one event loop at once."""

    async def run(self, row: Row) -> Row:
        """The rollout of a planned row, as its verifier left it; `ClientError` for every other end."""
        ...

    async def aggregate(self, rows: list[dict[str, Any]]) -> dict[str, Any] | None:
        """The agent's own metrics of its rows; None where it computes none."""
        ...

    async def close(self) -> None:
        """Give back connections; a later call opens new ones."""
        ...


@dataclass(slots=True)
class Lane:
    """One agent, how many calls it bears, and whether it still answers."""

    name: str
    agent: Agent
    pace: Pace
    asked: bool = False  # a call was sent
    opened: asyncio.Event = field(default_factory=asyncio.Event)  # the first call was answered, or takes its time
    answered: bool = False  # some call was answered with a rollout
    refusals: int = 0  # in a row
    stopped: str = ""  # why nothing more is asked of it
    unasked: int = 0  # rollouts that stay owed because nobody was there
    last: str = ""  # what the last of these said

    def stop(self, reason: str) -> None:
        """Ask nothing more of this agent."""
        self.stopped = self.stopped or reason
        self.pace.shut()


@dataclass(slots=True)
class Standing:
    """Where a collection stands."""

    planned: int
    outcomes: Counter[str] = field(default_factory=Counter)
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)  # (outcome, what was said), the first few of them
    began: float = field(default_factory=monotonic)
    stopped: str = ""  # why no more rollouts are begun; "" while they are
    lanes: Sequence[Lane] = ()

    @property
    def done(self) -> int:
        """Rollouts that are settled."""
        return sum(self.outcomes.values())

    @property
    def in_flight(self) -> int:
        """Calls under way."""
        return sum(lane.pace.in_flight for lane in self.lanes)

    @property
    def held(self) -> float:
        """Seconds for which every agent that still answers wants to be left alone."""
        return min((lane.pace.held for lane in self.lanes if not lane.stopped), default=0.0)
