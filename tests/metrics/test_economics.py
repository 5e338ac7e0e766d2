import pytest
from making import rollouts

import calipers


def usage(task, sample=0, reward=1, **fields):
    return {"task": task, "sample": sample, "reward": reward, "usage": fields}


def test_usage_is_averaged_over_samples_then_tasks_and_missing_usage_is_missing():
    table = rollouts(
        usage("g1", latency_s=1, input_tokens=5, output_tokens=2, cost_usd=0.01),
        usage("g3", 0, 0, latency_s=2, input_tokens=10),  # the missing output count is 0, as the input count is known
        {"task": "g3", "sample": 1, "reward": 1},  # without usage: missing, not zero
    )
    economics = calipers.score(table).groups[0].economics
    assert economics["time_per_task"].value == 1.5
    assert economics["tokens_per_task"].value == 8.5
    assert economics["cost_per_task"].value == 0.01
    assert economics["cost_per_task"].undefined_tasks == 1
    assert economics["latency_p50"].value == 1.5


def test_totals_are_exact_and_no_usage_means_no_economics():
    group = calipers.score(rollouts(*(usage("t", s, cost_usd=0.1) for s in range(10)))).groups[0]
    assert group.totals == {"cost_usd": 1.0}
    assert set(group.economics) == {"cost_per_task", "total_cost_per_task", "cost_per_solved"}
    assert calipers.score(rollouts({"task": "a", "reward": 1})).groups[0].economics == {}


def test_cost_per_solved_divides_all_cost_by_tasks_with_a_pass():
    table = rollouts(usage("a", 0, 1, cost_usd=1), usage("a", 1, 0, cost_usd=2), usage("b", 0, 0, cost_usd=3))
    assert calipers.score(table, "cost_per_solved")["cost_per_solved"].value == 6


def test_time_per_solved_is_the_same_of_latency_and_shown_by_itself():
    table = rollouts(usage("a", 0, 1, latency_s=1), usage("a", 1, 0, latency_s=2), usage("b", 0, 0, latency_s=3))
    (group,) = calipers.score(table).groups
    assert group.economics["time_per_solved"].value == 6


def test_cost_per_solved_without_a_pass_has_no_value():
    found = calipers.score(rollouts(usage("a", 0, 0, cost_usd=1)), "cost_per_solved")
    document = found.to_dict()["groups"][0]["metrics"]["cost_per_solved"]
    assert document["value"] is None
    assert document["why"]


def test_economics_do_not_enter_the_digest():
    fast, slow = (calipers.score(rollouts(usage("a", latency_s=seconds))) for seconds in (1, 2))
    assert fast.digest == slow.digest
    assert fast.groups[0].economics["time_per_task"].value == pytest.approx(1)


def test_cost_per_solved_of_two_solved_tasks_and_one_without_a_price():
    table = rollouts(usage("a", 0, 1, cost_usd=1), usage("b", 0, 1, cost_usd=5), {"task": "c", "reward": 1})
    found = calipers.score(table, "cost_per_solved")["cost_per_solved"]
    assert (found.value, found.tasks, found.undefined_tasks) == (3, 2, 1)


def test_tokens_of_one_side_only_are_those_tokens():
    table = rollouts(usage("a", output_tokens=7), usage("b", input_tokens=3))
    assert calipers.score(table, "tokens_per_task")["tokens_per_task"].value == 5


def test_the_total_cost_of_a_task_is_of_all_its_samples():
    table = rollouts(
        usage("a", 0, 1, cost_usd=1),
        usage("a", 1, 0, cost_usd=2),
        usage("b", 0, 0, cost_usd=5),
        {"task": "c", "reward": 1},  # without a price: not a task that cost nothing
    )
    found = calipers.score(table, ["total_cost_per_task", "cost_per_task", "cost_per_solved"])
    assert found["total_cost_per_task"].value == 4
    assert found["total_cost_per_task"].undefined_tasks == 1
    assert found["cost_per_task"].value == 3.25  # per sample, as in earlier versions
    solved = 1 / 2  # of the tasks with a price
    assert found["cost_per_solved"].value == found["total_cost_per_task"].value / solved
    assert found.groups[0].economics["total_cost_per_task"].value == 4


@pytest.mark.parametrize("metric", ["time_per_task", "tokens_per_task", "cost_per_task", "mean(column=latency_s)"])
def test_no_interval_of_usage_reaches_below_zero(metric):
    spent = [dict.fromkeys(("latency_s", "cost_usd", "input_tokens"), value) for value in (0, 0, 1, 90)]
    table = rollouts(*(usage(f"t{number}", **each) for number, each in enumerate(spent)))
    found = calipers.score(table, metric)[metric]
    assert found.interval[0] == 0
    assert found.interval[1] > found.value + found.stderr


def test_a_column_that_is_negative_keeps_its_interval():
    table = rollouts(*({"task": f"t{n}", "reward": 1, "shift": n - 1} for n in range(4)))
    assert calipers.score(table, "mean(column=shift)")["mean(column=shift)"].interval[0] < 0
