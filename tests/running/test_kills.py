"""A run survives SIGKILL at any moment: no finished rollout is lost, and none is counted twice."""

from __future__ import annotations

import json
import os

from forks import FORKS
from running.scene import MODEL, digest, sums, weather

KILLS = 50
TASKS = 20


def test_fifty_kills_lose_nothing_and_double_nothing(tmp_path):
    benchmark = sums(tmp_path, TASKS)
    with weather("--delay", "0.02", "--share", "0.1", "--kinds", "500,dropped") as url:
        asked = {
            "benchmark": benchmark,
            "model": MODEL,
            "url": url,
            "home": str(tmp_path),
            "seed": 1,
            "kills": KILLS,
            "planned": TASKS * 4,
        }
        done = FORKS.run((json.dumps(asked),), tmp_path, dict(os.environ), module="running.lives")
    assert done.code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["kills"] >= KILLS
    assert set(found["digests"]) == {digest(tmp_path / "undisturbed")}
