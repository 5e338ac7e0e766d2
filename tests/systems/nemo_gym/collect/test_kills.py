"""A collection survives SIGKILL at any moment: no finished rollout is lost or doubled, and the metrics are the same."""

from __future__ import annotations

import json
import os

from forks import FORKS
from systems.nemo_gym.collect.gathering import agent, report, tasks

KILLS = 30
TASKS = 20


def test_thirty_kills_lose_nothing_and_double_nothing(tmp_path):
    given = tasks(tmp_path, TASKS)
    with agent("--delay", "0.02", "--trouble", "3=once503", "--trouble", "7=oncedrop") as url:
        asked = {"input": given, "url": url, "home": str(tmp_path), "seed": 1, "kills": KILLS, "planned": TASKS * 4}
        done = FORKS.run((json.dumps(asked),), tmp_path, dict(os.environ), module="systems.nemo_gym.collect.lives")
        assert done.code == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["kills"] >= KILLS
        assert report(url)["runs"] >= TASKS * 4 * (found["finished"] + 1)
