"""Odd answers to one row may cost this row its reward, but must not affect the collection, or its continuation."""

from __future__ import annotations

import json

import pytest
from aiohttp import web
from systems.nemo_gym.agents import AgentServer
from systems.nemo_gym.collect.gathering import agents, rows, tasks

from calipers.systems.nemo_gym.collect.collect import collect
from calipers.systems.nemo_gym.collect.request import Collecting, Materializing

GOOD = '"response": {"output": []}, "reward": 1.0'


class Odd(AgentServer):
    """An agent with an odd answer for task 1, and a reward of 1.0 for all others."""

    odd = ""

    async def _answer(self, request):
        row = await request.json()
        self.runs.append(row)
        more = f", {self.odd}" if row["_ng_task_index"] == 1 else ""
        return web.Response(text=f"{{{GOOD}{more}}}", content_type="application/json")


@pytest.mark.parametrize(
    ("odd", "kept", "failure", "terminal"),
    [
        (r'"note": "\ud800"', 2, "malformed", None),  # Python can parse it, but it cannot be written
        (r'"\udc00": 1', 2, "malformed", None),
        ('"_ng_failure_class": 5', 2, "5", None),
        ('"_ng_failure_class": {"kind": "x"}, "_ng_failure_terminal": 1', 2, '{"kind":"x"}', True),
        ('"_ng_failure_class": "x", "_ng_failure_terminal": "yes"', 2, "x", True),
        ('"_ng_failure_class": "x", "_ng_failure_terminal": 0', 2, "x", False),
        # without a failure class, the mark has no effect
        ('"_ng_failure_class": null, "_ng_failure_terminal": "yes"', 3, None, None),
    ],
)
def test_an_odd_answer_costs_one_row_at_most(tmp_path, odd, kept, failure, terminal):
    server = Odd()
    server.odd = odd
    with agents(math=server) as places:
        asked = Collecting(tasks(tmp_path, 3), tmp_path / "r.jsonl", places, Materializing(), retries=0)
        found = collect(asked)
        again = collect(asked)  # resuming must be able to read what was written
    assert (len(rows(tmp_path / "r.jsonl")), found.complete, again.complete) == (kept, kept == 3, kept == 3)
    failures = rows(tmp_path / "r_failures.jsonl")
    assert len(failures) == (0 if failure is None else 1 if terminal else 2)  # a permanent failure is not retried
    assert {row["_ng_failure_class"] for row in failures} == ({failure} if failure else set())
    assert {row.get("_ng_failure_terminal") for row in failures} == ({terminal} if failure else set())


def test_metrics_that_cannot_be_written_are_computed_here(tmp_path):
    class Half(AgentServer):
        async def _aggregate(self, request):
            text = json.dumps({"group_level_metrics": [], "agent_metrics": {"a": "\ud800"}, "key_metrics": {}})
            return web.Response(text=text, content_type="application/json")

    with agents(math=Half()) as places:
        found = collect(Collecting(tasks(tmp_path, 3), tmp_path / "r.jsonl", places, Materializing(), retries=0))
    assert (found.complete, "half of a surrogate pair" in found.notes[0]) == (False, True)
    assert len(json.loads((tmp_path / "r_aggregate_metrics.json").read_text())[0]["group_level_metrics"]) == 3
