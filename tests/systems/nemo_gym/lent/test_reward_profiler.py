"""The stand-in for NeMo Gym's profiler, whose numbers were compared with those of the real one."""

import json

import pytest
from gym import row

from calipers.systems.nemo_gym.lent.reward_profile import RewardProfiler


def planned(*keys):
    return [{"_ng_task_index": t, "_ng_rollout_index": n, "agent_ref": {"name": "a"}, "q": t} for t, n in keys]


@pytest.mark.parametrize(
    ("rows", "results", "said"),
    [
        (planned((0, 0), (0, 1)), [row(0, 0)], "_ng_task_index 0, _ng_rollout_index 1 has no rollout"),
        (planned((0, 0)), [row(0, 0), row(0, 1)], "has no input"),
        (planned((0, 0), (0, 0)), [row(0, 0)], "appears twice"),
        (planned((0, 0)), [row(0, 0), row(0, 0)], "appears twice"),
    ],
)
def test_what_does_not_fit_is_a_value_error(rows, results, said):
    with pytest.raises(ValueError, match=said):
        RewardProfiler().profile_from_data(rows, results)


def test_missing_rollouts_are_allowed_when_asked():
    rows = planned((0, 0), (0, 1), (1, 0))
    profiler = RewardProfiler()
    groups, agents = profiler.profile_from_data(rows, [row(0, 1)], allow_partial_rollouts=True)
    assert [(group["num_rollouts"], group["missing_num_rollouts"]) for group in groups] == [(1, 1)]
    assert agents[0]["agent_ref"] == {"name": "a"}
    assert [result["_ng_rollout_index"] for _, result in profiler.align_rows_and_results(rows, [row(0, 1)], True)] == [
        1
    ]


def test_completion():
    rows = planned((0, 0), (0, 1), (1, 0), (2, 0))
    summary = RewardProfiler().profile_completion_summary(rows, [row(0, 1), row(1, 0), row(9, 0)])
    assert summary == {
        "expected_rollout_rows": 4,
        "completed_rollout_rows": 2,
        "missing_rollout_rows": 2,
        "extra_rollout_rows": 1,
        "reward_profile_completion_pct": 50.0,
        "total_input_rows": 3,
        "complete_input_rows": 1,
        "partial_input_rows": 1,
        "missing_input_rows": 1,
    }
    assert RewardProfiler().profile_completion_summary([], [])["reward_profile_completion_pct"] == 100.0


def test_histograms_are_there_but_not_in_files(tmp_path):
    rows = planned((0, 0), (0, 1), (1, 0))
    results = [row(0, 0, 0.0), row(0, 1, 1.0), row(1, 0, float("inf"))]
    profiler = RewardProfiler()
    groups, agents = profiler.profile_from_data(rows, results)
    histogram = groups[0]["histogram/reward"]
    assert (len(histogram.histogram), len(histogram.bins)) == (64, 65)
    assert (histogram.histogram[0], histogram.histogram[-1], sum(histogram.histogram)) == (1, 1, 2)
    assert histogram.to_json()["values"] == histogram.histogram
    keys = list(groups[0])
    assert keys.index("std/reward") < keys.index("histogram/reward") < keys.index("sample")
    assert "histogram/reward" not in groups[1]  # an infinite value has none
    paths = profiler.write_to_disk(groups, agents, tmp_path / "r.x.jsonl")
    assert [path.name for path in paths] == ["r.x_reward_profiling.jsonl", "r.x_agent_metrics.json"]
    lines = [json.loads(line) for line in paths[0].read_text().splitlines()]
    assert [line["mean/reward"] for line in lines] == [0.5, None]
    assert not [key for line in lines for key in line if key.startswith("histogram")]
    assert json.loads(paths[1].read_text())[0]["agent_ref"] == {"name": "a"}


def test_one_rollout():
    result = {**row(3, 1, 0.5), "ok": True, "note": "x", "response": {"usage": {"total_tokens": 7}}}
    assert RewardProfiler().rollout_info_from_result(result) == {
        "rollout_id": "3:1",
        "_ng_task_index": 3,
        "_ng_rollout_index": 1,
        "reward": 0.5,
        "total_tokens": 7,
        "ok": 1,
    }
