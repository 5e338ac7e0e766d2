"""A NeMo Gym agent server on loopback: ``/run`` and ``/aggregate_metrics``, with failures on demand.

Every rollout is a function of task and rollout index, so that a collection has one true result. In a test::

    async with AgentServer() as server:
        Server(server.url, Reach())

or in a process of its own, which prints its port: ``python agents.py --trouble 3=500``.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from clients.weather import serve

from calipers.systems.nemo_gym.aggregate import Hooks, aggregate

TROUBLES = {
    "once500": "the first try at each of its rollouts is HTTP 500",
    "once503": "likewise 503",
    "once429": "likewise 429, to be tried again at once",
    "oncebad": "likewise a body that is no JSON",
    "oncedrop": "likewise a connection that is closed",
    "500": "every try is HTTP 500",
    "bad": "every answer is no JSON",
    "list": "every answer is a JSON list",
    "norewards": "no answer has a reward",
    "huge": "every answer holds an integer beyond 64 bits",
    "failed": "the agent marks each as failed",
    "terminal": "likewise, for good",
    "killed": "the first try at each of its rollouts is to be forgotten",
}


def reward(task: Any, rollout: int) -> float:
    """The reward of a rollout."""
    return (0.0, 0.5, 1.0)[(int(task) * 7 + rollout * 5) % 3]


@dataclass
class AgentServer:
    """The server: ``url`` is its address, ``runs`` are the rows that it received."""

    troubles: dict[str, str] = field(default_factory=dict)  # task index as text -> a key of TROUBLES
    metrics: str = "hooks"  # what /aggregate_metrics does: hooks, plain, absent, broken or rubbish
    delay: float = 0.0
    die_after: int = 0  # number of runs after which the process ends, in the middle of the next
    hold: int | None = None  # number of runs after which all others wait until "/go" is called
    port: int = 0

    def __post_init__(self) -> None:
        self.runs: list[dict[str, Any]] = []
        self.tries: Counter[str] = Counter()
        self.aggregations: list[list[dict[str, Any]]] = []
        self.now = self.most = 0
        self._go = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> AgentServer:
        app = web.Application(client_max_size=2**28)
        app.router.add_post("/run", self._run)
        app.router.add_get("/report", self._report)
        app.router.add_get("/report/go", self._let_go)
        if self.metrics != "absent":
            app.router.add_post("/aggregate_metrics", self._aggregate)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._go.set()
        await self._runner.cleanup()

    async def _report(self, _: web.Request) -> web.Response:
        return web.json_response(
            {"tries": self.tries, "aggregations": self.aggregations, "most": self.most, "runs": len(self.runs)}
        )

    async def _let_go(self, request: web.Request) -> web.Response:
        self._go.set()
        return await self._report(request)

    async def _run(self, request: web.Request) -> web.StreamResponse:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            return await self._answer(request)
        finally:
            self.now -= 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        row = await request.json()
        task, rollout = row["_ng_task_index"], row["_ng_rollout_index"]
        self.runs.append(row)
        if self.die_after and len(self.runs) > self.die_after:
            os._exit(1)
        self.tries[f"{task}:{rollout}"] += 1
        if self.hold is not None and len(self.runs) > self.hold:
            await self._go.wait()
        if self.delay:
            await asyncio.sleep(self.delay)
        trouble = self.troubles.get(str(task), "")
        first = self.tries[f"{task}:{rollout}"] == 1
        if trouble.startswith("once") and not first:
            trouble = ""
        match trouble.removeprefix("once"):
            case "500" | "503" as status:
                return web.json_response("ValueError('the verifier broke')", status=int(status))
            case "429":
                return web.json_response({"detail": "slower"}, status=429, headers={"Retry-After": "0"})
            case "bad":
                return web.Response(body=b'{"reward": 1.0', content_type="application/json")
            case "drop":
                assert request.transport is not None
                request.transport.close()
                return web.StreamResponse()
            case "list":
                return web.json_response([1, 2])
        found = {
            "responses_create_params": row["responses_create_params"],
            "response": {"output": [], "usage": {"input_tokens": 3 + int(task), "output_tokens": 10 + rollout}},
            "reward": reward(task, rollout),
            "correct": reward(task, rollout) == 1.0,
            "level": row.get("level"),
            "_ng_task_index": -1,  # an agent's own numbers are overwritten
        }
        if trouble == "norewards":
            del found["reward"]
        if trouble == "huge":
            found["stamp"] = 2**70
        if trouble in ("failed", "terminal"):
            found |= {"_ng_failure_class": "judge_failed", "_ng_failure_terminal": trouble == "terminal"}
        if trouble == "killed" and first:
            found["_ng_no_persist"] = True
        return web.json_response(found)

    async def _aggregate(self, request: web.Request) -> web.Response:
        rows = (await request.json())["verify_responses"]
        self.aggregations.append(rows)
        if self.metrics == "broken":
            return web.json_response("ZeroDivisionError('division by zero')", status=500)
        if self.metrics == "rubbish":
            return web.json_response({"agent_metrics": []})
        hooks = Hooks(pass_at_k, None) if self.metrics == "hooks" else Hooks()
        return web.json_response(aggregate(rows, hooks).to_dict())


def pass_at_k(tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """The hook from NeMo Gym's documentation: the share of tasks with a pass."""
    return {"pass@k": sum(any(row["reward"] >= 1.0 for row in rows) for rows in tasks) / len(tasks)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--metrics", default="hooks")
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--hold", type=int)
    parser.add_argument("--die-after", type=int, default=0)
    parser.add_argument("--trouble", action="append", default=[])
    asked = vars(parser.parse_args())
    troubles = dict(pair.split("=") for pair in asked.pop("trouble"))
    assert set(troubles.values()) <= set(TROUBLES), troubles
    asyncio.run(serve(AgentServer(troubles, **asked)))


if __name__ == "__main__":
    main()
