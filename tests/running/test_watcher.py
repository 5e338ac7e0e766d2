import math
import random
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import rollouts

from calipers.errors import InputError
from calipers.metrics import Metric, Opaque, mean, task_mean
from calipers.pipeline import score_rollouts
from calipers.request import RequestedMetric, make_plan, resolve
from calipers.running.watcher import BATCH, Headline, Until, no_sequence
from calipers.stats.sequence import finite, population

NATIVE = make_plan()


def requests(name):
    return resolve(name, NATIVE.dialect)


def followed(name, *tasks, planned=None, missing="gap"):
    """A headline that has these tasks, each as a list of (outcome, reward), in planned order."""
    headline = Headline(requests(name), planned or len(tasks), len(tasks[0]), missing=missing)
    for position, task in enumerate(tasks):
        for sample, (outcome, reward) in enumerate(task):
            headline.settle(position, sample, outcome, reward)
    return headline.estimate()


def scored(*rewards):
    return [("scored", reward) for reward in rewards]


def test_the_number_a_run_will_end_with_and_that_of_tasks_like_these():
    live = followed("pass@1", *[scored(1.0)] * 40, *[scored(0.0)] * 10, planned=500)
    assert (live.value, live.settled, live.planned, live.samples) == (0.8, 50, 500, 50)
    assert live.interval == finite(40, 50, 500, 0.95)
    assert live.population == population(40, 50, 0.95)
    assert live.why is None


def test_before_the_first_task_there_is_nothing_to_say():
    live = Headline(requests("pass@1"), 10, 1).estimate()
    assert (live.value, live.interval, live.settled, live.why) == (None, None, 0, "no task is complete")


def test_only_the_settled_prefix_of_the_planned_order_counts():
    headline = Headline(requests("pass@1"), 5, 1)
    for position in (1, 2, 4):  # task 0 takes longer, as failing tasks do
        headline.settle(position, 0, "scored", 1.0)
    assert headline.estimate().settled == 0
    headline.settle(0, 0, "scored", 0.0)
    live = headline.estimate()
    assert (live.settled, live.value) == (3, 2 / 3)  # task 4 waits for task 3
    headline.settle(3, 0, "scored", 0.0)
    live = headline.estimate()
    assert (live.settled, live.value, live.interval) == (5, 0.6, (0.6, 0.6))  # no task is outstanding


def test_a_task_settles_with_its_last_sample():
    headline = Headline(requests("pass@2"), 2, 3)
    for sample in (2, 0):
        headline.settle(0, sample, "scored", 1.0)
    assert headline.estimate().settled == 0
    headline.settle(0, 1, "scored", 0.0)
    assert headline.estimate().settled == 1


@pytest.mark.parametrize(
    ("name", "task", "missing", "expected"),
    [
        ("mean_reward", [("scored", 0.5), ("refused", None)], "gap", 0.25),  # a failure of the model is 0
        ("mean_reward", [("scored", 0.5), ("truncated", 0.9)], "gap", 0.7),  # unless a verifier has given a reward
        ("mean_reward", [("scored", 0.5), ("client_failed", None)], "gap", 0.5),
        ("mean_reward", [("scored", 0.5), ("judge_failed", 1.0)], "gap", 0.5),  # missing, whatever its reward
        ("mean_reward", [("scored", 0.5), ("client_failed", None)], "zero", 0.25),
        ("pass@2", [("scored", 1.0), ("client_failed", None)], "gap", None),  # too few samples: undefined
        ("pass@2", [("scored", 1.0), ("client_failed", None)], "zero", 1.0),
        ("mean_reward", [("client_failed", None), ("missing", None)], "gap", None),
        ("any_of_first_1", [("scored", 0.0), ("scored", 1.0)], "gap", 0.0),
    ],
)
def test_what_a_rollout_contributes(name, task, missing, expected):
    live = followed(name, task, missing=missing)
    assert live.value == expected
    assert (live.settled, live.planned) == ((0, 0) if expected is None else (1, 1))  # undefined: in neither number


def test_an_undefined_task_does_not_hold_up_those_behind_it():
    live = followed("pass@1", scored(1.0), [("client_failed", None)], scored(0.0), planned=10)
    assert (live.value, live.settled, live.planned) == (0.5, 2, 9)
    assert live.interval == finite(1, 2, 9, 0.95)


@pytest.mark.parametrize("looked", [False, True])
def test_a_later_attempt_fills_a_gap(looked):
    headline = Headline(requests("pass@1"), 2, 2)
    for sample, outcome in enumerate(("scored", "client_failed")):
        headline.settle(0, sample, outcome, 1.0 if outcome == "scored" else None)
    if looked:
        assert headline.estimate().value == 1.0
    headline.settle(0, 1, "scored", 0.0)
    live = headline.estimate()
    assert (live.value, live.samples) == (0.5, 2)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("pass@3", None),
        ("pass^3", None),
        ("solved_rate", None),
        ("mean_reward", None),
        ("max@2", None),
        ("gpass@2(tau=0.5)", None),
        ("pass_rate", "it weights tasks by their number of samples"),
        ("maj@3", "it uses more than the rewards"),
        ("time_per_task", "it uses more than the rewards"),
        ("median(column=f1)", "it uses more than the rewards"),
        ("bayes_mean", "it is not a mean of task values"),
    ],
)
def test_which_metrics_have_a_sequence(name, why):
    assert no_sequence(requests(name)) == why


def test_nor_has_somebodys_own_function_or_a_mean_without_a_range():
    assert no_sequence(RequestedMetric("own", Opaque("own", lambda tasks: 0.0), {})) is not None
    assert no_sequence(RequestedMetric("length", Metric("length", task_mean, mean), {})) == "its range is unknown"


def test_a_value_without_an_interval_says_why():
    live = followed("pass_rate", scored(1.0, 0.0, 0.0), [("scored", 1.0), *[("client_failed", None)] * 2], planned=9)
    assert (live.value, live.interval) == (0.5, None)  # 2 of 4 samples, not the mean of 1/3 and 1
    assert live.why == "it weights tasks by their number of samples"
    live = followed("maj@1", scored(1.0))
    assert (live.value, live.interval, live.why) == (None, None, "it uses more than the rewards")


def test_rewards_that_leave_the_unit_range():
    tasks = [scored(0.5), scored(3.0)]
    live = followed("mean_reward", *tasks, planned=9)
    assert (live.value, live.interval, live.population) == (1.75, None, None)
    assert live.why == "rewards are outside [0, 1], and the metric declares no other range"
    assert followed("pass@1", *tasks, planned=9).interval is not None  # a pass is 0 or 1 in any case
    live = followed("mean_reward", scored(math.nan))
    assert (live.value, live.interval, live.why) == (None, None, "a reward is not a finite number")


def test_a_range_of_its_own_is_mapped():
    metric = Metric("signed", task_mean, mean, range=(-1.0, 1.0))
    headline = Headline(RequestedMetric("signed", metric, {}), 20, 1)
    for position, reward in enumerate([1.0, -1.0, 0.0, 0.5]):
        headline.settle(position, 0, "scored", reward)
    live = headline.estimate()
    assert live.value == 0.125
    assert live.interval == pytest.approx([2 * end - 1 for end in finite(2.25, 4, 20, 0.95)])


def test_somebody_elses_code_that_fails_does_not_stop_the_run():
    def broken(rewards, by):
        raise KeyError("x")

    headline = Headline(RequestedMetric("own", Metric("own", broken, mean, of_rewards=True), {}, user_code=True), 2, 1)
    for position in (0, 1):
        headline.settle(position, 0, "scored", 1.0)
        live = headline.estimate()
        assert (live.value, live.interval, live.why) == (None, None, "the metric's code failed: KeyError: 'x'")


def run_of(tasks, samples, seed):
    """A random run: records in the order in which they finished, and the position of each task in the plan."""
    rng = random.Random(seed)
    records = []
    for position in range(tasks):
        for sample in range(samples):
            outcome = rng.choice(["scored"] * 6 + ["refused", "client_failed"])
            reward = rng.choice([0.0, 0.1, 0.3, 1.0]) if outcome == "scored" else None
            records.append({"task": f"t{position}", "sample": sample, "outcome": outcome, "reward": reward})
    rng.shuffle(records)
    return records


@pytest.mark.parametrize("missing", ["gap", "zero"])
@pytest.mark.parametrize("name", ["mean_reward", "pass@1", "pass^2", "pass@2(threshold=0.3)", "max@2", "pass_rate"])
def test_a_finished_run_shows_the_number_of_its_report(name, missing):
    """The result is exactly the same, whatever the order of finishing and the number of looks."""
    tasks, samples = 2 * BATCH + 7, 3
    records = run_of(tasks, samples, seed=3)
    plan = make_plan(name, missing=missing)
    headline = Headline(plan.requests[0], tasks, samples, missing=missing)
    for number, record in enumerate(records):
        headline.settle(int(record["task"][1:]), record["sample"], record["outcome"], record["reward"])
        if number % 997 == 0:
            headline.estimate()
    live = headline.estimate()
    (group,) = score_rollouts(rollouts(*records), plan).groups
    estimate = group[name]
    assert live.value == estimate.value
    assert (live.settled, live.samples) == (estimate.tasks, estimate.samples)


@given(st.lists(st.sampled_from([0.0, 0.25, 1.0, None]), min_size=1, max_size=12), st.randoms())
def test_the_order_of_finishing_does_not_matter(rewards, rng):
    places = list(range(len(rewards)))
    rng.shuffle(places)
    shuffled, ordered = Headline(requests("mean_reward"), 20, 1), Headline(requests("mean_reward"), 20, 1)
    for headline, order in ((shuffled, places), (ordered, sorted(places))):
        for location in order:
            outcome = "scored" if rewards[location] is not None else "client_failed"
            headline.settle(location, 0, outcome, rewards[location])
    assert shuffled.estimate() == ordered.estimate()


def test_a_settled_task_keeps_two_numbers():
    tasks, samples = 20_000, 4
    tracemalloc.start()
    try:
        headline = Headline(requests("mean_reward"), tasks, samples)
        before, _ = tracemalloc.get_traced_memory()
        for position in range(tasks):
            for sample in range(samples):
                headline.settle(position, sample, "scored", 0.5)
        headline.estimate()
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert held < 16 * tasks  # 400 bytes for each task if the samples were kept


@pytest.mark.parametrize(
    ("text", "side", "name", "than", "bound"),
    [
        ("width(pass@1) < 0.05", "width", "pass@1", "<", 0.05),
        (" lower( pass^2 )>=.6 ", "lower", "pass^2", ">=", 0.6),
        ("upper(mean_reward) <= 4e-1", "upper", "mean_reward", "<=", 0.4),
        ("width(pass@3(threshold=0.5, reward=acc)) < 0.1", "width", "pass@3(threshold=0.5, reward=acc)", "<", 0.1),
    ],
)
def test_until_is_read(text, side, name, than, bound):
    until = Until.of(text, NATIVE)
    assert (until.side, until.request.text, until.than, until.bound) == (side, name, than, bound)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "--until: '' cannot be read; expected a rule such as 'width(pass@1) < 0.05'"),
        ("pass@1 > 0.5", "--until: 'pass@1 > 0.5' cannot be read; expected a rule such as"),
        ("width(pass@1) = 0.05", "cannot be read"),
        ("width(pass@1) < 0.05 or so", "cannot be read"),
        ("half(pass@1) < 0.05", "cannot be read"),
        ("width(pass@1) > 0.05", "width cannot be compared with >; expected a rule such as"),  # true from the start
        ("lower(pass@1) < 0.5", "lower cannot be compared with <; expected a rule such as"),  # likewise
        ("upper(pass@1) > 0.5", "upper cannot be compared with >"),
        ("width(pass@1) < 5%", "5% is not a number between 0 and 1"),
        ("width(pass@1) < 1", "1 is not a number between 0 and 1"),
        ("lower(pass@1) > nan", "nan is not a number between 0 and 1"),
        ("width(pas@1) < 0.05", "no metric named 'pas@1'; did you mean 'pass@{k}'"),
        ("width(pass_rate) < 0.05", "pass_rate has no interval that is valid at any stopping time: it weights tasks"),
        ("width(maj@3) < 0.05", "expected a mean of task values, such as pass@1 or mean_reward"),
    ],
)
def test_until_that_cannot_be(text, said):
    with pytest.raises(InputError) as caught:
        Until.of(text, NATIVE)
    assert said in str(caught.value)


def test_until_speaks_the_dialect_and_knows_no_clusters():
    until = Until.of("width(pass@3) < 0.1", make_plan(dialect="evsys"))
    assert until.request.metric.name == "any_of_first_{k}"
    with pytest.raises(InputError, match="remove one of the two"):
        Until.of("width(pass@1) < 0.1", make_plan(cluster="book"))


@pytest.mark.parametrize(
    ("text", "reached"),
    [  # 40 of 50: the run's own number lies in [0.601, 0.929], that of tasks like these in [0.591, 0.935]
        ("lower(pass@1) > 0.59", True),
        ("lower(pass@1) > 0.595", False),  # the run's own interval would reach it
        ("upper(pass@1) < 0.94", True),
        ("upper(pass@1) < 0.93", False),
        ("width(pass@1) < 0.35", True),
        ("width(pass@1) <= 0.34", False),
    ],
)
def test_stopping_looks_at_tasks_like_these(text, reached):
    live = followed("pass@1", *[scored(1.0)] * 40, *[scored(0.0)] * 10, planned=500)
    assert Until.of(text, NATIVE).reached(live) is reached


def test_without_an_interval_nothing_stops():
    until = Until.of("lower(mean_reward) > 0.5", NATIVE)
    assert not until.reached(Headline(requests("mean_reward"), 9, 1).estimate())
    assert not until.reached(followed("mean_reward", *[scored(7.0)] * 8, planned=9))


def test_stopping_by_what_is_shown_keeps_its_promise():
    """Runs that stop as soon as the lower end exceeds the truth; the share of such runs is at most alpha."""
    rng = np.random.default_rng(2)
    until = Until.of("lower(pass@1) >= 0.3", NATIVE)
    fooled = 0
    for draws in (rng.random((100, 30)) < 0.3).astype(float):
        headline = Headline(requests("pass@1"), 1_000, 1)
        for position, reward in enumerate(draws):
            headline.settle(position, 0, "scored", reward)
            if until.reached(headline.estimate()):
                fooled += 1
                break
    assert fooled <= 0.05 * 100
