"""The limit on calls in flight: what grows it, what shrinks it, what does neither."""

from __future__ import annotations

import asyncio

import pytest

from calipers.run.pace import BREATH, Pace, Shut


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def succeed(pace: Pace, times: int) -> None:
    for _ in range(times):
        pace.succeeded()


def test_a_429_halves_the_limit_once_in_a_breath():
    async def scene():
        clock = Clock()
        pace = Pace(64, clock)
        for _ in range(30):  # the others that were under way fail alike
            pace.too_many(None)
        assert pace.limit == 32
        clock.now += BREATH
        pace.too_many(None)
        assert pace.limit == 16

    asyncio.run(scene())


def test_the_limit_never_falls_below_one():
    async def scene():
        clock = Clock()
        pace = Pace(4, clock)
        for _ in range(10):
            pace.too_many(None)
            clock.now += BREATH
        assert pace.limit == 1

    asyncio.run(scene())


def test_as_many_successes_as_the_limit_grow_it_by_one():
    async def scene():
        pace = Pace(8)
        pace.too_many(None)
        succeed(pace, 3)
        assert pace.limit == 4
        succeed(pace, 1)
        assert pace.limit == 5
        succeed(pace, 1_000)
        assert pace.limit == 8  # never beyond what the user allows

    asyncio.run(scene())


def test_a_server_that_wants_to_be_left_alone_is():
    async def scene():
        pace = Pace(2)
        pace.too_many(0.05)
        assert 0 < pace.held <= 0.05
        await pace.enter()
        assert pace.held == 0
        assert pace.in_flight == 1

    asyncio.run(scene())


def test_who_finds_no_place_waits_for_one():
    async def scene():
        pace = Pace(1)
        await pace.enter()
        second = asyncio.create_task(pace.enter())
        await asyncio.sleep(0)
        assert not second.done()
        pace.leave()
        await second
        assert pace.in_flight == 1

    asyncio.run(scene())


def test_one_who_was_cancelled_takes_no_place():
    async def scene():
        pace = Pace(1)
        await pace.enter()
        gone, waiting = asyncio.create_task(pace.enter()), asyncio.create_task(pace.enter())
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        pace.leave()
        await asyncio.wait_for(waiting, 5)

    asyncio.run(scene())


def test_shutting_tells_those_who_wait_and_those_who_come():
    async def scene():
        pace = Pace(1)
        await pace.enter()
        waiting = asyncio.create_task(pace.enter())
        await asyncio.sleep(0)
        pace.shut()
        with pytest.raises(Shut):
            await waiting
        with pytest.raises(Shut):
            await pace.enter()

    asyncio.run(scene())
