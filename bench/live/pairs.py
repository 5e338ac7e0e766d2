"""Measure what a run adds to a bare HTTP client: both in one process, alternating over short segments.

``pairs.py '{"url": ...}'`` prints one line of JSON. Whole processes cannot be compared: two runs of the same code
differ by more than the effect that is measured, while adjacent segments of one process run on the same machine state.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2]))

from bench.live.tasks import row
from bench.peers.bare_aiohttp import ask, session
from calipers.clients import Connection
from calipers.clients.openai import connect
from calipers.clients.secrets import Secrets
from calipers.request import make_plan
from calipers.running import Job
from calipers.running.log import Log
from calipers.running.loop import Loop, RunLimits, Status, finish
from calipers.running.perform import request_for
from calipers.running.rollout import Outstanding
from calipers.running.watcher import Headline, Watcher
from calipers.tasks import Task
from calipers.tasks.jsonl import as_task, harbor_task_from_dict
from calipers.verifiers.text import EXACT_MATCH

Segment = Callable[[], Awaitable[Any]]


async def paired(url: str, segments: int, requests: int, workers: int, folder: str) -> dict[str, list[list[float]]]:
    """Wall-clock and CPU seconds of every segment of both loops, which alternate in going first.

    The first segment of each loop is a warm-up.
    """
    taken: dict[str, list[list[float]]] = {"bare": [], "calipers": []}
    async with session(workers) as http:
        run = Running(url, (segments + 1) * requests, workers, Path(folder))
        loops: dict[str, Segment] = {
            "bare": lambda: ask(http, url, requests, workers),
            "calipers": lambda: run.segment(requests),
        }
        for turn in range(segments + 1):
            for name in sorted(loops, reverse=bool(turn % 2)):
                start, cpu = perf_counter(), process_time()
                await loops[name]()
                if turn:
                    taken[name].append([perf_counter() - start, process_time() - cpu])
        await run.close()
    return taken


class Running:
    """The whole loop of `calipers run`: client, verifier, record, synced log, and the running estimate."""

    def __init__(self, url: str, tasks: int, workers: int, folder: Path) -> None:
        secrets = Secrets()
        self._client = connect("fixed", Connection(url, most=workers, secrets=secrets))
        self._log = Log(folder / "rollouts.jsonl", secrets.scrub_bytes)
        self._owed = _owed([as_task(harbor_task_from_dict(row(number))) for number in range(tasks)])
        headline = Headline(make_plan(None).requests[0], tasks, 1)
        self._loop = Loop(
            self._client,
            {"exact_match": EXACT_MATCH},
            partial(request_for, Job("bench", "openai/fixed", max_tokens=16, temperature=0.0)),
            self._log,
            dataset="bench",
            model="openai/fixed",
            status=Status(tasks),
            observer=Watcher(headline, None, None),
            limits=RunLimits(workers),
        )

    async def segment(self, requests: int) -> None:
        """Run a number of rollouts, until the last of them is on disk."""
        await self._loop.run(islice(self._owed, requests))

    async def close(self) -> None:
        """Close the client and the log."""
        await self._client.close()
        await self._log.close()


def _owed(tasks: Sequence[Task]) -> Iterator[Outstanding]:
    for position, task in enumerate(tasks):
        yield Outstanding(position, task, 0)


def main(asked: str) -> None:
    """Measure, and print the result."""
    with tempfile.TemporaryDirectory(prefix="calipers-bench-") as folder:
        print(json.dumps(finish(lambda: paired(**json.loads(asked), folder=folder))))


if __name__ == "__main__":
    main(*sys.argv[1:])
