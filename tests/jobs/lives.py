"""A run that is killed again and again, at random moments; started by test_kills.py in a process of its own.

It forks, so that a life costs no start-up: the child is a process like any other, and SIGKILL ends
it like any other. After each life it looks at the log; at the end of all it says what it saw.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import aiohttp  # noqa: F401  loaded here once, not in every life
import numpy  # noqa: F401

import calipers.run.clients.openai  # noqa: F401
from calipers.jobs.job import Job
from calipers.jobs.perform import perform

FOREVER = 60.0


def life(job: Job, seconds: float) -> bool:
    """Let a child run the job for so long; whether it came to its end."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if perform(job).complete else 3
        finally:
            os._exit(status)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            assert os.waitstatus_to_exitcode(status) == 0, f"a life ended with {status}"
            return True
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def whole(log: Path) -> bytes:
    """The whole lines of a log; a killed writer may leave half a line after them."""
    data = log.read_bytes() if log.exists() else b""
    return data[: data.rfind(b"\n") + 1]


def main() -> None:
    asked = json.loads(sys.argv[1])
    dice = random.Random(asked["seed"])
    home, kills, torn, digests = Path(asked["home"]), 0, 0, []
    job = Job(asked["benchmark"], asked["model"], base_url=asked["url"], out=home / "undisturbed", samples=4)
    began = time.monotonic()
    assert life(job, FOREVER), "an undisturbed life takes too long"
    longest = time.monotonic() - began
    while kills < asked["kills"]:
        job = replace(job, out=home / f"run{len(digests)}")
        log, before = home / f"run{len(digests)}" / "rollouts.jsonl", b""
        while not life(job, dice.uniform(0.0, longest)):
            kills += 1
            now = whole(log)
            assert now.startswith(before), "a line that was written is gone"
            torn += len(now) != (log.stat().st_size if log.exists() else 0)
            before = now
        rows = [json.loads(line) for line in log.read_bytes().splitlines()]
        keys = [(row["task"], row["sample"], row["attempt"]) for row in rows]
        assert len(keys) == len(set(keys)) == asked["planned"], "a rollout is doubled or lost"
        assert log.read_bytes().startswith(before)
        digests.append(json.loads((log.parent / "result.json").read_text())["digest"])
    print(json.dumps({"kills": kills, "torn": torn, "digests": digests}))


if __name__ == "__main__":
    main()
