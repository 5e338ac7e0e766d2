"""Numbers of nemo_gym 0.5.1 with pandas 3.1.1; an exactly rounded sum would end in another digit."""

import pytest
from gym import row

from calipers.systems.nemo_gym.lent.reward_profile import (
    add_avg_sample_std_dev,
    compute_aggregate_metrics,
    compute_pass_majority_metrics,
)


@pytest.mark.parametrize(
    ("rewards", "mean", "std"),
    [
        ([0.62, 0.76, 0.53, 0.25, 0.74], 0.5800000000000001, 0.20676073128135333),
        ([0.12, 0.45, 0.24, 0.95, 0.63, 0.18], 0.4283333333333334, 0.3179570201562888),
    ],
)
def test_mean_and_standard_deviation(rewards, mean, std):
    rows = [row(0, number, reward) for number, reward in enumerate(rewards)]
    metrics = compute_aggregate_metrics(rows)
    (group,) = metrics.group_level_metrics
    for of in (metrics.agent_metrics, group):
        assert (of["mean/reward"], of["std/reward"]) == (mean, std)
    assert compute_aggregate_metrics(rows[::-1]).agent_metrics == metrics.agent_metrics


def test_helpers():
    rewards = [[0.85, 0.38, 0.09], [0.71, 0.68, 0.95], [0.82, 0.46, 0.97]]
    metrics, *scores = compute_pass_majority_metrics([[{"reward": reward} for reward in task] for task in rewards])
    add_avg_sample_std_dev(metrics, *scores)
    assert {name: value for name, value in metrics.items() if "std" in name} == {
        "pass@1[avg-of-2]/accuracy/std_dev_across_runs": 20.27039439401436,
        "pass@1[avg-of-2]/accuracy/std_err_across_runs": 14.33333333333333,
        "pass@1[avg-of-3]/accuracy/std_dev_across_runs": 14.379769740081992,
        "pass@1[avg-of-3]/accuracy/std_err_across_runs": 8.302163930321173,
        "pass@1[avg-of-2]/accuracy/avg_sample_std_dev": 0.20270394394014357,
        "pass@1[avg-of-3]/accuracy/avg_sample_std_dev": 0.2645431708421375,
    }
