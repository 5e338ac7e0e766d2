"""NeMo Gym's offline reward profile: both of its files."""

from __future__ import annotations

from calipers.systems.nemo_gym.aggregate import reward_profile


def profile(vector):
    partial = vector["allow_partial_rollouts"]
    found = reward_profile(vector["input_materialized"], vector["input_rollouts"], allow_partial=partial)
    return {"reward_profiling_jsonl": found.tasks, "agent_metrics_json": found.agents}, vector["expected_aggregate"]
