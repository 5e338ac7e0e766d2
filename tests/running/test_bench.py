"""Completions verified outside a run: how many concurrently, in which order, and inside a running event loop."""

from __future__ import annotations

import asyncio

from calipers.clients import Completion
from calipers.errors import VerifierError
from calipers.running.rollout import Bench
from calipers.tasks import Task
from calipers.verifiers import Verdict


class Watchful:
    """A verifier that records the number of concurrent calls and their event loop; later texts are verified faster."""

    def __init__(self):
        self.now = self.most = 0
        self.loops = set()

    async def verify(self, task, completion):
        self.loops.add(asyncio.get_running_loop())
        self.now += 1
        self.most = max(self.most, self.now)
        for _ in range(20 - len(completion.text)):
            await asyncio.sleep(0)
        self.now -= 1
        if completion.text == "xxx":
            raise VerifierError("three", outcome="judge_failed")
        return Verdict(float("inf") if completion.text == "xxxx" else float(len(completion.text)))


TASK = Task("a", "?")


def cases(verifier, sizes):
    return [(verifier, TASK, Completion("x" * size)) for size in sizes]


def test_verdicts_come_in_the_order_of_their_cases_and_failures_are_theirs_alone():
    watchful = Watchful()
    with Bench(3) as bench:
        found = bench.judge(cases(watchful, [1, 2, 3, 4, 5, 6]))
        bench.judge(cases(watchful, [1]))
        assert bench.judge([]) == []
    rewards = [verdict.reward if isinstance(verdict, Verdict) else verdict.outcome for verdict in found]
    assert rewards == [1.0, 2.0, "judge_failed", "verifier_failed", 5.0, 6.0]  # no number is no verdict
    assert watchful.most == 3
    assert len(watchful.loops) == 1


def test_it_works_where_a_loop_runs_already():
    async def notebook():
        with Bench(2) as bench:
            return bench.judge(cases(Watchful(), [1, 2]))

    assert [verdict.reward for verdict in asyncio.run(notebook())] == [1.0, 2.0]


class Buggy:
    """A verifier with a bug."""

    async def verify(self, task, completion):
        raise ZeroDivisionError("ours")


def test_a_bug_is_a_failure_of_each_case_and_says_its_own_name():
    with Bench(2) as bench:
        found = bench.judge(cases(Buggy(), [1, 2, 3]))
    assert [str(one) for one in found] == ["verifier 'Buggy' failed: ZeroDivisionError: ours"] * 3
    assert {one.outcome for one in found} == {"verifier_failed"}


class Sitting:
    """A verifier that is opened for a job."""

    def __init__(self, secrets):
        secrets.add("sk-of-the-judge")
        self.closed_in, self.notes = None, ["it was slow"]

    async def verify(self, task, completion):
        self.judged_in = asyncio.get_running_loop()
        return Verdict(1.0)

    async def close(self):
        self.closed_in = asyncio.get_running_loop()


class Courteous:
    """A verifier that has to be opened and closed, like one that keeps connections."""

    def use(self, secrets):
        self.sitting = Sitting(secrets)
        return self.sitting


def test_a_verifier_is_told_when_the_job_begins_and_ends():
    judge = Courteous()
    with Bench(2) as bench:
        bench.judge(cases(judge, [1, 2]))
        first = judge.sitting
        bench.judge(cases(judge, [3]))
        assert judge.sitting is first
        assert bench.secrets.scrub("sk-of-the-judge") == "[secret]"
        assert bench.notes == ["it was slow"]
    assert first.closed_in is first.judged_in
