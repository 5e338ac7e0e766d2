"""A connection whose client may not keep the server waiting for ever, nor send it a head without end."""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD: Final = 64 << 10  # bytes of a request's first line and headers
IDLE: Final = 60.0  # seconds for a whole head, and between two pieces of a body or of an answer


class Connection(H11Protocol):
    """HTTP/1.1 with an end to waiting: for a head, for the next piece of a body, and for a client to take its answer.

    The time that the server itself needs does not count.
    """

    idle = IDLE
    _since = 0.0  # when the wait began that is going on
    _unsent = 0  # bytes that the client had not taken when it was last looked at
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._timer = self.loop.call_later(self.idle, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came; a head that is still not whole goes on counting."""
        before = self._at_head()
        super().data_received(data)
        if not (before and self._at_head()):
            self._since = self.loop.time()

    def _at_head(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _look(self) -> None:
        """Hang up where the client has been waited for too long, else look again."""
        now, unsent = self.loop.time(), self.transport.get_write_buffer_size()
        stuck, self._unsent = bool(unsent) and unsent == self._unsent, unsent
        owed = self._at_head() or (self.cycle.more_body and not self.flow.read_paused)
        if unsent or not owed:
            self._since = now
        if stuck or now - self._since >= self.idle:
            self.transport.abort()
            return
        self._timer = self.loop.call_at(max(self._since + self.idle, now), self._look)
