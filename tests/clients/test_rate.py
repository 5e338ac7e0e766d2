"""Rate limits on a scripted clock: the delay of rejected rollouts, and how well a run uses the limit."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise
from statistics import median

import pytest
from clients import virtual
from clients.virtual import VirtualLoop, run

from calipers.clients import Completion, Request
from calipers.clients.pace import BURST, Pace
from calipers.errors import ClientError
from calipers.running.loop import Loop, Outstanding, RunLimits, Status
from calipers.tasks import Task

LIMIT = 12  # calls a second
SERVERS = [virtual.Bucket, virtual.Sliding, virtual.Fixed]
ANSWERS = [0.05, 0.2, 0.5, 1, 2, 3, 10]  # seconds


class Limited:
    """A model behind a server with a rate limit; it records when each rollout was requested and answered."""

    def __init__(self, loop, server, seconds, wait):
        self.loop, self.server, self.seconds, self.wait = loop, server, seconds, wait
        self.first, self.answered, self.rejected, self.begun = {}, {}, 0, []

    async def complete(self, request):
        self.first.setdefault(request.task, self.loop.now)
        self.begun.append(self.loop.now)
        if not self.server.take(self.loop.now):
            self.rejected += 1
            await asyncio.sleep(0.01)
            raise ClientError("HTTP 429", kind="http_429", retry=True, wait=self.wait, slow_down=True)
        await asyncio.sleep(self.seconds)
        self.answered[request.task] = self.loop.now
        return Completion("x")

    @property
    def spans(self):
        """The time of each rollout from its first request to its answer."""
        return [self.answered[task] - self.first[task] for task in self.answered]

    @property
    def throughput(self):
        """Answers per second, without the first and the last tenth of the run."""
        ends = sorted(self.answered.values())
        tenth = len(ends) // 10
        return (len(ends) - 2 * tenth) / (ends[-tenth] - ends[tenth])


class Nowhere:
    """A log without delays, because disks take no time on a scripted clock."""

    behind = False

    def put(self, line):
        pass

    async def flush(self):
        pass


class Nobody:
    """An observer that does nothing."""

    def settled(self, position, sample, outcome, reward):
        pass

    def look(self, status):
        return ""


def conducted(client, tasks, concurrency=32, endpoint="http://server/v1"):
    """The outcomes of a run on the clock of the client."""
    clock, status = client.loop, Status(tasks)

    async def scene():
        one = Loop(
            client,
            {},
            lambda one: Request(one.task.id, one.sample, "q"),
            Nowhere(),
            dataset="d",
            model="m",
            status=status,
            observer=Nobody(),
            limits=RunLimits(concurrency),
            endpoint=endpoint,
            clock=clock.time,
            dice=random.Random(0),
        )
        await one.run(Outstanding(i, Task(f"t{i}", "q"), 0) for i in range(tasks))

    run(clock, scene())
    return status.outcomes


def limited(server, seconds, wait, tasks=300, concurrency=32, endpoint="http://server/v1"):
    client = Limited(VirtualLoop(), server, seconds, wait)
    # each was answered, and there is no verifier
    assert conducted(client, tasks, concurrency, endpoint) == {"missing": tasks}
    return client, client.loop.now - 1000.0


TABLE = {  # the slowest rollout in medians, for answers of 0.05, 0.2, 0.5, 1, 2, 3 and 10 s
    (virtual.Bucket, None): (7.4, 2.6, 1.7, 1.3, 1.2, 1.1, 1.1),
    (virtual.Sliding, None): (22.6, 5.5, 3.2, 2.0, 1.5, 1.4, 1.1),
    (virtual.Fixed, None): (22.6, 5.5, 3.2, 2.0, 1.5, 1.4, 1.1),
    (virtual.Bucket, 1.0): (23.0, 7.0, 3.6, 2.1, 1.6, 1.4, 1.2),
    (virtual.Sliding, 1.0): (23.0, 7.0, 3.6, 2.1, 1.6, 1.4, 1.2),
    (virtual.Fixed, 1.0): (23.0, 7.0, 3.6, 2.1, 1.6, 1.4, 1.2),
}


@pytest.mark.parametrize("concurrency", [8, 32, 128])
@pytest.mark.parametrize(("server", "wait"), TABLE)
def test_no_rollout_ends_much_later_than_the_median_after_its_first_request(server, wait, concurrency):
    """When retries went behind new calls, the first rollouts of a run were the last to end, after 17 to 30 medians.

    A rejection costs the rest of the server's second, which is longer than an answer if answers take less than a
    second; with Retry-After: 1 it costs a second and the time of the rejection. It never costs much more than that.
    """
    for seconds, medians in zip(ANSWERS, TABLE[server, wait], strict=True):
        client, _ = limited(server(LIMIT), seconds, wait, concurrency=concurrency)
        latest = max(client.spans)
        assert latest <= medians * median(client.spans), seconds
        assert latest <= seconds + 1.5, seconds
        assert latest <= 2 * median(client.spans) or seconds < 2


@pytest.mark.parametrize("wait", [None, 0.0, 1.0, 60.0])
@pytest.mark.parametrize("seconds", [1.0, 10.0])
@pytest.mark.parametrize("rate", [10, 60])
@pytest.mark.parametrize("server", SERVERS)
def test_a_limit_per_minute_costs_no_rollout_and_is_used(server, rate, seconds, wait):
    """Its rejections used up all tries of a rollout within half a minute, or within seconds with Retry-After: 0."""
    _, took = limited(server(rate, 60.0), seconds, wait, tasks=150)
    assert took <= 1.1 * 60 * 150 / rate + 60


class Picky(Limited):
    """A model whose server rejects the requests of some tasks, whatever their rate."""

    async def complete(self, request):
        self.server.left = 1.0 if request.task not in self.picked else 0.0
        return await super().complete(request)


@pytest.mark.parametrize("wait", [None, 0.0, 1.0])
@pytest.mark.parametrize("picked", [["t5"], [f"t{number}" for number in range(40)]], ids=["one", "all"])
def test_requests_that_are_rejected_for_another_reason_are_given_up(picked, wait):
    """OpenAI's servers answer a prompt of too many tokens as they answer too many requests."""
    client = Picky(VirtualLoop(), virtual.Bucket(1, 1e9), 1.0, wait)
    client.picked = picked
    outcomes = {"client_failed": len(picked)} | ({"missing": 40 - len(picked)} if len(picked) < 40 else {})
    assert conducted(client, 40, 8) == outcomes
    assert client.rejected <= 25 * len(picked)


@pytest.mark.parametrize(("server", "wait"), TABLE)
def test_a_run_keeps_near_the_limit_and_to_the_order_of_the_plan(server, wait):
    """The live estimate and --until use the longest settled prefix, which must keep up with the run."""
    client, _ = limited(server(LIMIT), 0.2, wait, 1200)
    assert client.throughput >= 0.9 * LIMIT
    order = [int(task[1:]) for task in sorted(client.answered, key=client.answered.__getitem__)]
    assert max(abs(place - position) for place, position in enumerate(order)) < 20


@pytest.mark.parametrize("server", SERVERS)
def test_the_start_of_a_run_is_rejected_a_few_times_and_not_twenty(server):
    client, _ = limited(server(LIMIT), 10, 1.0, tasks=33)
    assert 1 <= client.rejected <= 2


class Willing:
    """A server without a limit."""

    def take(self, now):
        return True


@pytest.mark.parametrize("concurrency", [8, 32, 256])
@pytest.mark.parametrize("seconds", [0.005, 0.1, 1])
def test_a_server_without_a_limit_costs_a_few_tenths_of_a_second(seconds, concurrency):
    """The first call is made alone, then as many as may be in flight; all 2,000 are answered."""
    client, took = limited(Willing(), seconds, None, 2000, concurrency)
    least = seconds * (1 + -(-1999 // concurrency))
    assert client.rejected == 0
    assert least <= took <= least + 0.3 + seconds


def test_a_small_run_begins_all_its_calls_at_once():
    client, took = limited(Willing(), 0.1, None, BURST)
    assert took == pytest.approx(0.2)  # the first call alone
    assert len(set(client.begun)) == 2


@pytest.mark.parametrize("endpoint", ["sha256:0", "http://server/v1"])
def test_a_model_in_this_process_gets_its_batch_whole(endpoint):
    client, _ = limited(Willing(), 1.0, None, 33, 32, endpoint)
    assert (len(set(client.begun)) == 2) == endpoint.startswith("sha256:")


def test_a_server_that_rejects_once_is_soon_asked_as_fast_as_before():
    class Once(Willing):
        calls = 0

        def take(self, now):
            self.calls += 1
            return self.calls != 5

    client, took = limited(Once(), 0.2, None, 2000, 64)
    assert client.rejected == 1
    assert took < 20


def test_calls_that_are_rejected_at_random_do_not_stop_a_run():
    class Random(Willing):
        dice = random.Random(1)

        def take(self, now):
            return self.dice.random() > 0.05

    client, _ = limited(Random(), 0.5, None, 1000, 64)
    assert client.throughput > LIMIT


def test_a_limit_on_calls_in_flight_is_found_too():
    class Sixteen:
        def __init__(self):
            self.ends = []

        def take(self, now):
            self.ends = [end for end in self.ends if end > now]
            taken = len(self.ends) < 16
            self.ends += [now + 10] * taken
            return taken

    client, took = limited(Sixteen(), 10, None, 200, 64)
    assert client.rejected < 40
    assert took < 1.5 * 10 * 200 / 16


def test_calls_after_a_rejection_begin_five_per_cent_below_what_was_accepted():
    clock = VirtualLoop()
    pace = Pace(64, clock.time)

    async def scene():
        for _ in range(12):  # eight of these calls are accepted
            await pace.enter()
        for _ in range(4):
            pace.leave()
            pace.too_many(0.5)
        times = []
        for _ in range(30):
            await pace.enter()
            times.append(clock.now - 1000.0)
            pace.leave()
        return times

    times = run(clock, scene())
    gaps = [later - time for time, later in pairwise(times)]
    assert times[0] == pytest.approx(0.5)
    assert gaps[0] == pytest.approx(1 / (0.95 * 8))
    assert gaps[8] == pytest.approx(1 / 8, rel=0.01)  # after a second the rate is back at the limit
    assert gaps == sorted(gaps, reverse=True)  # and the rate rises
    assert gaps[-1] < 0.9 / 8
