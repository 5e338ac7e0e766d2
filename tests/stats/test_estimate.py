import math

import numpy as np
import pytest
from making import GAP, rewards, rollouts

import calipers
from calipers.errors import Incomplete, PluginError
from calipers.metrics import Metric, mean, task_mean
from calipers.names import METRICS
from calipers.rollouts.column import Column
from calipers.rollouts.record import OUTCOMES


def scaled(column, by, alpha):
    means = task_mean(column, by)
    return Column(alpha * means.values, means.given)


def failing(column, by):
    raise ZeroDivisionError("no luck")


@pytest.fixture
def plugin():
    added = []

    def add(name, thing):
        METRICS.add(name, thing)
        added.append(name)

    yield add
    for name in added:
        METRICS.discard(name)


class Middle:
    """The mean of the tasks' means, as a black box."""

    def compute(self, tasks):
        return sum(sum(task) / len(task) for task in tasks) / len(tasks)


class Worst:
    def compute(self, tasks):
        return min(sum(task) / len(task) for task in tasks)


def score(tasks, *metrics, **options):
    return calipers.score(tasks, list(metrics), **options)


def planned(right, scored, of):
    """One sample of each of ``of`` tasks: right, wrong, or never run."""
    done = [{"task": f"t{n}", "reward": int(n < right)} for n in range(scored)]
    return rollouts(*done, *({"task": f"t{n}", "outcome": "not_run"} for n in range(scored, of)))


def test_what_is_missing_is_dropped_zeroed_or_bounded():
    table = planned(right=72, scored=80, of=100)
    dropped, zeroed = (
        calipers.score(table, "mean_reward", missing=policy)["mean_reward"] for policy in ("gap", "zero")
    )
    assert dropped.value == 0.9
    assert zeroed.value == 0.72
    assert dropped.bounds == zeroed.bounds == (0.72, 0.92)
    assert (dropped.samples, dropped.undefined_tasks) == (80, 20)
    assert (zeroed.samples, zeroed.undefined_tasks) == (100, 0)


def test_what_was_lost_before_the_model_was_asked_is_filled_only_above_a_tenth():
    few, many = planned(right=80, scored=90, of=100), planned(right=80, scored=89, of=100)
    assert calipers.score(few, "mean_reward")["mean_reward"].bounds is None
    assert calipers.score(few, "mean_reward").groups[0].ledger.filled == 0
    assert calipers.score(many, "mean_reward")["mean_reward"].bounds == (0.8, 0.91)
    assert calipers.score(few, "mean_reward", missing="zero")["mean_reward"].bounds == (0.8, 0.9)
    lost = [{"task": f"t{n}", "outcome": "client_failed" if n < 5 else "not_run"} for n in range(10)]
    rows = [{"task": f"u{n}", "reward": float(n < 80)} for n in range(90)]
    some = calipers.score([*rows, *lost], "mean_reward")
    assert some["mean_reward"].bounds == (80 / 95, 85 / 95)
    assert some.groups[0].ledger.filled == 5


def test_the_ends_of_a_score_are_those_of_its_worst_fillings():
    rows = [[1.0, GAP]] * 3 + [[0.0, 1.0]] * 5 + [[1.0, 1.0]] * 4
    estimate = score(rows, "mean_reward")["mean_reward"]
    low, high = (
        score([[end if reward is GAP else reward for reward in task] for task in rows], "mean_reward")["mean_reward"]
        for end in (0.0, 1.0)
    )
    assert estimate.bounds == (low.value, high.value)
    assert estimate.worst_interval == (low.interval[0], high.interval[1])
    assert estimate.filled_intervals == (low.interval, high.interval)
    assert score([[1.0, 0.0]] * 4, "mean_reward")["mean_reward"].worst_interval is None


def test_without_a_range_the_ends_seen_fill_missing_rewards():
    rewards = [[float(n % 4) * 2.5] for n in range(20)]
    seen = score([*rewards, [GAP]], "mean_reward")["mean_reward"]
    assert seen.bounds == pytest.approx((75 / 21, 82.5 / 21))
    assert score([*rewards[:19], [GAP]], "mean_reward")["mean_reward"].bounds is None  # 19 rewards say too little
    by_half = calipers.score(
        [{"task": n, "reward": None if n == 20 else rewards[n][0], "half": n < 3 or n == 20} for n in range(21)],
        "mean_reward",
        by="half",
    )
    few = by_half.groups[0].breakdowns["half"]["true"]["mean_reward"]
    assert few.bounds == pytest.approx((7.5 / 4, 15 / 4))  # the ends are those of the run, not of the slice


def test_missing_fail_refuses_any_gap():
    with pytest.raises(calipers.Incomplete, match="10 of 100 rollouts are missing"):
        calipers.score(planned(80, 90, 100), missing="fail")
    assert calipers.score(planned(80, 100, 100), missing="fail")["mean_reward"].value == 0.8


@pytest.mark.parametrize(
    ("tasks", "bounds"),
    [
        ([[1, 0], [1, 1]], None),  # no gap
        ([[1, GAP], [0, 0]], (0.25, 0.5)),
        ([[2, GAP], [0, 0]], None),  # a reward outside [0, 1]: nobody knows how far a gap could reach
        ([[-1, GAP], [0, 0]], None),
        ([[GAP], [GAP]], (0.0, 1.0)),
    ],
)
def test_bounds_need_a_gap_and_a_range_of_rewards(tasks, bounds):
    assert score(tasks, "mean_reward")["mean_reward"].bounds == bounds


def test_bounds_of_pass_at_k_count_the_gaps_as_samples():
    found = score([[1, GAP, GAP], [0, 0, 0]], "pass@2")["pass@2"]
    assert found.value == 0.0  # the first task has one sample: undefined
    assert found.bounds == pytest.approx((1 / 3, 0.5))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_number_that_is_none_says_why_and_json_holds_null(value):
    result = score([[value, 1], [0]], "mean_reward", "pass_rate")
    assert not math.isfinite(result["mean_reward"].value)
    document = result.to_dict()["groups"][0]["metrics"]["mean_reward"]
    assert document["value"] is None
    assert document["why"] == f"1 reward is {'NaN' if math.isnan(value) else 'infinite'}"
    assert result["pass_rate"].value == (1 / 3 if math.isnan(value) else 2 / 3)  # NaN reaches no threshold


def test_tasks_without_samples_are_counted_not_scored():
    found = score([[1], [], [0]], "mean_reward")["mean_reward"]
    assert (found.value, found.tasks, found.undefined_tasks) == (0.5, 2, 1)


def test_no_tasks_at_all_is_a_result_without_numbers():
    result = score([], "mean_reward", "pass@2")
    assert [found.value for found in result.groups[0].metrics.values()] == [None, None]
    assert result.groups[0].ledger.planned == 0
    assert result["pass@2"].why == "no task has a value"


def test_repeats_are_averaged_within_a_task_first():
    once, often = score([[1], [0], [1]], "mean_reward"), score([[1] * 16, [0] * 16, [1] * 16], "mean_reward")
    assert once["mean_reward"].interval == often["mean_reward"].interval


def test_a_plugins_parameters_reach_its_reduction(plugin):
    plugin("scaled", Metric("scaled", scaled, mean, params={"alpha": 1.0}))
    result = score([[1, 1], [1]], "scaled", "scaled(alpha=0.25)")
    assert [found.value for found in result.groups[0].metrics.values()] == [1.0, 0.25]


def test_a_plugin_that_fails_is_named_and_no_bug_of_ours(plugin):
    plugin("failing", Metric("failing", failing, mean))
    with pytest.raises(PluginError, match="metric 'failing' failed: ZeroDivisionError: no luck"):
        score([[1]], "failing")


def test_an_opaque_metric_is_drawn_by_clusters(plugin):
    plugin("middle", Middle)
    rows = [
        {"task": f"t{n}", "reward": (n % 7) / 100 + (n // 10) / 10, "metadata": {"book": n // 10}} for n in range(40)
    ]
    table = rollouts(*rows, labels=["book"])
    plain, clustered = (calipers.score(table, "middle", cluster=key)["middle"] for key in (None, "book"))
    assert plain.value == clustered.value
    assert plain.stderr < clustered.stderr
    assert "cluster:book" in clustered.signature


def test_a_signature_names_all_that_made_the_number():
    found = score([[1, 0], [1, 1]], "pass@2(threshold=0.5)", seed=7, missing="zero", confidence=0.9)
    (estimate,) = found.groups[0].metrics.values()
    assert estimate.signature == (
        "pass@{k}|k:2|reward:reward|threshold:0.5|dialect:native|missing:zero|confidence:0.9"
        "|interval:wilson|cluster:none|seed:7|definitions:3"
    )


def test_several_reward_keys_are_reported_each_unless_one_is_picked():
    rows = [{"task": task, "rewards": {"right": n, "terse": n / 2}} for n, task in enumerate("ab")]
    table = rollouts(*rows)
    assert list(calipers.score(table, ["mean_reward", "pass@1(threshold=0.5)"]).groups[0].metrics) == [
        "mean_reward(reward=right)",
        "mean_reward(reward=terse)",
        "pass@1(threshold=0.5, reward=right)",
        "pass@1(threshold=0.5, reward=terse)",
    ]
    assert calipers.score(table, "mean_reward", reward="terse")["mean_reward"].value == 0.25
    assert calipers.score(table, "mean_reward(reward=right)")["mean_reward(reward=right)"].value == 0.5
    with pytest.raises(calipers.InputError, match="no reward named 'tersee'; did you mean 'terse'"):
        calipers.score(table, "mean_reward", reward="tersee")


def test_a_reward_key_of_its_own_is_the_reward():
    table = rollouts({"task": "a", "rewards": {"accuracy": 1}}, {"task": "b", "rewards": {"accuracy": 0}})
    assert calipers.score(table, "mean_reward")["mean_reward"].value == 0.5


@pytest.mark.parametrize("confidence", [0, 1, -0.1, 1.5, math.nan, 1e-8, math.nextafter(1, 0)])
def test_a_confidence_that_means_nothing_is_refused(confidence):
    with pytest.raises(calipers.InputError, match="expected a number between 0 and 1"):
        score([[1], [0]], "mean_reward", confidence=confidence)


def test_every_outcome_is_known_to_the_ledger():
    table = rollouts(*({"task": word, "outcome": word, "reward": 1} for word in OUTCOMES))
    assert calipers.score(table).groups[0].ledger.outcomes == dict.fromkeys(OUTCOMES, 1)


def test_slices_are_sorted_and_the_absent_have_a_name():
    rows = [
        {"task": f"t{n}", "reward": n % 2, "metadata": {"level": level}} for n, level in enumerate(["b", "a", "b", 2])
    ]
    result = calipers.score(rollouts(*rows, {"task": "x", "reward": 1}, labels=["level"]), by="level")
    cut = result.groups[0].breakdowns["level"]
    assert list(cut) == ["2", "__missing__", "a", "b"]
    assert cut["b"]["mean_reward"].value == 0.0
    assert sum(part.ledger.planned for part in cut.values()) == 5


def test_a_key_nobody_has_is_noted():
    result = calipers.score([[1], [0]], by="levle")
    assert list(result.groups[0].breakdowns["levle"]) == ["__missing__"]
    assert "no rollout has 'levle'" in result.notes[0]
    pair = calipers.score([{"task": n, "reward": 1, "level": n} for n in range(2)], by="level+levle")
    assert list(pair.groups[0].breakdowns["level+levle"]) == ["0, __missing__", "1, __missing__"]
    assert pair.notes == ["no rollout has 'levle': all rollouts are in the slice __missing__"]


def test_a_dataset_without_a_name_that_lacks_the_usual_reward_is_noted():
    rows = [{"task": 1, "rewards": {"acc": 1}}, {"task": 1, "dataset": "d", "reward": 1}]
    note = "no rollout of (unnamed) has the reward 'reward'; --reward picks another: acc"
    assert calipers.score(rollouts(*rows)).notes == [note]


@pytest.mark.parametrize(
    ("books", "message"),
    [
        ([[1, 2], [1, 1]], "task 'a' has several values for 'book'"),
        ([[1, 1], [None, None]], "task 'b' has no 'book'"),
    ],
)
def test_a_task_belongs_to_exactly_one_cluster(books, message):
    rows = [
        {"task": task, "sample": sample, "reward": 1, "metadata": {"book": book}}
        for task, of_task in zip("ab", books)
        for sample, book in enumerate(of_task)
    ]
    with pytest.raises(calipers.InputError, match=message):
        calipers.score(rollouts(*rows, labels=["book"]), cluster="book")


def test_columns_and_groups_stay_out_of_each_others_way():
    column, by = rewards([1, GAP], [0.5])
    assert np.array_equal(by.code, [0, 0, 1])
    assert column.kept().tolist() == [1, 0.5]


def test_only_samples_of_tasks_with_a_value_enter():
    found = score([[1, 1, 1], [1], [0, 0, 0]], "pass@3")["pass@3"]
    assert (found.tasks, found.samples, found.undefined_tasks) == (2, 6, 1)


def test_samples_beyond_the_first_k_do_not_enter():
    found = score([[1, 1, 0], [1]], "pass@1", dialect="evsys")["pass@1"]
    assert (found.tasks, found.samples) == (2, 2)


def test_a_pooled_rate_weighs_tasks_by_their_samples():
    counts = [(3, 3), (1, 2), (0, 4), (2, 2), (5, 8), (1, 1)]
    tasks = [[1] * passes + [0] * (n - passes) for passes, n in counts]
    result = score(tasks, "pass_rate", "mean_reward")
    assert result["pass_rate"].value == 0.6
    assert result["pass_rate"].stderr == pytest.approx(0.155692, abs=1e-6)
    assert result["pass_rate"].interval == pytest.approx((0.238751, 0.877662), abs=1e-6)
    assert result["mean_reward"].interval == pytest.approx((0.342647, 0.902774), abs=1e-6)


@pytest.mark.parametrize(
    ("passes", "metric", "value", "ends"),
    [
        ([0, 1, 1, 2, 3, 4, 4, 4], "mean_reward", 0.59375, (0.316716, 0.821696)),
        ([0, 1, 1, 2, 3, 4, 4, 4], "pass@2", 0.729167, (0.430554, 0.905543)),
        ([0, 1, 1, 2, 3, 4, 4, 4], "pass^2", 0.458333, (0.197877, 0.743741)),
        ([0, 1, 1, 2, 3, 4, 4, 4], "pass@4", 0.875, (0.529112, 0.977583)),
    ],
)
def test_worked_examples_from_samples(passes, metric, value, ends):
    found = score([[1] * c + [0] * (4 - c) for c in passes], metric)[metric]
    assert found.value == pytest.approx(value, abs=1e-6)
    assert found.interval == pytest.approx(ends, abs=1e-6)
    assert found.higher_is_better is True


@pytest.mark.parametrize(("metric", "why"), [("max(column=reward)", "extremes"), ("sum(column=reward)", "a sum")])
def test_a_statistic_without_an_interval_says_why(metric, why):
    found = score([[1, 0.5], [0]], metric)[metric]
    assert (found.interval, found.stderr, found.method, found.higher_is_better) == (None, None, None, None)
    assert why in found.why


def test_rewards_outside_the_unit_range_get_the_t_interval():
    assert score([[2], [0], [5]], "mean_reward")["mean_reward"].method == "t"
    assert score([[1], [0], [0.5]], "mean_reward")["mean_reward"].method == "wilson_t"
    assert score([[1], [0], [1]], "mean_reward")["mean_reward"].method == "wilson"
    assert score([[1], [0], [1]], "mean(column=reward)")["mean(column=reward)"].method == "wilson"


def test_an_opaque_metric_answers_like_any_other(plugin):
    plugin("worst", Worst)
    tasks = [[1, 0.5], [], [0.25, GAP], [1]]
    lists = [[1, 0.5], [0.25], [1]]
    seen = []
    plugin("spy", type("Spy", (), {"compute": lambda self, tasks: float(seen.append(tasks) or len(tasks))}))
    found = score(tasks, "spy", missing="zero")["spy"]
    assert seen[0] == [[1, 0.5], [], [0.25, 0.0], [1]]  # --missing zero fills the gap
    assert (found.tasks, found.samples, found.undefined_tasks) == (3, 5, 1)
    found = score(lists * 2, "worst")["worst"]
    assert (found.value, found.interval, found.method, found.higher_is_better) == (0.25, None, None, None)
    assert found.why.startswith("all bootstrap draws lie on one side of the value")
    plugin("middle", Middle)
    found = score(lists * 2, "middle")["middle"]
    assert (found.method, found.higher_is_better) == ("bootstrap", None)
    assert found.interval[0] < found.value < found.interval[1]
    assert "interval:bootstrap" in found.signature
    plugin("nan", type("Nan", (), {"compute": lambda self, tasks: math.nan}))
    assert score(lists, "nan")["nan"].why == "undefined for these values"


def test_zero_is_never_negative():
    assert math.copysign(1, score([[-0.0]], "mean_reward")["mean_reward"].value) == 1


@pytest.mark.parametrize("interval", ["default", "t", "bootstrap", "bca", "jeffreys"])
def test_rewards_near_the_end_of_all_numbers_have_a_mean_and_no_interval(interval):
    tasks = [[1e308, -1e308], [1e308], [5e307]]
    result = score(tasks, "mean_reward", "std(column=reward)", interval=interval)
    assert result["mean_reward"].value == pytest.approx(5e307)
    assert result["mean_reward"].why == "the values are too large for their spread to be a number"
    assert result["std(column=reward)"].value == pytest.approx(9.464847243e307)  # its square is no number, it is one
    assert "Infinity" not in result.to_json()


def test_a_sum_beyond_all_numbers_is_told_apart_from_a_value_that_does_not_exist():
    result = score([[1.7e308]] * 3, "mean_reward", "pass_rate(threshold=1)")
    found = result["mean_reward"]
    assert (found.value, found.why) == (None, "the values are too large for their sum to be a number")
    assert result["pass_rate(threshold=1)"].value == 1.0


@pytest.mark.parametrize("scale", [1e-200, 2.0**-1060, -1e-150])  # the squares of all of them are 0
@pytest.mark.parametrize("interval", ["default", "t", "bootstrap"])
def test_tiny_rewards_are_as_unsure_as_the_same_ones_at_a_larger_scale(scale, interval):
    values = [3.0, -1.0, 2.0, 5.0, 0.25]
    plain, tiny = (
        score([[scale * value] for value in values], "mean_reward", "std(column=reward)", interval=interval)
        for scale in (math.copysign(1.0, scale), scale)
    )
    for name in ("mean_reward", "std(column=reward)"):
        assert tiny[name].value == pytest.approx(plain[name].value * abs(scale), rel=1e-3, abs=0)
    found = tiny["mean_reward"]
    assert found.stderr == pytest.approx(plain["mean_reward"].stderr * abs(scale), rel=1e-3, abs=0)
    ends = [end * abs(scale) for end in plain["mean_reward"].interval]
    assert list(found.interval) == pytest.approx(ends, rel=1e-3, abs=0)
    assert found.why is None


def test_a_key_that_only_some_groups_have_is_no_typing_error():
    rows = [{"task": "a", "reward": 1}, {"task": "a", "model": "m", "reward": 0}]
    result = calipers.score(rollouts(*rows), by="model")
    assert result.notes == []
    assert [list(group.breakdowns["model"]) for group in result.groups] == [["__missing__"], ["m"]]


@pytest.mark.parametrize("name", ["mean(column=reward)", "sum(column=reward)", "median(column=reward)"])
def test_a_gap_that_counts_zero_counts_in_statistics_of_the_reward_too(name):
    table = rollouts(
        {"task": "a", "reward": 1, "f1": 0.5},
        {"task": "b", "outcome": "client_failed"},
        {"task": "c", "reward": 1, "f1": 0.5},
        {"task": "d", "outcome": "verifier_failed"},
        {"task": "e", "outcome": "client_failed"},
    )
    by_name = {"mean": "pooled_mean", "sum": "pooled_sum", "median": "percentile(column=reward, q=50)"}
    same = by_name[name.partition("(")[0]]
    result = score(table, name, same, "mean(column=f1)", missing="zero")
    assert (result[name].value, result[name].samples) == (result[same].value, 5)
    assert result["mean(column=f1)"].samples == 2  # what has no f1 is no rollout without a number
    assert score(table, name, missing="gap")[name].samples == 2


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"task": "a", "completion": "x"}], ""),
        ([{"task": "a", "reward": None}, {"task": "b", "reward": 0}], None),
        ([{"task": "a", "outcome": "client_failed"}], None),  # why there is none, the ledger says
    ],
)
def test_who_did_not_say_what_the_reward_is_called_is_told(rows, said):
    notes = [] if said is None else [f"no rollout has a reward; --columns reward=KEY names it{said}"]
    found = [note for note in calipers.score(rollouts(*rows)).notes if "are missing" not in note]
    assert found == notes


def test_all_or_nothing_means_the_reward_that_is_asked_for():
    rows = [{"task": "a", "rewards": {"acc": 1, "style": 0.5}}, {"task": "b", "rewards": {"acc": 0}}]
    assert calipers.score(rollouts(*rows), reward="acc", missing="fail")["mean_reward"].value == 0.5
    asked = [{"reward": "style"}, {"metrics": ["pass@1(reward=style)"]}, {"metrics": ["max(column=style)"]}]
    for choice in [*asked, {}]:  # without a choice: each of them
        with pytest.raises(Incomplete, match=r"^1 of 2 rollouts has no reward 'style'; --missing gap excludes"):
            calipers.score(rollouts(*rows), missing="fail", **choice)


def test_what_explain_says_of_the_prior_of_bayes_mean():
    """Nineteen of twenty tasks pass: with few samples the posterior lies far below, and its interval with it."""
    for samples, value in ((1, 0.65), (4, 0.80), (16, 0.90)):
        rng = np.random.default_rng(samples)
        found = score((rng.random((100, samples)) < 0.95).astype(float).tolist(), "bayes_mean")["bayes_mean"]
        assert found.value == pytest.approx(value, abs=0.02)
        assert found.interval[1] < 0.95
