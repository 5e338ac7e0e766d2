"""Calls collected into batches, with a thread under the control of the test; these tests do not need torch."""

import asyncio
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from calipers.clients import Callers, Completion, Request, pace
from calipers.clients.huggingface import client
from calipers.clients.huggingface.client import Batching
from calipers.errors import ClientError
from calipers.running.log import Log
from calipers.running.loop import Loop, RunLimits, Status
from calipers.running.rollout import Outstanding
from calipers.tasks import Task
from calipers.verifiers import Verdict


class Scene:
    """A batching whose work waits until it is released, and records its calls."""

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
        await asyncio.sleep(0)  # so that they have called
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
    assert scene.batches == [[1, 2], [3]]  # the call that was cancelled before the batch is left out


def test_it_can_be_asked_from_one_loop_after_another():
    scene = Scene()
    scene.go.set()
    assert [asyncio.run(scene.gathering.ask(n)) for n in (1, 2)] == [10, 20]


class Model:
    """A client of a run that batches calls, and records the tasks of each batch."""

    def __init__(self, fails=()):
        self.callers, self.batches, self.fails = Callers(), [], list(fails)
        order = lambda request: (request.task, request.sample)  # noqa: E731
        self.gathering = Batching(ThreadPoolExecutor(1), self.work, self.callers, order)

    def work(self, batch):
        self.batches.append([request.task for request in batch])
        return [self.answer(request) for request in batch]

    def answer(self, request):
        if request.task in self.fails:
            self.fails.remove(request.task)
            return ClientError("once", kind="hf", retry=True)
        return Completion(request.task)

    async def complete(self, request):
        return await self.gathering.ask(request)

    async def close(self):
        pass


class Slow:
    """A verifier that takes a random number of turns of the event loop."""

    name, rerunnable = "slow", True

    def __init__(self, seed):
        self.dice = random.Random(seed)

    def check(self, task):
        pass

    async def verify(self, task, completion):
        for _ in range(self.dice.randrange(50)):
            await asyncio.sleep(0)
        return Verdict(1.0)


class Nobody:
    """An observer that does nothing."""

    def settled(self, position, sample, outcome, reward):
        pass

    def look(self, status):
        return ""


def run(tmp_path, model, tasks, verifier, concurrency=4):
    async def scene():
        log = Log(tmp_path / "log.jsonl", lambda data: data)
        loop = Loop(
            model,
            {"slow": verifier},
            lambda one: Request(one.task.id, one.sample, "q"),
            log,
            dataset="d",
            model="m",
            status=Status(tasks),
            observer=Nobody(),
            limits=RunLimits(concurrency),
            endpoint="sha256:0",
            callers=model.callers,
        )
        try:
            await loop.run(iter([Outstanding(n, Task(f"t{n}", "q", "slow", "a"), 0) for n in range(tasks)]))
        finally:
            await log.close()

    asyncio.run(scene())
    return model.batches


@pytest.mark.parametrize("seed", range(4))
def test_batches_follow_the_order_of_the_run_however_slow_a_verifier_is(tmp_path, seed):
    model = Model()
    batches = run(tmp_path, model, 10, Slow(seed))
    assert not model.gathering.impatient
    assert batches == [["t0"], ["t1", "t2", "t3", "t4"], ["t5", "t6", "t7", "t8"], ["t9"]]


def test_workers_without_a_task_are_not_waited_for(tmp_path):
    assert run(tmp_path, Model(), 3, Slow(0), concurrency=500) == [["t0"], ["t1", "t2"]]


@pytest.mark.parametrize("seed", range(3))
def test_a_call_that_is_tried_again_is_waited_for(tmp_path, monkeypatch, seed):
    monkeypatch.setattr(pace, "FIRST_WAIT", 0.0)
    batches = run(tmp_path, Model(fails=["t2"]), 8, Slow(seed))
    assert batches == [["t0"], ["t1", "t2", "t3", "t4"], ["t2", "t5", "t6", "t7"]]


def test_a_verifier_that_waits_for_the_next_batch_holds_nobody_up_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(client, "PATIENCE", 0.01)
    asked = asyncio.Event()

    class Waiting(Slow):
        async def verify(self, task, completion):
            if task.id == "t5":
                asked.set()
            if task.id == "t1":
                await asked.wait()
            return Verdict(1.0)

    model = Model()
    batches = run(tmp_path, model, 8, Waiting(0))
    assert sorted(task for batch in batches for task in batch) == [f"t{n}" for n in range(8)]
    assert "t5" in batches[2]
    assert model.gathering.impatient


def test_callers_who_go_away_are_not_waited_for():
    scene, callers = Scene(), Callers()
    scene.gathering = Batching(scene.thread, scene.work, callers)
    scene.go.set()

    async def all_of_them():
        callers.begin(3)
        first, gone = (asyncio.create_task(scene.gathering.ask(n)) for n in (1, 2))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        callers.leave()
        assert not callers.all_wait
        second = asyncio.create_task(scene.gathering.ask(3))
        return await asyncio.gather(first, second)

    assert asyncio.run(all_of_them()) == [10, 30]
    assert scene.batches == [[1, 3]]
