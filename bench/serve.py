"""Measure ``calipers serve``: the time of an aggregation, response times meanwhile, and many concurrent clients.

``python -m bench.serve [--quick]`` measures only this part.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.peer import clean_environment

ROWS: Final = 100_000
PER_TASK: Final = 16
TURNS: Final = 3
CLIENTS: Final = 200
SECONDS: Final = 30.0
SMALL: Final = 48  # rows of one client's request
MOST_SECONDS: Final = 1.5
MOST_WAIT: Final = 0.05  # seconds
MOST_GROWTH: Final = 10.0  # MB
PROBE: Final = Path(__file__).resolve().parent / "serve_probe.py"


@dataclass(frozen=True, slots=True)
class Serving:
    """The measurements of the server."""

    rows: int
    seconds: float  # the best turn, from the first byte sent to the last received
    sent_mb: float
    received_mb: float
    worst_wait: float  # the longest response time of GET /health in any turn
    median_wait: float
    crowd_seconds: float
    answers: int
    errors: int
    before_mb: float  # server and workers, after a sixth of the time with many clients
    after_mb: float


def section(quick: bool = False) -> str:
    """Measure, and return the section of the page."""
    return serving_section(measure_serving(quick))


def measure_serving(quick: bool = False) -> Serving:
    """Start a server, and measure it."""
    share = 0.1 if quick else 1.0
    rows = int(ROWS * share)
    body = request(rows)
    with _served() as (pid, port):
        url = f"http://127.0.0.1:{port}"
        asyncio.run(_aggregate(url, request(SMALL)))  # so that the worker has loaded its libraries
        turns = [_watched(url, port, body) for _ in range(TURNS)]
        answers, errors, memory = asyncio.run(_crowd(url, pid, SECONDS * share))
    best = min(turns, key=lambda turn: turn[0])
    return Serving(
        rows=rows,
        seconds=best[0],
        sent_mb=len(body) / 1e6,
        received_mb=best[1] / 1e6,
        worst_wait=max(turn[2]["worst"] for turn in turns),
        median_wait=best[2]["median"],
        crowd_seconds=SECONDS * share,
        answers=answers,
        errors=errors,
        before_mb=memory[0],
        after_mb=memory[1],
    )


def request(rows: int) -> bytes:
    """A body for ``/aggregate_metrics``; each row has a reward, three other numbers, three usage numbers and a text."""
    draw = random.Random(0).random
    listed = [
        {
            "_ng_task_index": n // PER_TASK,
            "_ng_rollout_index": n % PER_TASK,
            "agent_ref": {"name": "bench"},
            "reward": float(draw() < 0.5),
            "score": draw(),
            "steps": int(draw() * 20),
            "finished": draw() < 0.9,
            "difficulty": "easy",
            "response": {"usage": {f"{kind}_tokens": int(draw() * 1000) for kind in ("input", "output", "total")}},
        }
        for n in range(rows)
    ]
    return json.dumps({"verify_responses": listed}).encode()


@contextmanager
def _served() -> Iterator[tuple[int, int]]:
    """A context with the process id and the port of a running server."""
    command = [str(Path(sys.executable).parent / "calipers"), "serve", "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=clean_environment())
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        if "http://" not in said:
            raise RuntimeError(f"the server did not start: {said}{process.stderr.read()}")
        yield process.pid, int(said.partition("http://")[2].split()[0].rpartition(":")[2])
    finally:
        process.terminate()
        process.communicate(timeout=60)


def _watched(url: str, port: int, body: bytes) -> tuple[float, int, dict[str, float]]:
    """The seconds and the bytes of one aggregation, and the response times of /health meanwhile."""
    words = [sys.executable, str(PROBE), str(port)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as probe:
        assert probe.stdout is not None
        probe.stdout.readline()
        seconds, received = asyncio.run(_aggregate(url, body))
        waits: dict[str, float] = json.loads(probe.communicate(timeout=60)[0])
    return seconds, received, waits


async def _aggregate(url: str, body: bytes) -> tuple[float, int]:
    import aiohttp

    headers = {"content-type": "application/json"}
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(600)) as session:
        start = time.perf_counter()
        async with session.post(f"{url}/aggregate_metrics", data=body, headers=headers) as answer:
            found = await answer.read()
            if answer.status != 200:
                raise RuntimeError(f"/aggregate_metrics answers {answer.status}: {found[:200]!r}")
        return time.perf_counter() - start, len(found)


async def _crowd(url: str, pid: int, seconds: float) -> tuple[int, int, list[float]]:
    """The numbers of answers and errors of all clients, and the server's memory early on and at the end."""
    import aiohttp

    body, headers = request(SMALL), {"content-type": "application/json"}
    end = time.perf_counter() + seconds
    counts = {True: 0, False: 0}

    async def client(session: aiohttp.ClientSession) -> None:
        while time.perf_counter() < end:
            try:
                async with session.post(f"{url}/aggregate_metrics", data=body, headers=headers) as answer:
                    await answer.read()
                    counts[answer.status == 200] += 1
            except (aiohttp.ClientError, TimeoutError):
                counts[False] += 1

    async def watch() -> list[float]:
        await asyncio.sleep(seconds / 6)
        early = memory(pid)
        await asyncio.sleep(max(0.0, end - time.perf_counter()))
        return [early, memory(pid)]

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CLIENTS)) as session:
        found: list[Any] = await asyncio.gather(watch(), *(client(session) for _ in range(CLIENTS)))
    return counts[True], counts[False], found[0]


def memory(pid: int) -> float:
    """The resident memory in MB of a process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(_resident(one) for one in [str(pid), *children])


def _resident(pid: str) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1.024 / 1e3


def serving_section(found: Serving) -> str:
    """The measurements as Markdown."""
    growth = found.after_mb - found.before_mb
    lines = [
        "## The server",
        "",
        "| | |",
        "|---|---|",
        f"| `POST /aggregate_metrics`, {found.rows:,} rows, {found.sent_mb:.0f} MB sent, {found.received_mb:.0f} MB "
        f"received | {found.seconds:.2f} s |",
        f"| `GET /health` at the same time, median and longest | {found.median_wait * 1e3:.1f} ms, "
        f"{found.worst_wait * 1e3:.1f} ms |",
        f"| {CLIENTS} clients for {found.crowd_seconds:g} s, {SMALL} rows per request | "
        f"{found.answers / found.crowd_seconds:,.0f} answers/s, {found.errors} errors |",
        f"| memory of server and workers, early in that time and at the end | {found.before_mb:.1f} MB, "
        f"{found.after_mb:.1f} MB |",
        "",
        f"`calipers serve` on the local machine; other processes send the requests. The time is the best of {TURNS} "
        "repeats, from the first byte of the request to the last of the answer, including HTTP. The longest wait is "
        "over all repeats.",
        "",
        f"Targets: <= {MOST_SECONDS:g} s ({_verdict(found.seconds <= MOST_SECONDS)}), health within "
        f"{MOST_WAIT * 1e3:g} ms ({_verdict(found.worst_wait <= MOST_WAIT)}), no error "
        f"({_verdict(found.errors == 0)}), no growth beyond {MOST_GROWTH:g} MB ({_verdict(growth <= MOST_GROWTH)}).",
    ]
    return "\n".join(lines) + "\n"


def _verdict(reached: bool) -> str:
    return "met" if reached else "**missed**"


if __name__ == "__main__":
    print(section(quick="--quick" in sys.argv))
