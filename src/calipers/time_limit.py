"""A call with a time limit, enforced by SIGALRM, because `re` checks for signals while it matches."""

from __future__ import annotations

import gc
import signal

# The functions below the module `signal`: up to Python 3.12, its wrappers try to convert every handler to an enum
# member, and the failed conversion takes longer than everything else here.
from _signal import getitimer, getsignal, setitimer  # type: ignore[import-not-found]  # has no stubs
from _signal import signal as handle
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

ALARM, TIMER = int(signal.SIGALRM), int(signal.ITIMER_REAL)
FREE = (signal.SIG_DFL, signal.SIG_IGN)
AGAIN = 0.1  # seconds between repeated alarms: code that an alarm interrupts, such as a __del__, may swallow `Rang`


class Rang(Exception):
    """The time limit was reached."""


class Unavailable(Exception):
    """The alarm cannot be used: this is not the main thread, or other code uses the alarm."""


_armed = False  # an alarm that comes after the call has ended does nothing


def within(limit: float, call: Callable[[], T]) -> T:
    """Return what the call returns; raise `Rang` if it takes longer than ``limit`` seconds.

    The signal handler and the timer are restored afterwards; if other code uses them, `Unavailable` is raised. An
    alarm wakes a running event loop, which ignores it because it has no handler for this signal.
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
        gc.disable()  # an exception in a __del__ during a collection is swallowed, and Python prints a warning
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
