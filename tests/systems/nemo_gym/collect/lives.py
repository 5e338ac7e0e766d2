"""A collection that is killed repeatedly, at random moments; test_kills.py starts it in a process of its own.

It lives as in lives.py. After each life it looks at the files; at the end of all it says what it saw.
"""

from __future__ import annotations

import json
import random
import sys
from dataclasses import replace
from pathlib import Path

from running.lives import life, mortal, whole

from calipers.systems.nemo_gym.collect.collect import collect
from calipers.systems.nemo_gym.collect.request import Collecting, Materializing


def main() -> None:
    asked = json.loads(sys.argv[1])
    dice = random.Random(asked["seed"])
    home, kills, finished = Path(asked["home"]), 0, 0
    how = Materializing(num_repeats=4)
    job = Collecting(asked["input"], home / "undisturbed.jsonl", {"math": asked["url"]}, how, concurrency=8)
    assert life(lambda: collect(job).complete, lambda: False)
    expected = (home / "undisturbed_aggregate_metrics.json").read_bytes()
    while kills < asked["kills"]:
        log, before = home / f"run{finished}.jsonl", b""
        metrics = log.with_name(f"run{finished}_aggregate_metrics.json")
        while not mortal(lambda log=log: collect(replace(job, output=log)).complete, log, asked["planned"], dice):
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
