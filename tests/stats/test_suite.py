import math

import numpy as np
import pytest
from making import rollouts
from reports.shown import estimate

import calipers
from calipers.stats.intervals import interval
from calipers.stats.suite import Member, means, suites


def passes(dataset, right, tasks, **more):
    """Records of a dataset with so many tasks passed."""
    return [{"task": f"t{n}", "dataset": dataset, "reward": float(n < right), **more} for n in range(tasks)]


def of(values):
    """The estimate of a mean of 0/1 task values."""
    how = interval(np.array(values, dtype=float), np.ones(len(values)), 0.95, (0.0, 1.0))
    counts = {"tasks": len(values), "samples": len(values)}
    return estimate(float(np.mean(values)), stderr=how.stderr, interval=how.ends, method=how.method, **counts)


@pytest.fixture(scope="module")
def scored():
    records = [*passes("big", 800, 1000, model="m"), *passes("small", 25, 50, model="m")]
    return calipers.score(rollouts(*records), ["mean_reward", "max(column=reward)", "bayes_mean"])


def test_a_large_and_a_small_dataset(scored):
    assert [group["mean_reward"].stderr for group in scored.groups] == pytest.approx([0.012655, 0.071429], abs=1e-6)
    (suite,) = scored.suites
    assert (suite.agent, suite.model, suite.datasets) == (None, "m", ["big", "small"])
    assert list(suite.metrics) == ["mean_reward"]  # neither an extreme nor a posterior is a mean over tasks
    macro, micro = suite.metrics["mean_reward"].macro, suite.metrics["mean_reward"].micro
    assert (macro.value, macro.stderr) == pytest.approx((0.65, 0.036271), abs=1e-6)
    assert (micro.value, micro.stderr) == pytest.approx((0.785714, 0.012524), abs=1e-6)
    assert (macro.tasks, micro.tasks, macro.why, micro.why) == (1050, 1050, None, None)


def test_a_mean_of_datasets_does_not_get_the_error_of_a_mean_of_tasks(scored):
    """lm-eval once printed the pooled error, 0.012520, beside the unweighted mean: three times too sure."""
    spread = [(group["mean_reward"].tasks, group["mean_reward"].stderr) for group in scored.groups]
    pooled = math.sqrt(sum((n - 1) * n * error**2 for n, error in spread) / (1050 - 2) / 1050)
    assert pooled == pytest.approx(0.012520, abs=1e-6)
    macro = scored.suites[0].metrics["mean_reward"].macro
    assert macro.stderr == pytest.approx(0.03627, abs=1e-5)
    assert macro.interval[1] - macro.interval[0] > 5 * pooled


def test_the_document_holds_suites_and_the_digest_does_not(scored):
    document = scored.to_dict()
    (suite,) = document["suites"]
    assert {key: suite[key] for key in ("agent", "model", "datasets")} == {
        "agent": None,
        "model": "m",
        "datasets": ["big", "small"],
    }
    macro = suite["metrics"]["mean_reward"]["macro"]
    assert macro.keys() == document["groups"][0]["metrics"]["mean_reward"].keys()
    assert (macro["method"], len(macro["interval"])) == ("mover", 2)
    assert macro["signature"].startswith("macro|datasets:2|mean_reward|")
    assert "|interval:mover|" in macro["signature"]
    bare = calipers.Result("native", "gap", 0.95, 0, [], scored.groups)
    assert bare.digest == scored.digest
    assert bare.to_dict()["suites"] == []
    assert len(scored.rows()) == 2 * 3  # a row per number of a group, as ever


def test_each_agent_and_model_has_its_own_suite():
    records = [
        *passes("a", 1, 3, model="m"),
        *passes("b", 2, 3, model="m"),
        *passes("a", 1, 3, model="n", agent="x"),
        *passes("b", 3, 3, model="n", agent="x"),
        *passes("a", 1, 3, model="n"),  # on one dataset only
    ]
    found = calipers.score(rollouts(*records), "mean_reward").suites
    assert [(suite.agent, suite.model, suite.datasets) for suite in found] == [
        (None, "m", ["a", "b"]),
        ("x", "n", ["a", "b"]),
    ]
    assert [suite.metrics["mean_reward"].macro.value for suite in found] == pytest.approx([1 / 2, 2 / 3])


@pytest.mark.parametrize("more", [{"model": "m"}, {"model": "n"}])
def test_one_dataset_or_none_is_no_suite(more):
    records = [*passes("a", 1, 3, model="m"), *passes(None, 1, 3, **more)]
    assert calipers.score(rollouts(*records)).suites == []
    assert calipers.score([[1, 0], [1]]).suites == []


@pytest.mark.parametrize(
    ("small", "value", "stderr", "why"),
    [
        (None, False, False, "no value on 'small'"),
        ({"value": None, "why": "no task has a value"}, False, False, "no value on 'small': no task has a value"),
        ({"value": math.nan, "why": "1 reward is NaN"}, False, False, "no value on 'small': 1 reward is NaN"),
        ({"stderr": None, "interval": None, "why": "one task"}, True, False, "no interval on 'small': one task"),
        ({"stderr": 0.0, "interval": None, "why": "no spread"}, True, True, "no interval on 'small': no spread"),
    ],
)
def test_what_a_dataset_lacks_the_mean_lacks(small, value, stderr, why):
    found = means({"big": of([1, 0, 1]), "small": None if small is None else estimate(**small)})
    for mean in (found.macro, found.micro):
        assert (mean.value is not None, mean.stderr is not None) == (value, stderr)
        assert (mean.interval, mean.method, mean.why) == (None, None, why)


def test_a_dataset_without_values_is_named():
    records = [*passes("a", 1, 3), {"task": "t", "dataset": "b", "outcome": "client_failed"}]
    mean = calipers.score(rollouts(*records), "mean_reward").suites[0].metrics["mean_reward"].macro
    assert (mean.value, mean.why) == (None, "no value on 'b': no task has a value")
    assert "|interval:none|" in mean.signature


@pytest.mark.parametrize("right", [0, 1])
def test_datasets_that_merely_agree_are_not_certain(right):
    found = means({"a": of([right] * 30), "b": of([right] * 10), "c": of([right] * 7)})
    for mean in (found.macro, found.micro):
        low, high = mean.interval
        assert (mean.value, mean.stderr) == (right, 0)
        assert 0 <= low <= right <= high <= 1
        assert 0.01 < high - low < 0.3


def test_a_metric_that_no_dataset_has_is_in_no_suite():
    members = [Member(None, None, dataset, {"pass@3": estimate()}) for dataset in "ab"]
    (suite,) = suites(members, ["pass@3", "pass@4"])
    assert list(suite.metrics) == ["pass@3"]


@pytest.mark.parametrize(
    ("sizes", "chances"),
    [((200, 50), (0.8, 0.5)), ((20, 500), (0.05, 0.6)), ((10, 10), (0.5, 0.9))],
)
def test_the_interval_covers(sizes, chances):
    """20 tasks at 0.05 often pass none: value ± 1.96 stderr would cover 75 times in a hundred there."""
    draw = np.random.default_rng(3)
    truths = np.mean(chances), np.average(chances, weights=sizes)
    hits = np.zeros(2)
    for _ in range(400):
        drawn = [of(draw.random(size) < chance) for size, chance in zip(sizes, chances, strict=True)]
        found = means({str(number): one for number, one in enumerate(drawn)})
        for number, mean in enumerate((found.macro, found.micro)):
            hits[number] += mean.interval[0] <= truths[number] <= mean.interval[1]
    assert (hits / 400 > 0.92).all()
