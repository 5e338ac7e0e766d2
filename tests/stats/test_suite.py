import math

import numpy as np
import pytest
from making import rollouts
from reports.shown import estimate

import calipers
from calipers.reports.result import Result
from calipers.stats.intervals import interval, t_quantile, upper_tail
from calipers.stats.margins import equivalence
from calipers.stats.paired import Difference, paired
from calipers.stats.ranks import holm
from calipers.stats.suite import Member, mean_difference, means, suites


def passes(dataset, right, tasks, **more):
    """Records of a dataset with so many tasks passed."""
    return [{"task": f"t{n}", "dataset": dataset, "reward": float(n < right), **more} for n in range(tasks)]


def of(values):
    """The estimate of a mean of 0/1 task values."""
    how = interval(np.array(values, dtype=float), np.ones(len(values)), 0.95, (0.0, 1.0))
    counts = {"tasks": len(values), "samples": len(values), "spread": how.spread}
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


@pytest.mark.parametrize(
    ("sizes", "chance"), [((10,) * 10, 0.9), ((30,) * 27, 0.98), ((2,) * 8, 0.5), ((3, 3, 3), 0.98), ((5,) * 4, 0.9)]
)
def test_the_interval_covers_over_many_small_datasets(sizes, chance):
    """The ends of the datasets' intervals, combined, cover in 88, 85, 78, 81 and 88 % of such suites."""
    draw = np.random.default_rng(4)
    hits = 0
    for _ in range(250):
        drawn = [of(draw.random(size) < chance) for size in sizes]
        low, high = means({str(number): one for number, one in enumerate(drawn)}).macro.interval
        hits += low <= chance <= high
    assert hits >= 0.915 * 250


@pytest.mark.parametrize("limits", [None, (0, 2)])
def test_finished_results_have_the_interval_of_their_rollouts(limits):
    """A result document has no spread; that of the default interval follows from its standard error and tasks."""
    draw = np.random.default_rng(6)
    results = [calipers.score((draw.random((size, 2)) < 0.9) * 1.0, "mean_reward", range=limits) for size in (5, 8, 30)]
    finished = [Result.from_json(result.to_json()) for result in results]
    live, read = (means({str(n): one["mean_reward"] for n, one in enumerate(some)}) for some in (results, finished))
    assert read.macro.interval == pytest.approx(live.macro.interval, abs=1e-9)
    assert read.micro.interval == pytest.approx(live.micro.interval, abs=1e-9)


@pytest.mark.parametrize("column", ["f|range:x", "f|range:1"])
def test_a_column_that_is_called_like_a_range_is_none(column):
    """The signature of a finished result is text, and the mean ended as a bug."""
    rows = [{"task": n, "reward": 1, column: n % 2} for n in range(6)]
    result = calipers.score(rows, f"mean(column={column})")
    parts = [one[f"mean(column={column})"] for one in (result, Result.from_json(result.to_json()))]
    live, read = (means({"a": part, "b": part}).macro.interval for part in parts)
    assert read == pytest.approx(live)


def test_datasets_with_an_interval_of_another_name_are_combined_by_their_ends():
    values = [[3.0], [5.5], [4.0]], [[1.0], [2.0], [2.5]]
    given = {"range": (0, 10), "interval": "t"}
    parts = {str(at): calipers.score(one, "mean_reward", **given)["mean_reward"] for at, one in enumerate(values)}
    macro = means(parts).macro
    assert macro.method == "mover"
    below = math.hypot(*(part.value - part.interval[0] for part in parts.values())) / 2
    assert macro.interval[0] == pytest.approx(macro.value - below)


# --- the mean difference over datasets


def differences(*parts):
    return {str(number): paired(np.asarray(part, dtype=float), limits=(0.0, 1.0)) for number, part in enumerate(parts)}


def test_the_mean_difference_of_five_parts_is_decided_where_none_of_them_is():
    """Five parts of LiveCodeBench: +0.0264, standard error 0.0092, 0.0084 to 0.0445, p 0.004 by the normal quantile."""
    values = 0.018, 0.035, 0.035, 0.020, 0.023
    ends = (-0.017, 0.052), (-0.011, 0.082), (-0.020, 0.091), (-0.014, 0.054), (-0.002, 0.049)
    sizes = 101, 153, 65, 133, 128
    parts = {}
    for number, (value, (low, high), tasks) in enumerate(zip(values, ends, sizes, strict=True)):
        stderr = (high - low) / 2 / t_quantile(0.975, tasks - 1)
        parts[str(number)] = Difference(value, stderr, (low, high), 0.1, "floored_t", tasks, tasks, tasks - 1.0, 1.0)
    found = mean_difference(parts)
    assert found.value == pytest.approx(0.0262, abs=0.0005)
    assert found.stderr == pytest.approx(0.0092, abs=0.0002)
    assert found.interval == pytest.approx((0.0084, 0.0445), abs=0.0006)
    assert found.p == pytest.approx(0.0045, abs=0.001)
    assert 300 < found.freedom < sum(sizes)


def test_one_part_is_itself_but_for_the_name_of_the_test():
    (only,) = differences([0.5, 0.25, 0.0, -0.25, 0.5]).values()
    found = mean_difference({"x": only})
    assert (found.value, found.stderr, found.p) == pytest.approx((only.value, only.stderr, only.p))
    assert found.interval == pytest.approx(only.interval)


def test_parts_without_any_difference_leave_an_interval_and_no_claim():
    parts = differences(np.zeros(50), np.zeros(100))
    found = mean_difference(parts)
    highs = [part.interval[1] for part in parts.values()]
    assert (found.value, found.p) == (0.0, 1.0)
    assert found.interval == pytest.approx((-math.hypot(*highs) / 2, math.hypot(*highs) / 2))
    assert equivalence(found, 0.05).shown
    assert not equivalence(found, 0.01).shown


def test_a_part_without_a_test_leaves_none_and_is_named():
    parts = {**differences([0.1, 0.2]), "one": paired(np.array([1.0]), limits=(0.0, 1.0))}
    found = mean_difference(parts)
    assert found.value == pytest.approx(0.575)
    assert (found.p, found.interval, found.stderr) == (None, None, None)
    assert found.why.startswith("no test on 'one'")
    none = mean_difference({**parts, "none": paired(np.array([]))})
    assert none.value is None
    assert none.why.startswith("no difference on 'none'")


def test_a_margin_sees_losses_that_are_not_in_the_data():
    """Rare full losses: t alone would call them equivalent."""
    rare = np.zeros(50)
    rare[0] = -0.01
    found = mean_difference(differences(rare, rare))
    assert upper_tail((found.value + 0.02) / found.stderr, found.freedom) < 0.001
    assert not equivalence(found, 0.02).shown


SIZES = [(100,) * 5, (20,) * 5, (10, 20, 50, 200, 500), (10, 10, 500), (5,) * 8, (2, 3, 100, 100)]
CHANCES = [(0.5,), (0.5, 0.95, 0.02)]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("chances", CHANCES)
def test_equal_models_are_rarely_called_different(sizes, chances):
    """By simulation: the mean at most about 5 %, and any single benchmark after Holm at most about 5 %.

    600 replicates, a second or two each, have an error of 0.9 points; the worst true levels are 5.2 and 5.8 %.
    """
    draw, replicates = np.random.default_rng(7), 600
    by_mean = by_any = 0
    for _ in range(replicates):
        parts = {}
        for number, size in enumerate(sizes):
            old, new = draw.random((2, size)) < chances[number % len(chances)]
            parts[str(number)] = paired(new.astype(float) - old, limits=(0.0, 1.0))
        by_mean += mean_difference(parts).p <= 0.05
        by_any += min(holm(np.array([part.p for part in parts.values()]))) <= 0.05
    assert by_mean / replicates < 0.075
    assert by_any / replicates < 0.08


def test_a_true_mean_difference_is_covered_and_found():
    """A difference of 0.06 on five benchmarks of 100 tasks: covered in about 95 %, and found more often than alone."""
    draw, replicates = np.random.default_rng(8), 400
    covered = by_mean = alone = 0
    for _ in range(replicates):
        parts = {}
        for number in range(5):
            chance = draw.beta(2, 2, 100)
            old, new = draw.random(100) < chance, draw.random(100) < np.minimum(chance + 0.06, 1)
            parts[str(number)] = paired(new.astype(float) - old, limits=(0.0, 1.0))
        found = mean_difference(parts)
        truth = 0.06 - 0.0003  # of what is cut off at 1
        covered += found.interval[0] <= truth <= found.interval[1]
        by_mean += found.p <= 0.05
        alone += parts["0"].p <= 0.05
    assert covered / replicates > 0.93
    assert by_mean > 2 * alone
