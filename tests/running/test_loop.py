"""The loop: its requests and retries, when it stops, and what it logs."""

from __future__ import annotations

import asyncio
import json

import pytest
from clients.scripted import Scripted

from calipers.clients import Completion, Request, pace
from calipers.errors import ClientError, LogError, VerifierError
from calipers.running import loop as loop_module
from calipers.running import rollout as rollout_module
from calipers.running.log import Log
from calipers.running.loop import Loop, RunLimits, Status
from calipers.running.rollout import Outstanding
from calipers.tasks import Task
from calipers.verifiers import Verdict


class Same:
    """A verifier that gives 1 for the task's target, and fails for a few texts."""

    async def verify(self, task, completion):
        if completion.text == "crash":
            raise VerifierError("the judge is unwell")
        if completion.text == "busy":
            raise VerifierError("HTTP 503", outcome="judge_failed", blameless=True)
        if completion.text.startswith("as "):
            raise VerifierError("no verdict", outcome=completion.text.removeprefix("as "), blameless=True)
        if completion.text == "bug":
            raise ZeroDivisionError("a bug of the judge")
        if completion.text == "exit":
            raise SystemExit(3)
        if completion.text == "nothing":
            return None
        if completion.text == "cancelled":
            raise asyncio.CancelledError
        if completion.text == "nan":
            return Verdict(float("nan"))
        return Verdict(float(completion.text == task.target), answer=completion.text)


class Nobody:
    """An observer that records its calls, and stops the run after a number of rollouts."""

    def __init__(self, most: int | None = None) -> None:
        self.seen: list[tuple[int, int, str, float | None]] = []
        self.most = most
        self.stop = None

    def settled(self, position, sample, outcome, reward):
        self.seen.append((position, sample, outcome, reward))
        if self.most is not None and len(self.seen) >= self.most:
            self.stop("enough")

    def look(self, status):
        return ""


def outstanding(tasks: int, samples: int = 1) -> list[Outstanding]:
    return [Outstanding(i, Task(f"t{i}", f"q{i}", "same", f"a{i}"), s) for i in range(tasks) for s in range(samples)]


def ask(one: Outstanding) -> Request:
    return Request(one.task.id, one.sample, one.task.prompt)


def run(tmp_path, client, rollouts, observer=None, ask=ask, **limits):
    """The records of a run, and its status at the end."""
    status, observer = Status(len(rollouts)), observer or Nobody()

    async def scene():
        log = Log(tmp_path / "log.jsonl", lambda data: data)
        one = Loop(
            client,
            {"same": Same()},
            ask,
            log,
            dataset="d",
            model="m",
            status=status,
            observer=observer,
            limits=RunLimits(**limits),
        )
        observer.stop = one.stop
        try:
            await one.run(iter(rollouts))
        finally:
            await log.close()

    asyncio.run(scene())
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines], status


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    """Waits between tries are drawn from [0, this], so that tests are fast."""
    monkeypatch.setattr(pace, "FIRST_WAIT", 0.0)


def test_a_judge_that_fails_over_one_answer_judges_the_others(tmp_path):
    answers = {("t0", 0): "a0", ("t1", 0): "bug", ("t2", 0): "exit", ("t3", 0): "a3"}
    records, status = run(tmp_path, Scripted(answers), outstanding(4), concurrency=2)
    assert sorted(one["outcome"] for one in records) == ["broke_verifier", "broke_verifier", "scored", "scored"]
    said = {one["task"]: one["error"] for one in records if "error" in one}
    assert said["t1"] == {
        "kind": "verifier",
        "message": "verifier 'Same' failed: ZeroDivisionError: a bug of the judge",
        **{"tries": 2, "neutral": "judged", "neutral_calls": 1, "failed_as": "verifier_failed"},
    }
    assert status.outcomes == {"scored": 2, "broke_verifier": 2}


@pytest.mark.parametrize(
    ("answer", "outcome", "reward"),
    [
        ("a0", "scored", 1.0),
        ("no", "scored", 0.0),
        ("", "empty", 0.0),  # the verifier was called, too
        ("crash", "broke_verifier", None),  # because the verifier has a verdict on the target
        ("nan", "broke_verifier", None),
        ("bug", "broke_verifier", None),
        ("exit", "broke_verifier", None),  # a verifier that ends the process does not end the run
        ("nothing", "broke_verifier", None),
        ("cancelled", "verifier_failed", None),  # an answer cannot cause this
        ("as unparsed", "unparsed", None),
        ("as banana", "verifier_failed", None),  # from user code; a log with it could not be read
        ("as scored", "verifier_failed", None),  # without a reward, likewise
        ("busy", "judge_failed", None),  # a failure of the judge is not a wrong answer
        (Completion("a", "length", "truncated"), "truncated", 0.0),
        (Completion("a0", "length", "truncated"), "truncated", 1.0),  # truncated, but still correct
        (Completion("I cannot", "content_filter", "refused"), "refused", 0.0),
        (ClientError("HTTP 400", kind="http_400"), "client_failed", None),
    ],
)
def test_outcomes(tmp_path, answer, outcome, reward):
    records, status = run(tmp_path, Scripted({("t0", 0): answer}), outstanding(1))
    assert [(one["outcome"], one.get("reward")) for one in records] == [(outcome, reward)]
    assert status.outcomes == {outcome: 1}


def test_the_record_holds_what_was_asked_and_what_came_back(tmp_path):
    usage = {"input_tokens": 3, "output_tokens": 5, "cost_usd": 0.25}
    (record,), status = run(tmp_path, Scripted({("t0", 0): Completion("a0", "stop", "", usage)}), outstanding(1))
    assert record["started_at"] <= record["finished_at"]
    assert {key: value for key, value in record.items() if not key.endswith("_at")} == {
        "task": "t0",
        "sample": 0,
        "attempt": 1,
        "outcome": "scored",
        "reward": 1.0,
        "answer": "a0",
        "prompt": "q0",
        "completion": "a0",
        "finish_reason": "stop",
        "usage": usage,
        "dataset": "d",
        "model": "m",
    }
    assert status.spent == 0.25


@pytest.mark.parametrize("answer", [0, False, 0.0, [], "x"])
def test_an_answer_that_is_nothing_much_still_votes(tmp_path, answer, monkeypatch):
    async def verify(self, task, completion):
        return Verdict(1.0, answer=answer)

    monkeypatch.setattr(Same, "verify", verify)
    (record,), _ = run(tmp_path, Scripted({("t0", 0): "x"}), outstanding(1))
    assert record["answer"] == answer


def test_a_call_that_may_fare_better_is_tried_again(tmp_path):
    busy = ClientError("HTTP 503", kind="http_503", retry=True)
    client = Scripted({("t0", 0): [busy, busy, "a0"]})
    (record,), _ = run(tmp_path, client, outstanding(1), retries=2)
    assert (record["outcome"], record["retries"]) == ("scored", 2)


def test_a_call_that_waits_for_its_next_try_is_counted(tmp_path):
    seen = []

    class Looking(Nobody):
        def look(self, status):
            seen.append((status.waiting, status.trouble))
            self.stop("seen")
            return ""

    busy = ClientError("down", kind="http_503", retry=True, wait=3600.0)
    _, status = run(tmp_path, Scripted({("t0", 0): busy}), outstanding(1), Looking())
    assert seen == [(1, "http_503")]
    assert status.waiting == 0


def test_the_tries_are_counted(tmp_path):
    busy = ClientError("HTTP 503", kind="http_503", retry=True)
    client = Scripted({("t0", 0): busy})
    (record,), status = run(tmp_path, client, outstanding(1), retries=3)
    assert (len(client.calls), status.retries) == (4, 3)
    assert record["error"] == {"kind": "http_503", "message": "HTTP 503"}
    assert (record["outcome"], record["retries"]) == ("client_failed", 3)


REFUSED = ClientError("connection refused", kind="connection", retry=True, before_answer=True)
LIMITED = ClientError("HTTP 429", kind="http_429", retry=True, slow_down=True, wait=0.0, before_answer=True)
LATE = ClientError("no answer within 60 s", kind="timeout", retry=True)


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ([REFUSED], True),
        ([REFUSED, LIMITED, REFUSED], True),
        ([LATE], False),
        ([LATE, REFUSED, REFUSED], False),  # a long answer may have ended the first try
        ([REFUSED, LATE, LIMITED], False),
        ([ClientError("HTTP 503", kind="http_503", retry=True)], False),
        ([ClientError("HTTP 400", kind="http_400")], False),
    ],
)
def test_a_rollout_is_lost_before_an_answer_if_no_try_was_accepted(tmp_path, errors, expected):
    answers = {("t0", 0): errors, ("t1", 0): REFUSED, ("t2", 0): [REFUSED, "a2"]}  # the errors are shared
    records, _ = run(tmp_path, Scripted(answers), outstanding(3), retries=2)
    lost = {one["task"]: one.get("error", {}).get("before_answer") for one in records}
    assert lost == {"t0": expected or None, "t1": True, "t2": None}


def test_a_server_that_asks_for_a_pause_gets_it(tmp_path):
    limited = ClientError("HTTP 429", kind="http_429", retry=True, wait=0.2, slow_down=True)
    times = []

    async def note(request):
        times.append(asyncio.get_running_loop().time())

    run(tmp_path, Scripted({("t0", 0): [limited, "a0"]}, note), outstanding(1))
    assert times[1] - times[0] >= 0.2


@pytest.mark.parametrize("kind", ["connection", "http_401", "http_403", "http_404"])
def test_a_hopeless_first_call_ends_the_run_before_a_second(tmp_path, kind):
    client = Scripted(lambda request: ClientError("no", kind=kind, retry=kind == "connection", hopeless=True))
    with pytest.raises(ClientError):
        run(tmp_path, client, outstanding(50), concurrency=8)
    assert len(client.calls) == 1
    assert (tmp_path / "log.jsonl").read_bytes() == b""


def test_a_first_call_that_fails_otherwise_ends_nothing(tmp_path):
    client = Scripted(lambda request: ClientError("HTTP 400") if request.task == "t0" else "a1")
    records, _ = run(tmp_path, client, outstanding(2))
    assert sorted(one["outcome"] for one in records) == ["client_failed", "scored"]


def test_a_server_that_turns_its_back_later_stops_the_run_and_leaves_the_rest_owed(tmp_path):
    no = ClientError("HTTP 401", kind="http_401", hopeless=True)
    client = Scripted(lambda request: f"a{request.task[1:]}" if int(request.task[1:]) < 5 else no)
    records, status = run(tmp_path, client, outstanding(1_000), concurrency=4)
    assert "requests in a row were refused" in status.stopped
    assert 5 + loop_module.REFUSALS <= len(records) <= 5 + loop_module.REFUSALS + 4


def test_no_more_calls_are_in_flight_than_allowed(tmp_path):
    now = most = 0

    async def hold(request):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001)
        now -= 1

    records, _ = run(tmp_path, Scripted(lambda request: "x", hold), outstanding(60), concurrency=7)
    assert (len(records), most) == (60, 7)


def test_there_are_no_more_workers_than_rollouts(tmp_path):
    """Otherwise a concurrency of billions would use up the memory before the first call."""
    tasks = []

    async def count(request):
        tasks.append(len(asyncio.all_tasks()))

    _, status = run(tmp_path, Scripted(lambda request: "a0", count), outstanding(2), concurrency=1000)
    assert (status.done, max(tasks) < 10) == (2, True)


def test_stopping_finishes_what_is_in_flight_and_begins_nothing(tmp_path):
    observer = Nobody(most=10)
    records, status = run(tmp_path, Scripted(lambda request: "x"), outstanding(100), observer, concurrency=4)
    assert status.stopped == "enough"
    assert 10 <= len(records) <= 14
    assert len(records) == len(observer.seen) == status.done


def test_a_rollout_that_waits_for_its_next_try_when_the_run_stops_stays_owed(tmp_path):
    slow = ClientError("HTTP 429", retry=True, wait=3600.0)
    client = Scripted(lambda request: slow if request.task == "t0" else "x")
    records, _ = run(tmp_path, client, outstanding(9), Nobody(most=8), concurrency=2)
    assert {one["task"] for one in records} == {f"t{i}" for i in range(1, 9)}


def test_money_stops_the_run(tmp_path):
    client = Scripted(lambda request: Completion("x", usage={"cost_usd": 0.1}))
    records, status = run(tmp_path, client, outstanding(100), concurrency=1, cost=0.45)
    assert len(records) == 5
    assert status.stopped == "the cost limit of $0.45 per start was reached"


def test_a_limit_that_nobody_can_keep_stops_the_run_too(tmp_path):
    records, status = run(tmp_path, Scripted(lambda request: "x"), outstanding(100), concurrency=1, cost=0.45)
    assert len(records) == 1
    assert status.stopped == "the cost of a request is unknown, so the cost limit cannot be enforced; give --price"


def test_time_stops_the_run(tmp_path):
    async def hold(request):
        await asyncio.sleep(0.05)

    records, status = run(tmp_path, Scripted(lambda request: "x", hold), outstanding(1_000), concurrency=1, seconds=0.3)
    assert status.stopped == "the time limit of 0.3 s was reached"
    assert 0 < len(records) < 1_000


def test_a_log_that_cannot_be_written_ends_the_run(tmp_path, monkeypatch):
    import os

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(LogError, match="No space left on device"):
        run(tmp_path, Scripted(lambda request: "x"), outstanding(100))


def test_a_task_without_a_verifier_is_kept_and_not_judged(tmp_path):
    (record,), _ = run(tmp_path, Scripted({("t", 0): "x"}), [Outstanding(0, Task("t", "q"), 0)])
    assert (record["outcome"], record.get("reward"), record["completion"]) == ("missing", None, "x")


class Cancelling(Scripted):
    """A client in whose code something is cancelled, such as a call of a library with a time limit."""

    async def complete(self, request):
        await super().complete(request)
        raise asyncio.CancelledError


def test_a_client_that_cancels_itself_fails_its_calls_and_holds_nobody_up(tmp_path):
    records, status = run(tmp_path, Cancelling(lambda request: "a0"), outstanding(3))
    assert status.outcomes == {"client_failed": 3}
    assert records[0]["error"] == {"kind": "cancelled", "message": "the client cancelled the request itself"}


def test_a_run_that_is_stopped_before_its_first_call_ends(tmp_path):
    """Workers that wait for the first call must learn that there will be none."""
    watching = Nobody()

    def asked_and_stopped(one):
        watching.stop("enough")
        return Request(one.task.id, one.sample, one.task.prompt)

    records, status = run(tmp_path, Scripted({}), outstanding(3), watching, asked_and_stopped)
    assert (records, status.done, status.stopped) == ([], 0, "enough")


@pytest.mark.parametrize(
    ("asked", "outcome"), [("q0", "broke_verifier"), ("q" * 3000, "client_failed")], ids=["answer", "prompt"]
)
def test_a_rollout_that_a_log_has_no_room_for_is_not_kept_and_nothing_else_is_lost(
    tmp_path, monkeypatch, asked, outcome
):
    """Readers accept lines up to a length; a single longer line would make the whole log unreadable."""
    monkeypatch.setattr(rollout_module, "LONGEST_LINE", 2000)
    rollouts = [Outstanding(0, Task("t0", asked, "same", "a0"), 0), *outstanding(2)[1:]]
    paid = Completion("a" * 5000, usage={"cost_usd": 0.5})
    (long, fine), status = run(tmp_path, Scripted(lambda request: paid if request.task == "t0" else "a1"), rollouts)
    assert status.outcomes == {outcome: 1, "scored": 1}
    assert (long["outcome"], "completion" in long, "prompt" in long) == (outcome, False, False)
    assert (long.get("usage"), status.spent) == (
        ({"cost_usd": 0.5}, 0.5) if outcome != "client_failed" else (None, None)
    )
    assert long["error"]["kind"] == "too_long"
    assert fine["reward"] == 1.0


def test_half_a_character_of_a_model_is_logged(tmp_path):
    (record,), _ = run(tmp_path, Scripted({("t0", 0): "half \ud800"}), outstanding(1))
    assert record["completion"] == record["answer"] == "half \ufffd"


def test_nothing_owed_is_nothing_done(tmp_path):
    client = Scripted({})
    records, status = run(tmp_path, client, [])
    assert (records, client.calls, status.stopped) == ([], [], "")
