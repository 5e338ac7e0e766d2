"""One thread for code that does not wait, which nobody waits for, either.

The threads of `concurrent.futures` are joined before the interpreter ends: a model that hangs would keep a command
from ending that the user has given up twice over.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any


class Aside:
    """A thread that makes one call after another, begun with the first of them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._begun = False

    async def call(self, code: Callable[[], Any]) -> Any:
        """What the code returns; what it raises, a request to end the process included, is returned, too."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls.put((answer, code))
        if not self._begun:
            self._begun = True
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
        return await answer

    def close(self) -> None:
        """Let the thread end after the call it is at."""
        self._calls.put(None)

    def _work(self) -> None:
        while (one := self._calls.get()) is not None:
            answer, code = one
            if answer.cancelled():  # whoever asked has given up before it was begun
                continue
            try:
                found = code()
            except BaseException as error:  # a thread that died of it would leave the others waiting for ever
                found = error
            with suppress(RuntimeError):  # the loop is closed: nobody is left to tell
                answer.get_loop().call_soon_threadsafe(_tell, answer, found)


def _tell(answer: asyncio.Future[Any], found: Any) -> None:
    if not answer.done():  # or cancelled
        answer.set_result(found)
