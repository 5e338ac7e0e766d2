"""The collector's loop: which agents it calls and how often, when a lane stops, and what is logged."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest

from calipers.clients.secrets import Secrets
from calipers.errors import ClientError
from calipers.systems.nemo_gym import FAILURE, KILLED
from calipers.systems.nemo_gym.collect import loop as collect_module
from calipers.systems.nemo_gym.collect.loop import Collector, Files, LaneStanding, aggregated


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    """Retries follow at once: the waits are those of the loop of runs, and are tested there."""
    monkeypatch.setattr(collect_module, "FIRST_WAIT", 0.0)


class Agent:
    """An agent that follows a script: ``answer(row, try)`` is a row, or an error to raise."""

    def __init__(self, answer=lambda row, tried: {"reward": 1.0}):
        self.answer = answer
        self.calls: list[tuple[int, int]] = []
        self.tries: Counter = Counter()
        self.now = self.most = 0
        self.closed = 0

    async def run(self, row):
        key = row["_ng_task_index"], row["_ng_rollout_index"]
        self.calls.append(key)
        self.tries[key] += 1
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        found = self.answer(row, self.tries[key])
        if isinstance(found, Exception):
            raise found
        return found

    async def aggregate(self, rows):
        return self.answer(rows, 0)

    async def close(self):
        self.closed += 1


def planned(tasks, agent="a"):
    return [
        {"_ng_task_index": n, "_ng_rollout_index": 0, "agent_ref": {"name": agent}, "responses_create_params": {}}
        for n in range(tasks)
    ]


def collected(tmp_path, agents, plan, concurrency=4, retries=2, stop_after=None, secrets=None):
    """The progress of a collection at its end, its rollouts and its failures."""
    files = Files.open(tmp_path / "r.jsonl", plan, (secrets or Secrets()).scrub_bytes, overwrite=False)
    standing = LaneStanding(len(plan))
    collector = Collector(
        agents,
        files,
        standing,
        concurrency=concurrency,
        retries=retries,
        secrets=secrets or Secrets(),
        look=lambda _: None,
    )
    if stop_after is not None:
        agent = agents["a"]
        answer = agent.answer

        def stopping(row, tried):
            if len(agent.calls) == stop_after:
                collector.stop("enough")
            return answer(row, tried)

        agent.answer = stopping
    try:
        collector.conduct(iter(plan))
    finally:
        files.close()
    lines = [
        [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        for name in ("r.jsonl", "r_failures.jsonl")
    ]
    return standing, *lines


def test_everything_is_asked_once_with_so_many_in_flight(tmp_path):
    agent = Agent()
    standing, made, lost = collected(tmp_path, {"a": agent}, planned(20))
    assert sorted(agent.calls) == [(n, 0) for n in range(20)]
    assert (len(made), lost, standing.outcomes) == (20, [], {"scored": 20})
    assert agent.most == 4
    assert agent.closed == 1


@pytest.mark.parametrize(
    ("error", "tries"),
    [
        (ClientError("x", kind="http_503", retry=True), 6),  # the first call and all five retries
        (ClientError("x", kind="http_500", retry=True), 3),
        (ClientError("x", kind="verifier_http_500", retry=True), 3),
        (ClientError("x", kind="http_422"), 1),
        (ClientError("x", kind="http_429", retry=True, slow_down=True, wait=0.0), 6),
    ],
)
def test_how_often_a_call_is_tried(tmp_path, error, tries):
    agent = Agent(lambda row, tried: error if row["_ng_task_index"] == 2 else {"reward": 0})
    standing, made, lost = collected(tmp_path, {"a": agent}, planned(5), retries=5)
    assert (agent.tries[2, 0], standing.retries) == (tries, tries - 1)
    assert (len(made), len(lost)) == (4, 1)
    assert lost[0][FAILURE] == error.kind
    assert sum(standing.outcomes.values()) == 5


def test_a_wrong_address_stops_its_lane_before_a_second_call(tmp_path):
    gone = ClientError("cannot connect", kind="connection", retry=True, hopeless=True)
    bad, good = Agent(lambda row, tried: gone), Agent()
    plan = [row for pair in zip(planned(10, "a"), planned(10, "b"), strict=True) for row in pair]
    plan = [{**row, "_ng_task_index": n} for n, row in enumerate(plan)]
    standing, made, lost = collected(tmp_path, {"a": bad, "b": good}, plan)
    assert (len(bad.calls), len(good.calls)) == (1, 10)
    assert (len(made), lost) == (10, [])
    assert [lane.stopped for lane in standing.lanes] == ["cannot connect", ""]


def test_a_first_rollout_that_takes_long_keeps_nobody_waiting(tmp_path, monkeypatch):
    monkeypatch.setattr(collect_module, "DOUBT", 0.01)

    class Slow(Agent):
        async def run(self, row):
            found = await super().run(row)
            while row["_ng_task_index"] == 0 and len(self.calls) < 8:  # until all other calls have arrived
                await asyncio.sleep(0.001)
            return found

    agent = Slow()
    _, made, _ = collected(tmp_path, {"a": agent}, planned(8))
    assert len(made) == 8
    assert made[0]["_ng_task_index"] != 0


def test_an_agent_that_turns_its_back_is_left_alone_after_sixteen(tmp_path):
    gone = ClientError("cannot connect", kind="connection", retry=True, hopeless=True)
    agent = Agent(lambda row, tried: {"reward": 1} if row["_ng_task_index"] < 5 else gone)
    standing, made, lost = collected(tmp_path, {"a": agent}, planned(100), concurrency=1, retries=0)
    assert len(agent.calls) == 5 + 16
    assert (len(made), lost) == (5, [])  # no agent was reachable, so none of these has failed
    assert standing.lanes[0].stopped == "16 requests in a row were refused; the last error: cannot connect"


def test_refusals_that_are_not_in_a_row_stop_nothing(tmp_path):
    gone = ClientError("HTTP 404", kind="http_404", hopeless=True)
    agent = Agent(lambda row, tried: gone if row["_ng_task_index"] % 2 else {"reward": 1})
    standing, made, _ = collected(tmp_path, {"a": agent}, planned(80), concurrency=1)
    assert (len(agent.calls), len(made)) == (80, 40)
    assert (standing.lanes[0].stopped, standing.lanes[0].unasked) == ("", 40)


def test_a_slow_agent_holds_up_nobody_else(tmp_path):
    once = ClientError("slower", kind="http_429", retry=True, slow_down=True, wait=0.0)
    slow = Agent(lambda row, tried: once if tried == 1 else {"reward": 1})
    plan = [{**row, "_ng_task_index": n} for n, row in enumerate([*planned(6, "a"), *planned(6, "b")])]
    standing, made, _ = collected(tmp_path, {"a": slow, "b": Agent()}, plan, concurrency=8)
    assert len(made) == 12
    assert standing.lanes[0].pace.limit < 8
    assert standing.lanes[1].pace.limit == 8


def test_a_stop_finishes_what_is_in_flight_and_leaves_the_rest_owed(tmp_path):
    agent = Agent()
    standing, made, lost = collected(tmp_path, {"a": agent}, planned(50), stop_after=10)
    assert standing.stopped == "enough"
    assert len(made) == len(agent.calls) < 20
    assert lost == []


def test_what_waits_for_another_try_at_a_stop_stays_owed(tmp_path):
    busy = ClientError("busy", kind="http_503", retry=True, wait=60.0)
    agent = Agent(lambda row, tried: busy if row["_ng_task_index"] == 0 else {"reward": 1})
    standing, made, lost = collected(tmp_path, {"a": agent}, planned(50), stop_after=10)
    assert (0, 0) not in [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in [*made, *lost]]
    assert standing.stopped == "enough"


@pytest.mark.parametrize(
    ("answer", "where", "word"),
    [
        ({"reward": 1}, "made", "scored"),
        ({"reward": True}, "made", "scored"),
        ({"reward": 0.0, FAILURE: None}, "made", "scored"),
        ({"reward": 0.0, FAILURE: ""}, "lost", "client_failed"),  # any value but null is a mark
        ({"reward": 0.0, FAILURE: "judge_failed"}, "lost", "judge_failed"),
        ({FAILURE: "verifier_timeout"}, "lost", "verifier_failed"),
        ({"reward": 1.0, KILLED: True}, "", None),
        ({"reward": 1.0, KILLED: True, FAILURE: "x"}, "", None),  # `KILLED` takes precedence, so nothing is written
        ({"reward": 1.0, KILLED: False}, "made", "scored"),
        ({}, "lost", "client_failed"),
        ({"reward": None}, "lost", "client_failed"),
        ({"reward": "1.0"}, "lost", "client_failed"),
        ({"reward": float("nan")}, "lost", "client_failed"),
        ({"reward": float("inf")}, "lost", "client_failed"),
        ({"reward": 2**64}, "lost", "client_failed"),
        ({"reward": 1, "response": "text"}, "lost", "client_failed"),
        ({"reward": 1, "response": {"usage": [1]}}, "lost", "client_failed"),
        ({"reward": 1, "response": {"usage": {"input_tokens": 2**64}}}, "lost", "client_failed"),
        ({"reward": 1, "response": None, "note": float("nan")}, "made", "scored"),
    ],
)
def test_where_an_answer_goes(tmp_path, answer, where, word):
    standing, made, lost = collected(tmp_path, {"a": Agent(lambda row, tried: answer)}, planned(1))
    assert (len(made), len(lost)) == (where == "made", where == "lost")
    assert dict(standing.outcomes) == ({word: 1} if word else {})


def test_an_answer_keeps_its_keys_but_those_that_say_whose_it_is(tmp_path):
    answer = {"z": 1, "_ng_task_index": 99, "reward": 0.5, "agent_ref": {"name": "forged"}}
    _, (row,), _ = collected(tmp_path, {"a": Agent(lambda row, tried: answer)}, planned(1))
    assert list(row.items()) == [
        ("z", 1),
        ("_ng_task_index", 0),
        ("reward", 0.5),
        ("agent_ref", {"name": "a"}),
        ("_ng_rollout_index", 0),
    ]


def test_keys_are_in_no_file(tmp_path):
    secrets = Secrets()
    secrets.add("sk-verysecret")
    error = ClientError("HTTP 422: no sk-verysecret here", kind="http_422")
    agent = Agent(lambda row, tried: error if row["_ng_task_index"] else {"reward": 1, "x": "sk-verysecret"})
    _, made, lost = collected(tmp_path, {"a": agent}, planned(2), secrets=secrets)
    assert made[0]["x"] == "[secret]"
    assert lost[0]["error"]["message"] == "HTTP 422: no [secret] here"


def test_a_bug_of_ours_is_not_a_failed_rollout(tmp_path):
    agent = Agent(lambda row, tried: ZeroDivisionError("ours"))
    with pytest.raises(ZeroDivisionError):
        collected(tmp_path, {"a": agent}, planned(3))
    assert agent.closed == 1


def test_every_agent_is_asked_for_its_metrics():
    agents = {"a": Agent(lambda rows, _: {"n": len(rows)}), "b": Agent(lambda rows, _: None), "c": Agent()}
    assert aggregated(agents, {"a": [{}, {}], "b": [{}]}, 3) == {"a": {"n": 2}, "b": None}
    assert [agent.closed for agent in agents.values()] == [1, 1, 1]


def test_the_last_try_is_followed_by_no_wait():
    """The server asks to wait for an hour, but the collection stops before."""
    busy = ClientError("x", kind="http_503", retry=True, wait=3600.0)

    class Busy(Agent):
        async def aggregate(self, rows):
            raise busy

    assert aggregated({"a": Busy()}, {"a": [{}]}, 0) == {"a": busy}


def test_a_plan_whose_indices_are_whole_floats_goes_on(tmp_path):
    plan = [{**row, "_ng_task_index": float(row["_ng_task_index"])} for row in planned(3)]
    collected(tmp_path, {"a": Agent()}, plan)
    files = Files.open(tmp_path / "r.jsonl", plan, Secrets().scrub_bytes, overwrite=False)
    files.close()
    assert sorted(files.done) == [(0, 0), (1, 0), (2, 0)]
