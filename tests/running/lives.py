"""A run that is killed again and again at random moments; test_kills.py starts it in a process of its own.

It forks, so that a life needs no start-up; the child is a process like any other, and SIGKILL ends it like any other.
After each life it checks the log, and at the end it prints its observations.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from calipers.running import Job
from calipers.running.perform import perform

EARLY = 0.2  # share of the lives that end before they could finish anything
JITTER = 0.05  # seconds: a kill comes so long after what it waited for, at most


def life(work: Callable[[], bool], enough: Callable[[], bool], late: float = 0.0) -> bool:
    """Let a child work until a condition holds, and a little longer; returns whether it has ended by itself."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if work() else 3
        finally:
            os._exit(status)
    moment = None
    while moment is None or time.monotonic() < moment:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            assert os.waitstatus_to_exitcode(status) == 0, f"a life ended with {status}"
            return True
        if moment is None and enough():
            moment = time.monotonic() + late
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def mortal(work: Callable[[], bool], log: Path, planned: int, dice: random.Random) -> bool:
    """A life that is killed at a random line of the log, or before the first; returns whether it has ended by itself.

    A life with no line left to write is not killed, except for those that are killed early: the rest of its work takes
    as long as the machine needs.
    """
    lines, late = whole(log).count(b"\n"), dice.uniform(0.0, JITTER)
    if dice.random() < EARLY:
        return life(work, lambda: True, late)
    if lines >= planned:
        return life(work, lambda: False)
    until = dice.randint(lines + 1, planned)
    return life(work, lambda: whole(log).count(b"\n") >= until, late)


def whole(log: Path) -> bytes:
    """The complete lines of a log; a killed writer may leave an incomplete last line."""
    data = log.read_bytes() if log.exists() else b""
    return data[: data.rfind(b"\n") + 1]


def main() -> None:
    asked = json.loads(sys.argv[1])
    dice = random.Random(asked["seed"])
    home, kills, digests = Path(asked["home"]), 0, []
    job = Job(asked["benchmark"], asked["model"], base_url=asked["url"], out=home / "undisturbed", samples=4)
    assert life(lambda: perform(job).complete, lambda: False)
    while kills < asked["kills"]:
        out = home / f"run{len(digests)}"
        log, before = out / "rollouts.jsonl", b""
        while not mortal(lambda out=out: perform(replace(job, out=out)).complete, log, asked["planned"], dice):
            kills += 1
            now = whole(log)
            assert now.startswith(before), "a line that was written is gone"
            before = now
        rows = [json.loads(line) for line in log.read_bytes().splitlines()]
        keys = [(row["task"], row["sample"], row["attempt"]) for row in rows]
        assert len(keys) == len(set(keys)) == asked["planned"], "a rollout is doubled or lost"
        assert log.read_bytes().startswith(before)
        digests.append(json.loads((out / "result.json").read_text())["digest"])
    print(json.dumps({"kills": kills, "digests": digests}))


if __name__ == "__main__":
    main()
