import json
import math

from making import rollouts

import calipers
from calipers.systems.trackers import flat_metrics


def scored(*rows, **asked):
    return calipers.score(rollouts(*rows, labels=["level"]), **asked).groups[0]


def test_names_that_mlflow_takes_and_no_file_beside_its_own_folder():
    rows = [{"task": t, "sample": s, "reward": s, "metadata": {"level": "a/b c"}} for t in range(3) for s in range(2)]
    numbers = flat_metrics(scored(*rows, metrics=["pass@1", "pass^2", "mean_reward"], by="level"))
    assert numbers["pass_at_1/value"] == 0.5
    assert numbers["pass_hat_2/n"] == 3
    assert numbers["mean_reward/by/level/a_b_c/value"] == 0.5
    assert numbers["rollouts/missing"] == 0
    files = {*numbers}
    assert not [name for name in files if any(other.startswith(f"{name}/") for other in files)]
    allowed = {*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./"}
    assert {*"".join(files)} <= allowed


def test_two_slices_with_one_plain_name_stay_two():
    rows = [
        {"task": t, "reward": n, "metadata": {"level": level}} for t, (level, n) in enumerate([("a b", 1), ("a/b", 0)])
    ]
    numbers = flat_metrics(scored(*rows, metrics="mean_reward", by="level"))
    values = {name: value for name, value in numbers.items() if "/by/" in name and name.endswith("/value")}
    assert sorted(values.values()) == [0.0, 1.0]


def test_what_does_not_exist_is_left_out_and_nothing_is_nan():
    numbers = flat_metrics(scored({"task": 1, "outcome": "client_failed"}, metrics="mean_reward"))
    assert "mean_reward/value" not in numbers
    assert numbers["rollouts/missing"] == 1
    assert all(map(math.isfinite, numbers.values()))
    assert json.dumps(numbers, allow_nan=False)
