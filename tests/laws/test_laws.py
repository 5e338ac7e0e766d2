"""True of every metric in the index, or declared not to be.

An example is scored once, by all metrics: what is found is compared by name, and a failure shows the names that differ.
"""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import rollouts

import calipers
from calipers.names import METRICS
from examples import examples

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


def all_found(rows, unless=None):
    """Every metric of some rows, by its entry; without those that declare to break a law."""
    entries = [entry for entry in ENTRIES if unless is None or unless not in breaks(entry)]
    assert entries
    result = calipers.score(rollouts(*rows, labels=["answer"]), [asked(entry) for entry in entries])
    return {entry: result[asked(entry)] for entry in entries}


@examples(20)
@given(tasks=TASKS, random=st.randoms())
def test_row_order_does_not_matter(tasks, random):
    rows = records(tasks)
    assert all_found(rows) == all_found(random.sample(rows, len(rows)))


@examples(20)
@given(tasks=TASKS, random=st.randoms())
def test_sample_order_does_not_matter_unless_declared(tasks, random):
    shuffled = [random.sample(task, len(task)) for task in tasks]
    first, second = (all_found(records(each), unless="sample order") for each in (tasks, shuffled))
    assert first == second


@examples(20)
@given(tasks=TASKS)
def test_doubling_every_task_changes_nothing_unless_declared(tasks):
    once, twice = (all_found(records(each), unless="doubling") for each in (tasks, tasks + tasks))
    for entry, estimate in once.items():
        value = None if estimate.value is None else pytest.approx(estimate.value, nan_ok=True, rel=1e-12)
        assert twice[entry].value == value, entry


@pytest.mark.parametrize("entry", ENTRIES)
@examples(2)
@given(tasks=TASKS)
def test_a_metric_is_the_same_alone_and_among_all(entry, tasks):
    assert found(entry, records(tasks)) == all_found(records(tasks))[entry]


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


@examples(20)
@given(tasks=TASKS)
def test_every_answer_is_strict_json_within_its_interval_or_says_why(tasks):
    names = [asked(entry) for entry in ENTRIES]
    result = calipers.score(rollouts(*records(tasks), labels=["answer"]), names)
    estimates = json.loads(result.to_json())["groups"][0]["metrics"]
    assert list(estimates) == names
    for name, estimate in estimates.items():
        assert (estimate["value"] is None) <= bool(estimate["why"]), name
        assert (estimate["interval"] is None) == bool(estimate["why"]), name
        if estimate["interval"]:
            low, high = estimate["interval"]
            assert low < high, name
            assert low <= estimate["value"] <= high, name
        if estimate["bounds"] and estimate["value"] is not None:
            assert estimate["bounds"][0] <= estimate["bounds"][1], name
            assert all(math.isfinite(end) for end in estimate["bounds"]), name


@examples(20)
@given(tasks=TASKS)
def test_a_metric_with_a_range_stays_in_it(tasks):
    ranged = [entry for entry in ENTRIES if METRICS.load(entry).range == (0.0, 1.0)]
    assert ranged
    estimates = all_found(records(tasks))
    assert [(entry, v) for entry in ranged if (v := estimates[entry].value) is not None and not 0 <= v <= 1] == []
