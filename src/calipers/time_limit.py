"""A call with a time limit: SIGALRM, which `re` checks for while it matches."""

from __future__ import annotations

import gc
import signal

# From beneath the module `signal`: up to 3.12 its wrappers look every handler up among the names of signals,
# and that it is none of them costs more than all the rest of an alarm.
from _signal import getitimer, getsignal, setitimer  # type: ignore[import-not-found]  # has no stubs
from _signal import signal as handle
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

ALARM, TIMER = int(signal.SIGALRM), int(signal.ITIMER_REAL)
FREE = (signal.SIG_DFL, signal.SIG_IGN)
AGAIN = 0.1  # seconds; whatever runs when an alarm comes, such as somebody's __del__, may swallow what it raises


class Rang(Exception):
    """The limit has passed."""


class Unavailable(Exception):
    """There is no alarm to be had: not the main thread, or somebody else waits for it."""


_armed = False  # so that an alarm that comes a moment late, when all is over, does nothing


def within(limit: float, call: Callable[[], T]) -> T:
    """What a call returns; `Rang` when it takes longer than ``limit`` seconds.

    Handler and timer are found and left as they were; one that is in use is not touched. A running event
    loop is woken by an alarm that rang, finds that it knows of none, and goes on.
    """
    global _armed
    before = getsignal(ALARM)
    if before not in FREE or getitimer(TIMER)[0]:
        raise Unavailable
    try:
        handle(ALARM, _ring)
    except ValueError:  # not the main thread
        raise Unavailable from None
    collects = gc.isenabled()
    try:
        gc.disable()  # a collection calls what swallows an alarm, and Python tells the user of that
        _armed = True
        setitimer(TIMER, max(limit, 1e-6), AGAIN)  # zero would switch it off
        return call()
    finally:
        _armed = False
        setitimer(TIMER, 0)
        handle(ALARM, before)
        if collects:
            gc.enable()


def _ring(signum: int, frame: Any) -> None:
    if _armed:
        raise Rang
