"""ATIF: a valid trajectory, and all possible errors."""

from __future__ import annotations

from copy import deepcopy

import pytest

from calipers.errors import InputError
from calipers.systems.harbor.trajectory import ModelUsage, decode_trajectory, usage_by_model

CALL = {"tool_call_id": "c1", "function_name": "bash", "arguments": {"command": "ls"}}
RIGHT = {
    "schema_version": "ATIF-v1.8",
    "agent": {"name": "a", "version": "1", "model_name": "m1"},
    "steps": [
        {
            "step_id": 1,
            "source": "user",
            "message": [{"type": "text", "text": "hi"}],
            "timestamp": "2026-04-02T09:00:00Z",
        },
        {
            "step_id": 2,
            "source": "agent",
            "message": "",
            "tool_calls": [CALL],
            "observation": {"results": [{"source_call_id": "c1", "content": "a.txt"}, {"content": None}]},
            "metrics": {"prompt_tokens": 10, "completion_tokens": 3, "cached_tokens": 4, "cost_usd": 0.5},
        },
    ],
    "subagent_trajectories": [
        {
            "trajectory_id": "sub",
            "agent": {"name": "b", "version": "1", "model_name": "m2"},
            "steps": [{"step_id": 1, "source": "agent", "message": "x", "metrics": {"prompt_tokens": 1}}],
        }
    ],
}


def changed(**parts):
    """The valid trajectory with some values changed; keys are paths such as ``steps__1__message``."""
    found = deepcopy(RIGHT)
    for path, value in parts.items():
        *above, last = [int(part) if part.isdecimal() else part for part in path.split("__")]
        place = found
        for part in above:
            place = place[part]
        if value is Ellipsis:
            del place[last]
        else:
            place[last] = value
    return found


def test_the_right_one():
    assert len(decode_trajectory(RIGHT).steps) == 2
    assert decode_trajectory(changed(schema_version=...)).schema_version == "ATIF-v1.8"


@pytest.mark.parametrize(
    "parts",
    [
        {"foo": 1},
        {"agent__foo": 1},
        {"steps__1__metrics__foo": 1},
        {"agent__version": ...},
        {"schema_version": "ATIF-v2.0"},
        {"steps": []},
        {"steps__1__step_id": 3},
        {"steps__0__source": "robot"},
        {"steps__0__message": ...},
        {"steps__0__timestamp": "noon"},
        {"steps__0__model_name": "m"},
        {"steps__0__tool_calls": [CALL]},
        {"steps__0__reasoning_content": "hm"},
        {"steps__0__message": [{"type": "text"}]},
        {"steps__0__message": [{"type": "image", "text": "x", "source": {"media_type": "image/png", "path": "p"}}]},
        {"steps__0__message": [{"type": "image"}]},
        {"steps__1__llm_call_count": 0},  # and yet it has metrics
        {"steps__1__llm_call_count": -1},
        {"steps__1__observation__results__0__source_call_id": "c2"},
        {"steps__1__observation__results__0__subagent_trajectory_ref": [{}]},
        {"subagent_trajectories__0__trajectory_id": ...},
        {"subagent_trajectories": [RIGHT["subagent_trajectories"][0]] * 2},
        {"subagent_trajectories__0__steps__0__step_id": 2},
    ],
)
def test_wrong_ones(parts):
    with pytest.raises(InputError, match=r"^agent/trajectory\.json: "):
        decode_trajectory(changed(**parts), "agent/trajectory.json")


@pytest.mark.parametrize(
    "parts",
    [
        {"extra": {"foo": 1}},
        {"schema_version": "ATIF-v1.2"},
        {
            "steps__0__message": [
                {"type": "audio", "source": {"media_type": "audio/wav", "path": "p", "duration_sec": 2}}
            ]
        },
        {"steps__1__reasoning_effort": "high"},
        {"steps__1__observation__results__0__subagent_trajectory_ref": [{"trajectory_id": "sub"}]},
        {"steps__1__metrics": ..., "steps__1__llm_call_count": 0},
    ],
)
def test_other_right_ones(parts):
    decode_trajectory(changed(**parts))


@pytest.mark.parametrize("document", [None, [], "x", 3])
def test_what_is_no_trajectory(document):
    with pytest.raises(InputError, match=r"^trajectory: "):
        decode_trajectory(document)


def test_usage_is_each_model_s_own():
    assert usage_by_model(decode_trajectory(RIGHT)) == {
        "m1": ModelUsage(10, 4, 3, 0.5),
        "m2": ModelUsage(1, 0, 0, None),  # tokens without a price
    }


def test_one_step_without_a_price_takes_it_from_the_model():
    steps = [{**RIGHT["steps"][1], "step_id": 1}, {**RIGHT["steps"][1], "step_id": 2, "metrics": {"prompt_tokens": 1}}]
    assert usage_by_model(decode_trajectory(changed(steps=steps)))["m1"] == ModelUsage(11, 4, 3, None)


def test_a_step_that_used_nothing_costs_nothing():
    steps = [{**RIGHT["steps"][1], "step_id": 1}, {**RIGHT["steps"][1], "step_id": 2, "metrics": {}}]
    assert usage_by_model(decode_trajectory(changed(steps=steps)))["m1"].cost_usd == 0.5
