"""A collection that is killed again and again, at random moments; started by test_collect_kills.py in its own process.

As in lives.py it forks, so that a life costs no start-up. After each life it looks at the files; at the
end of all it says what it saw.
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

from calipers.systems.nemo_gym.collect.collect import collect
from calipers.systems.nemo_gym.collect.request import Collecting
from calipers.systems.nemo_gym.inputs import Materializing

FOREVER = 60.0


def life(job: Collecting, seconds: float) -> bool:
    """Let a child collect for so long; whether it came to its end."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if collect(job).complete else 3
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
    home, kills, finished = Path(asked["home"]), 0, 0
    how = Materializing(num_repeats=4)
    job = Collecting(asked["input"], home / "undisturbed.jsonl", {"math": asked["url"]}, how, concurrency=8)
    began = time.monotonic()
    assert life(job, FOREVER), "an undisturbed life takes too long"
    longest = time.monotonic() - began
    expected = (home / "undisturbed_aggregate_metrics.json").read_bytes()
    while kills < asked["kills"]:
        log, before = home / f"run{finished}.jsonl", b""
        job = replace(job, output=log)
        metrics = log.with_name(f"run{finished}_aggregate_metrics.json")
        while not life(job, dice.uniform(0.0, longest)):
            kills += 1
            now = whole(log)
            assert now.startswith(before), "a line that was written is gone"
            assert not metrics.exists() or metrics.read_bytes() == expected, "half a metrics file"
            before = now
        rows = [json.loads(line) for line in log.read_bytes().splitlines()]
        keys = [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows]
        assert len(keys) == len(set(keys)) == asked["planned"], "a rollout is doubled or lost"
        assert log.read_bytes().startswith(before)
        assert metrics.read_bytes() == expected, "the metrics are not those of an undisturbed collection"
        finished += 1
    print(json.dumps({"kills": kills, "finished": finished}))


if __name__ == "__main__":
    main()
