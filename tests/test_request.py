import pytest
from making import rollouts

import calipers
from calipers.errors import InputError, PluginError
from calipers.metrics.metric import Opaque
from calipers.names import METRICS
from calipers.request import NATIVE, as_metric, resolve


@pytest.fixture(autouse=True)
def _nothing_added(monkeypatch):
    monkeypatch.setattr(METRICS, "added", {})


class Counting:
    """Keeps what it saw, as a careless metric may."""

    made = 0

    def __init__(self):
        Counting.made += 1
        self.seen = []

    def compute(self, task_rewards):
        self.seen.extend(task_rewards)
        return len(self.seen)


def test_a_class_is_made_anew_for_every_call():
    metric = as_metric("counting", Counting)
    assert [metric.compute([[1], [0]]), metric.compute([[1]])] == [2, 1]
    METRICS.add("counting", Counting)
    found = calipers.score([[1], [0], [1]], "counting")["counting"]
    assert (found.value, found.stderr) == (3.0, 0.0)


def test_an_object_with_compute_is_a_metric():
    metric = as_metric("counting", Counting())
    assert isinstance(metric, Opaque)
    assert metric.compute([[1]]) == 1


@pytest.mark.parametrize(
    ("thing", "said"),
    [
        (object(), "metric 'x' is <object object at .*>; expected a calipers.Metric or a class with compute"),
        (type("Empty", (), {}), "metric 'x' is <class .*>; expected a calipers.Metric or a class with compute"),
        (len, "metric 'x' is <built-in function len>; expected"),
        (type("Needy", (), {"__init__": lambda self, k: None}), "metric 'x' cannot be loaded: TypeError: "),
    ],
)
def test_what_is_no_metric(thing, said):
    METRICS.add("x", thing)
    with pytest.raises(PluginError, match=said):
        resolve("x", NATIVE)


def test_a_metric_that_fails_says_its_name():
    class Failing:
        def compute(self, task_rewards):
            return task_rewards[99]

    METRICS.add("failing", Failing)
    with pytest.raises(PluginError, match=r"^metric 'failing' failed: IndexError: list index out of range$"):
        calipers.score([[1]], "failing")


@pytest.mark.parametrize("name", ["f1 (macro)", "a, b", "x=1", "two words", "f1(macro)"])
def test_a_plugins_name_is_a_free_string(name):
    METRICS.add(name, Counting)
    assert resolve(name, NATIVE).text == name
    assert calipers.score([[1]], [name])[name].value == 1.0


@pytest.mark.parametrize("name", ["", "f1 (macro)", "two words", "x=1"])
def test_a_name_that_nobody_has_and_nobody_can_read(name):
    with pytest.raises(InputError, match=r"metric .* cannot be read|cannot be read; expected key=value"):
        resolve(name, NATIVE)


def test_a_plugin_without_parameters_takes_none():
    METRICS.add("counting", Counting)
    with pytest.raises(InputError, match=r"metric 'counting\(k=3\)' takes no parameters; expected counting"):
        resolve("counting(k=3)", NATIVE)


@pytest.mark.parametrize("asked", [3, None, ["avg"]])
def test_what_is_no_name(asked):
    with pytest.raises(InputError, match=r"a metric is requested as .*; expected a name such as 'pass@3'"):
        resolve(asked, NATIVE)


def test_a_built_in_metric_wins_over_a_plugin_of_its_name():
    METRICS.add("pass@5", Counting)
    assert resolve("pass@5", NATIVE).metric.name == "pass@{k}"


def test_a_star_is_every_column_of_numbers():
    lines = [{"task": "a", "reward": 1, "f1": 0.5, "words": "x"}, {"task": "b", "reward": 0, "late": 3}]
    result = calipers.score(rollouts(*lines), "max(column=*)")
    assert {name: estimate.value for name, estimate in result.groups[0].metrics.items()} == {
        "max(column=f1)": 0.5,
        "max(column=late)": 3.0,
        "max(column=reward)": 1.0,
    }
