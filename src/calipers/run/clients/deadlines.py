"""How long calls may take: one timer for all that are under way, in place of one for each."""

from __future__ import annotations

import asyncio


class Deadlines:
    """Cancels calls that take longer than so many seconds.

    All calls have the same time, so the oldest is always due first, and one timer, set for the oldest,
    is enough. A timer for each call, as aiohttp sets one, costs a twelfth of a call to a quick server.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due: dict[asyncio.Task[object], float] = {}  # the oldest first
        self._late: set[asyncio.Task[object]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> asyncio.Task[object]:
        """Start the time of the call that this task makes; the task is what `end` wants."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        due = self._due[task] = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_at(due, self._look)
        return task

    def end(self, task: asyncio.Task[object]) -> bool:
        """The call is over; whether it was cancelled here, and by nobody else, for taking too long."""
        self._due.pop(task, None)
        if task not in self._late:
            return False
        self._late.discard(task)
        return task.uncancel() == 0

    def close(self) -> None:
        """Let go of the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        """Cancel what is due, and look again when the next is."""
        loop, self._timer = asyncio.get_running_loop(), None
        now = loop.time()
        for task, due in list(self._due.items()):
            if due > now:
                self._timer = loop.call_at(due, self._look)
                return
            del self._due[task]
            self._late.add(task)
            task.cancel()
