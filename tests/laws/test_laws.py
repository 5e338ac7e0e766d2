"""True of every metric in the index, or declared not to be."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from making import rollouts

import calipers
from calipers.names import METRICS

ENTRIES = sorted(METRICS.entries)
NEEDS = {"percentile": "column=cost_usd, q=30"}
COLUMN = {"mean", "median", "min", "max", "sum", "std"}


def asked(entry):
    name = entry.replace("{k}", "2")
    inner = NEEDS.get(entry) or ("column=cost_usd" if entry in COLUMN else "")
    return f"{name}({inner})" if inner else name


def breaks(entry):
    return METRICS.load(entry).breaks


def record(task, sample, reward, cost):
    outcome = {} if reward is not None else {"outcome": "verifier_failed"}
    usage = {"cost_usd": cost, "latency_s": cost, "output_tokens": cost}
    return {"task": task, "sample": sample, "reward": reward, "answer": reward, "usage": usage, **outcome}


REWARDS = st.one_of(st.none(), st.sampled_from([0, 1, 0.5, 0.1, 0.7]))
TASKS = st.lists(
    st.lists(st.tuples(REWARDS, st.integers(0, 1000).map(lambda n: n / 100)), min_size=2, max_size=4),
    min_size=2,
    max_size=5,
)


def records(tasks):
    return [record(f"t{i}", j, *row) for i, task in enumerate(tasks) for j, row in enumerate(task)]


def found(entry, rows):
    return calipers.score(rollouts(*rows, labels=["answer"]), asked(entry))[asked(entry)]


@pytest.mark.parametrize("entry", ENTRIES)
@settings(max_examples=10)
@given(tasks=TASKS, random=st.randoms())
def test_row_order_does_not_matter(entry, tasks, random):
    rows = records(tasks)
    assert found(entry, rows) == found(entry, random.sample(rows, len(rows)))


@pytest.mark.parametrize("entry", ENTRIES)
@settings(max_examples=10)
@given(tasks=TASKS, random=st.randoms())
def test_sample_order_does_not_matter_unless_declared(entry, tasks, random):
    shuffled = [random.sample(task, len(task)) for task in tasks]
    first, second = found(entry, records(tasks)), found(entry, records(shuffled))
    if "sample order" not in breaks(entry):
        assert first == second


@pytest.mark.parametrize("entry", ENTRIES)
@settings(max_examples=10)
@given(tasks=TASKS)
def test_doubling_every_task_changes_nothing_unless_declared(entry, tasks):
    once, twice = found(entry, records(tasks)), found(entry, records(tasks + tasks))
    if "doubling" not in breaks(entry):
        assert twice.value == (None if once.value is None else pytest.approx(once.value, nan_ok=True, rel=1e-12))


WITNESS = {  # data on which a declared breach can be seen, so that no declaration outlives its reason
    "sample order": ([[(0, 1.0), (0, 1.0), (1, 1.0)]] * 2, [[(1, 1.0), (0, 1.0), (0, 1.0)]] * 2),
    "doubling": ([[(1, 1.0), (1, 3.0)], [(1, 7.0)]], [[(1, 1.0), (1, 3.0)], [(1, 7.0)]] * 2),
}


@pytest.mark.parametrize(("entry", "law"), [(entry, law) for entry in ENTRIES for law in sorted(breaks(entry))])
def test_a_declared_breach_is_real(entry, law):
    one, other = (found(entry, records(tasks)).value for tasks in WITNESS[law])
    if entry == "all_of_first_{k}":
        one, other = (
            found(entry, records(t)).value for t in ([[(1, 1.0), (1, 1.0), (0, 1.0)]], [[(0, 1.0), (1, 1.0), (1, 1.0)]])
        )
    assert one != other


@pytest.mark.parametrize("entry", ENTRIES)
def test_nothing_gives_a_gap_with_a_reason(entry):
    rows = [{"task": "a", "outcome": "client_failed", "cost_usd": None}, {"task": "b", "outcome": "not_run"}]
    if entry in COLUMN or entry == "percentile":
        rows.append({"task": "c", "outcome": "not_run", "usage": {"cost_usd": 1}})
        table = rollouts(*rows).where([True, True, False])
    else:
        table = rollouts(*rows, {"task": "d", "answer": 1, "reward": 1}, labels=["answer"]).where([True, True, False])
    estimate = calipers.score(table, asked(entry))[asked(entry)]
    assert estimate.value is None
    assert estimate.interval is None
    assert estimate.why


@pytest.mark.parametrize("entry", ENTRIES)
@settings(max_examples=10)
@given(tasks=TASKS)
def test_every_answer_is_strict_json_within_its_interval_or_says_why(entry, tasks):
    result = calipers.score(rollouts(*records(tasks), labels=["answer"]), asked(entry))
    estimate = json.loads(result.to_json())["groups"][0]["metrics"][asked(entry)]
    assert (estimate["value"] is None) <= bool(estimate["why"])
    assert (estimate["interval"] is None) == bool(estimate["why"])
    if estimate["interval"]:
        low, high = estimate["interval"]
        assert low < high
        assert low <= estimate["value"] <= high
    if estimate["bounds"] and estimate["value"] is not None:
        assert estimate["bounds"][0] <= estimate["bounds"][1]
        assert all(math.isfinite(end) for end in estimate["bounds"])


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if METRICS.load(entry).range == (0.0, 1.0)])
@settings(max_examples=10)
@given(tasks=TASKS)
def test_a_metric_with_a_range_stays_in_it(entry, tasks):
    estimate = found(entry, records(tasks))
    assert estimate.value is None or 0 <= estimate.value <= 1
