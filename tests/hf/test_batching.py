"""Calls gathered into batches, with a thread that does no more than a test wants; none of it needs torch."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from calipers.clients.huggingface.client import Batching


class Scene:
    """A gathering whose work waits until it is let go, and tells what it was given."""

    def __init__(self, answer=lambda one: one * 10):
        self.batches, self.answer = [], answer
        self.go = threading.Event()
        self.thread = ThreadPoolExecutor(1)
        self.gathering = Batching(self.thread, self.work)

    def work(self, batch):
        self.batches.append(list(batch))
        self.go.wait()
        return [self.answer(one) for one in batch]

    async def busy(self):
        while not self.batches:
            await asyncio.sleep(0)


def test_what_arrives_together_goes_together():
    scene = Scene()
    scene.go.set()

    async def all_of_them():
        return await asyncio.gather(*[scene.gathering.ask(n) for n in range(5)])

    assert asyncio.run(all_of_them()) == [0, 10, 20, 30, 40]
    assert scene.batches == [[0, 1, 2, 3, 4]]


def test_what_arrives_while_it_is_busy_waits_and_goes_together():
    scene = Scene()

    async def all_of_them():
        first = asyncio.create_task(scene.gathering.ask(1))
        await scene.busy()
        others = [asyncio.create_task(scene.gathering.ask(n)) for n in (2, 3)]
        await asyncio.sleep(0)  # they have asked
        scene.go.set()
        return await asyncio.gather(first, *others)

    assert asyncio.run(all_of_them()) == [10, 20, 30]
    assert scene.batches == [[1], [2, 3]]


def test_errors_reach_their_own_callers():
    scene = Scene(lambda one: KeyError("odd") if one % 2 else one)
    scene.go.set()

    async def all_of_them():
        return await asyncio.gather(*[scene.gathering.ask(n) for n in range(3)], return_exceptions=True)

    first, second, third = asyncio.run(all_of_them())
    assert (first, third) == (0, 2)
    assert isinstance(second, KeyError)


def test_work_that_breaks_leaves_nobody_waiting():
    def broken(one):
        raise ZeroDivisionError

    scene = Scene(broken)
    scene.go.set()

    async def all_of_them():
        return await asyncio.gather(*[scene.gathering.ask(n) for n in range(2)], return_exceptions=True)

    assert [type(end) for end in asyncio.run(all_of_them())] == [ZeroDivisionError] * 2


def test_a_caller_who_goes_away_is_not_answered_and_holds_nobody_up():
    scene = Scene()

    async def all_of_them():
        first, second = (asyncio.create_task(scene.gathering.ask(n)) for n in (1, 2))
        await scene.busy()
        first.cancel()
        waiting = asyncio.create_task(scene.gathering.ask(3))
        gone = asyncio.create_task(scene.gathering.ask(4))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        scene.go.set()
        return first, await second, await waiting

    first, second, third = asyncio.run(all_of_them())
    assert first.cancelled()
    assert (second, third) == (20, 30)
    assert scene.batches == [[1, 2], [3]]  # the one who left before it began is not asked for


def test_it_can_be_asked_from_one_loop_after_another():
    scene = Scene()
    scene.go.set()
    assert [asyncio.run(scene.gathering.ask(n)) for n in (1, 2)] == [10, 20]
