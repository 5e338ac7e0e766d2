import json
import tracemalloc

import pytest

from calipers.running.folder import Past, read_history


def record(task="a", sample=0, attempt=1, **more):
    return json.dumps({"task": task, "sample": sample, "attempt": attempt, "outcome": "scored", "reward": 1.0, **more})


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([record(attempt=1, reward=0.0), record(attempt=2)], Past(2, "scored", 1.0, None)),
        ([record(attempt=2), record(attempt=1, reward=0.0)], Past(2, "scored", 1.0, None)),  # highest number
        ([record(reward=True)], Past(1, "scored", 1.0, None)),
        ([record(reward=None, outcome="refused")], Past(1, "refused", None, None)),
        ([record(reward=None, outcome=None)], Past(1, "missing", None, None)),
        ([record(outcome=None)], Past(1, "scored", 1.0, None)),
        ([record(usage={"cost_usd": 2.0, "input_tokens": 1}, judge_cost_usd=0.5)], Past(1, "scored", 1.0, 2.5)),
        # the cost of every attempt counts
        ([record(usage={"cost_usd": 2.0}), record(attempt=2, usage={"cost_usd": 4.0})], Past(2, "scored", 1.0, 6.0)),
        ([record(attempt=2), record(usage={"cost_usd": 2.0})], Past(2, "scored", 1.0, 2.0)),
        ([record(), ""], Past(1, "scored", 1.0, None)),
    ],
)
def test_what_a_log_says_of_a_rollout(tmp_path, lines, expected):
    log = tmp_path / "log"
    log.write_text("".join(line + "\n" for line in lines))
    assert read_history(log) == {("a", 0): expected}


def test_a_hundred_thousand_records_are_held_in_little_memory(tmp_path):
    log = tmp_path / "log"
    rows = (record(f"task-{n:06}", usage={"cost_usd": n / 1e6}, prompt="x" * 200) for n in range(100_000))
    log.write_text("".join(row + "\n" for row in rows))
    tracemalloc.start()
    history = read_history(log)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(history) == 100_000
    assert held <= peak < 30e6
