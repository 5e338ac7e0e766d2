"""Call async code from synchronous code, also in a notebook that already runs an event loop."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from calipers.clients.client import Client
from calipers.running.log import Log
from calipers.running.loop import Loop
from calipers.running.rollout import Outstanding
from calipers.verifiers.verifier import Verifier

T = TypeVar("T")

UNHEARD = 3  # signals that the loop has not heard of: something holds it up that will not end by itself


def conduct(
    loop: Loop, client: Client, log: Log, outstanding: Iterator[Outstanding], verifiers: Iterable[Verifier] = ()
) -> None:
    """Run the loop to its end, whoever calls; Ctrl-C lets it finish what is in flight."""

    async def run_and_close() -> None:
        with interrupts(lambda: loop.stop("interrupted")):
            try:
                await loop.run(outstanding)
            except asyncio.CancelledError:
                loop.stop("interrupted")  # twice: what was in flight stays outstanding
            finally:
                await client.close()
                for verifier in verifiers:
                    if close := getattr(verifier, "close", None):
                        await close()
                await log.close()

    finish(run_and_close)


def finish(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end; in a thread of its own where this one already runs an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        with asyncio.Runner(loop_factory=_fast_loop()) as runner:
            return runner.run(work())
    answer: list[T] = []
    errors: list[BaseException] = []

    def elsewhere() -> None:
        try:
            answer.append(finish(work))  # no loop runs there
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=elsewhere, name="calipers-run")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return answer[0]


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, a quarter faster, where somebody has installed it."""
    try:
        import uvloop
    except ImportError:
        return None
    loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return loop


_IN_THREADS: list[tuple[asyncio.AbstractEventLoop, Callable[[], None]]] = []
"""The loops that run in other threads than the main one, each with what it does when it is interrupted."""


def interrupt_threads() -> None:
    """Tell every loop in another thread what Ctrl-C tells the loop in the main thread."""
    for loop, interrupted in (*_IN_THREADS,):  # which change meanwhile
        with suppress(RuntimeError):  # it has ended meanwhile
            loop.call_soon_threadsafe(interrupted)


@contextmanager
def interrupts(first: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C, or a request to terminate, calls ``first``; a second one cancels the task we are in."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    seen = 0

    def interrupted() -> None:
        nonlocal seen
        seen += 1
        if seen == 1:
            first()
        elif task is not None:
            task.cancel()

    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's to handle
        here = (loop, interrupted)
        _IN_THREADS.append(here)
        try:
            yield
        finally:
            _IN_THREADS.remove(here)
        return
    came = 0

    def unheard(number: int, frame: object) -> None:
        """Called at once, wherever we are; the loop hears of a signal only when it has its turn again."""
        nonlocal came
        came += 1
        if came - seen >= UNHEARD:
            raise asyncio.CancelledError  # into the code that holds the loop up: it fails, and the loop goes on

    signals = (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        loop.add_signal_handler(number, interrupted)
        signal.signal(number, unheard)  # beside it: the loop is told by a byte in a pipe, not by this
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
