"""Threads that wait for sandboxes, one for each core: more at once would only make deadlines run out."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import Event
from typing import TypeVar

Result = TypeVar("Result")


async def apart(work: Callable[[Event], Result]) -> Result:
    """Do blocking work on a thread; its event is set when nobody waits for the result any more."""
    stop = Event()
    try:
        return await asyncio.get_running_loop().run_in_executor(_pool(), work, stop)
    finally:
        stop.set()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="sandbox")
