"""The bench of the server: what it asks, and what it says of the figures."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2]))

from bench.serve import Serving, memory, request, serving_section

FOUND = Serving(
    rows=100_000,
    seconds=1.2,
    sent_mb=27.0,
    received_mb=26.0,
    worst_wait=0.02,
    median_wait=0.001,
    crowd_seconds=30.0,
    answers=9000,
    errors=0,
    before_mb=200.0,
    after_mb=201.0,
)


@pytest.mark.parametrize(
    ("changed", "missed"),
    [({}, 0), ({"seconds": 1.6}, 1), ({"worst_wait": 0.06, "errors": 1}, 2), ({"after_mb": 211.0}, 1)],
)
def test_targets(changed, missed):
    said = serving_section(replace(FOUND, **changed))
    assert said.count("**missed**") == missed
    assert "300 answers/s" in said


def test_a_request_is_the_same_every_time():
    rows = json.loads(request(40))["verify_responses"]
    assert len({(row["_ng_task_index"], row["_ng_rollout_index"]) for row in rows}) == 40
    assert request(40) == request(40)


def test_memory_of_a_process():
    assert 1 < memory(os.getpid()) < 100_000
