"""The limit on calls in flight: what raises it, what cuts it, and what does not change it."""

from __future__ import annotations

import asyncio
import random

import pytest
from clients.virtual import VirtualLoop, run

from calipers.clients.pace import BREATH, PATIENCE, Pace, Shut


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def succeed(pace: Pace, times: int) -> None:
    for _ in range(times):
        pace.succeeded()


def refuse(pace: Pace, clock: Clock, times: int = PATIENCE + 1) -> None:
    """Calls that are rejected one after the other, each after the pause of the one before."""
    for _ in range(times):
        pace.too_many(1.0)
        clock.now += 1.0


def test_pauses_that_do_not_help_halve_the_limit_once_in_a_breath():
    async def scene():
        clock = Clock()
        pace = Pace(64, clock)
        refuse(pace, clock, PATIENCE)
        assert pace.limit == 64  # the rate alone may have been the cause
        for _ in range(30):  # the other calls in flight are rejected, too
            pace.too_many(None)
        assert pace.limit == 32
        clock.now += BREATH
        pace.too_many(None)
        assert pace.limit == 16

    asyncio.run(scene())


def test_an_answer_between_two_pauses_spares_the_limit():
    async def scene():
        clock = Clock()
        pace = Pace(64, clock)
        for _ in range(10):
            refuse(pace, clock, PATIENCE)
            pace.succeeded()
        assert pace.limit == 64

    asyncio.run(scene())


def test_the_limit_never_falls_below_one():
    async def scene():
        clock = Clock()
        pace = Pace(4, clock)
        refuse(pace, clock, 20)
        assert pace.limit == 1

    asyncio.run(scene())


def test_as_many_successes_as_the_limit_grow_it_by_one():
    async def scene():
        clock = Clock()
        pace = Pace(8, clock)
        refuse(pace, clock)
        succeed(pace, 3)
        assert pace.limit == 4
        succeed(pace, 1)
        assert pace.limit == 5
        succeed(pace, 1_000)
        assert pace.limit == 8  # never above the user's limit

    asyncio.run(scene())


def test_a_server_that_wants_to_be_left_alone_is():
    async def scene():
        pace = Pace(2)
        pace.too_many(0.05)
        assert 0 < pace.pause <= 0.05
        await pace.enter()
        assert pace.pause == 0
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


def begun_at(loop: VirtualLoop, pace: Pace, calls: int) -> list[float]:
    """The times at which a number of calls begin, if each ends at once."""

    async def scene():
        times = []
        for _ in range(calls):
            await pace.enter()
            times.append(loop.now)
            pace.leave()
        return times

    return run(loop, scene())


def test_without_a_complaint_nothing_is_spaced():
    loop = VirtualLoop()
    assert set(begun_at(loop, Pace(2, loop.time), 1000)) == {1000.0}


def test_a_complaint_that_names_no_time_is_followed_by_longer_and_longer_pauses():
    loop = VirtualLoop()
    pace = Pace(64, loop.time, Longest())

    async def scene():
        pauses = []
        for _ in range(8):
            await pace.enter()
            pace.leave()
            pace.too_many(None)
            pauses.append(pace.pause)
        return pauses

    assert run(loop, scene()) == pytest.approx([0.25, 0.5, 1, 2, 4, 8, 8, 8])


class Longest(random.Random):
    def uniform(self, a, b):
        return b


def test_who_came_first_goes_first_however_often_it_was_refused():
    loop = VirtualLoop()
    pace = Pace(1, loop.time)
    order = []

    async def call(name, turn):
        await pace.enter(turn)
        order.append(name)
        pace.leave()

    async def scene():
        first = pace.turn()
        await pace.enter(first)
        later = [asyncio.create_task(call(name, pace.turn())) for name in ("second", "third")]
        await asyncio.sleep(0)
        pace.too_many(1.0)
        pace.leave()
        await asyncio.gather(call("first", first), *later)
        await call("fourth", pace.turn())

    run(loop, scene())
    assert order == ["first", "second", "third", "fourth"]


def test_nobody_slips_in_before_those_who_wait():
    async def scene():
        pace = Pace(1)
        await pace.enter()
        waiting = asyncio.create_task(pace.enter())
        await asyncio.sleep(0)
        pace.leave()  # the slot is released at this moment
        assert not pace.entered()
        await waiting
        assert pace.in_flight == 1

    asyncio.run(scene())


def test_one_who_is_cancelled_with_a_place_gives_it_back():
    async def scene():
        pace = Pace(1)
        await pace.enter()
        waiting = asyncio.create_task(pace.enter())
        await asyncio.sleep(0)
        pace.leave()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert (pace.in_flight, pace.entered()) == (0, True)

    asyncio.run(scene())
