"""Whoever watches a run: the headline number, the rule that may end it, and the display."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from calipers.live import Headline, Live, Until
from calipers.rollouts.stop import Stop
from calipers.run.loop import Status


class Screen(Protocol):
    """Where a run is shown."""

    def due(self) -> bool:
        """Whether it is time for another picture."""
        ...

    def show(self, status: Status, headline: Live | None) -> None:
        """Show where the run stands."""
        ...


class Watcher:
    """Follows one metric over the run, shows it, and stops the run when ``until`` is reached.

    ``reached`` is told of the stop at once, before the calls in flight have ended: a run that is killed
    meanwhile was stopped all the same.
    """

    def __init__(
        self,
        headline: Headline | None,
        until: Until | None,
        screen: Screen | None,
        reached: Callable[[Stop], None] = lambda _: None,
    ) -> None:
        self.headline, self._until, self._screen, self._tell = headline, until, screen, reached
        self._reached = False

    @property
    def stop(self) -> Stop | None:
        """How the rule ended the run; None for any other run, and for one that was done anyway."""
        if self._until is None or self.headline is None or not self._reached:
            return None
        now = self.headline.estimate()
        return self._until.stop(now) if now.settled < now.planned else None

    def settled(self, position: int, sample: int, outcome: str, reward: float | None) -> None:
        """Count a rollout."""
        if self.headline is not None:
            self.headline.settle(position, sample, outcome, reward)

    def look(self, status: Status) -> str:
        """Show where the run stands; the rule that ends it, when it is reached."""
        due = self._screen is not None and self._screen.due()
        if not due and self._until is None:
            return ""
        now = self.headline.estimate() if self.headline is not None else None
        if self._screen is not None and due:
            self._screen.show(status, now)
        if self._until is None or now is None or status.stopped or not self._until.reached(now):
            return ""
        self._reached = True
        self._tell(self._until.stop(now))
        return f"{self._until.text} is reached"

    def last(self, status: Status) -> None:
        """Show where the run ended."""
        if self._screen is not None:
            self._screen.show(status, self.headline.estimate() if self.headline is not None else None)
