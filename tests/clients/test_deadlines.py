"""Deadlines: which calls they cancel, and whether a cancellation was theirs."""

from __future__ import annotations

import asyncio

import pytest

from calipers.clients.openai import Deadlines


async def call(deadlines, work):
    """The answer of the work, or "late"."""
    begun = deadlines.begin()
    try:
        return await work
    except asyncio.CancelledError:
        if not deadlines.end(begun):
            raise
        return "late"
    finally:
        deadlines.end(begun)


async def never():
    await asyncio.get_running_loop().create_future()


async def at_once():
    return "answer"


def test_only_what_takes_too_long_is_late():
    async def scene():
        deadlines = Deadlines(0.02)
        found = await asyncio.gather(call(deadlines, never()), call(deadlines, at_once()), call(deadlines, never()))
        deadlines.close()
        return found

    assert asyncio.run(scene()) == ["late", "answer", "late"]


def test_a_task_that_was_late_goes_on_and_may_be_late_again():
    async def scene():
        deadlines = Deadlines(0.01)
        return [await call(deadlines, work()) for work in (never, at_once, never)], asyncio.current_task().cancelling()

    assert asyncio.run(scene()) == (["late", "answer", "late"], 0)


def test_a_cancellation_from_elsewhere_is_no_lateness():
    async def scene():
        deadlines = Deadlines(60)
        task = asyncio.create_task(call(deadlines, never()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        deadlines.close()

    asyncio.run(scene())


def test_cancelled_twice_over_it_ends_as_cancelled():
    async def scene():
        deadlines = Deadlines(0)
        task = asyncio.create_task(call(deadlines, never()))
        await asyncio.sleep(0)
        deadlines._look()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scene())
