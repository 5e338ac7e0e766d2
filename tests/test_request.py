import numpy as np
import pytest
from making import rollouts

import calipers
from calipers.errors import InputError, PluginError
from calipers.metrics import Metric, Opaque, mean
from calipers.names import METRICS
from calipers.request import NATIVE, as_metric, resolve
from calipers.rollouts.column import Column
from calipers.stats.intervals import ONE_SIDED


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
        (
            object(),
            "metric 'x' is <object object at .*>; expected a calipers.Metric, a function of rewards, or a class",
        ),
        (
            type("Empty", (), {}),
            "metric 'x' is <class .*>; expected a calipers.Metric, a function of rewards, or a class",
        ),
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


def worst(rewards):
    return min(min(task) for task in rewards)


class Best:
    def compute(self, rewards):
        return max(max(task) for task in rewards if task)


def test_metrics_are_taken_as_objects():
    unit = METRICS.load("mean_reward")
    own = calipers.Metric("mine", reduce=unit.reduce, aggregate=unit.aggregate)
    result = calipers.score([[1, 0], [1, 1], [0.5]] * 2, metrics=["pass@1", worst, Best, own])
    values = {name: estimate.value for name, estimate in result.groups[0].metrics.items()}
    assert values == {"pass@1": 0.5, "worst": 0.0, "Best": 1.0, "mine": pytest.approx(2 / 3)}
    assert result["worst"].why == ONE_SIDED
    assert result["mine"].interval == result["mine"].interval is not None
    assert calipers.score([[1, 0], [1, 1], [1, 1]] * 2, worst)["worst"].interval is None
    assert calipers.score([[1, 0], [1, 1]], Best())["Best"].value == 1.0
    assert calipers.score([[1, 0], [1, 1]], [worst, worst])["worst"].value == 0.0


def test_a_function_is_not_asked_about_tasks_without_a_reward():
    found = calipers.score([[1, 0], []], worst)["worst"]
    assert (found.value, found.tasks, found.undefined_tasks) == (0.0, 1, 1)
    nothing = calipers.score([[], []], worst)["worst"]
    assert nothing.interval is None


@pytest.mark.parametrize(
    ("metrics", "wrong"),
    [
        ([worst, lambda rewards: 1.0, lambda rewards: 2.0], "two metrics are called '<lambda>'"),
        ([5], "a metric is requested as 5; expected a name such as 'pass@3', a calipers.Metric, a function"),
        ([object()], "a metric is requested as <object"),
    ],
)
def test_objects_that_are_no_metrics(metrics, wrong):
    with pytest.raises(InputError) as error:
        calipers.score([[1, 0], [1]], metrics)
    assert str(error.value).startswith(wrong)


def test_what_a_function_raises_or_returns_is_its_own_fault():
    with pytest.raises(PluginError, match="metric 'breaks' failed: ZeroDivisionError"):
        calipers.score([[1], [0]], breaks)
    with pytest.raises(PluginError, match="metric 'waits' is async"):
        calipers.score([[1], [0]], waits)


def breaks(rewards):
    return 1 / 0


async def waits(rewards):
    return 1.0


def test_a_metric_of_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my own.py").write_text("def worst(rewards):\n    return min(map(min, rewards))\nx = 1\n")
    result = calipers.score([[1, 0], [1, 1]], ["my own.py:worst"])
    assert result["my own.py:worst"].value == 0.0
    with pytest.raises(PluginError, match=r"metric 'my own\.py:x' is 1; expected a calipers\.Metric"):
        calipers.score([[1, 0], [1, 1]], "my own.py:x")
    with pytest.raises(InputError, match="no metric named"):
        resolve("my own.py:worst", NATIVE, trusted=False)  # a name that was read somewhere runs nothing


def test_a_file_that_fails_says_its_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.py").write_text("\n1 / 0\n")
    with pytest.raises(PluginError, match=r"^my\.py:2: ZeroDivisionError: division by zero$"):
        calipers.score([[1, 0], [1, 1]], "my.py:worst")
    (tmp_path / "my.py").write_text("def\n")
    with pytest.raises(InputError, match=r"^my\.py:1: it is not valid Python"):
        calipers.score([[1, 0], [1, 1]], "my.py:worst")


def test_a_decorator_gives_a_metric_a_name():
    calipers.metric(worst)
    calipers.metric("lowest")(worst)
    result = calipers.score([[1, 0], [1, 1]], ["worst", "lowest"])
    assert (result["worst"].value, result["lowest"].value) == (0.0, 0.0)
    with pytest.raises(InputError, match="metric 'mean_reward' is built in"):
        calipers.metric("mean_reward")(worst)


def test_a_function_that_is_defined_again_replaces_itself():
    for value in (1.0, 2.0):

        @calipers.metric
        def constant(rewards, value=value):
            return value

        assert calipers.score([[1], [0]], "constant")["constant"].value == value
    with pytest.raises(PluginError, match="metric 'constant' is already taken"):
        calipers.metric("constant")(worst)


def per_task(rewards, by):
    return Column.of(by.sum(rewards), given=by.count(rewards.given) > 0)


@pytest.mark.parametrize(
    ("metric", "wrong"),
    [
        (
            Metric("few", lambda rewards, by: Column.of(np.zeros(1)), mean),
            "it gives 1 values; expected one for each of 2",
        ),
        (Metric("far", per_task, mean, range=(0.0, 1.0)), "its values are 1 to 2; expected its range, 0 to 1"),
    ],
    ids=["too few values", "beyond its range"],
)
@pytest.mark.parametrize("verb", ["score", "compare"])
def test_a_metric_that_breaks_its_own_definition_fails(verb, metric, wrong):
    """The first was the mean of the values that there were; the second had an interval whose ends were exchanged."""
    runs = [[[1, 1], [1, 0]], [[1, 1], [0, 1]]]
    with pytest.raises(PluginError, match=f"^metric '{metric.name}' failed: ValueError: {wrong}"):
        calipers.score(runs[0], metric) if verb == "score" else calipers.compare(*runs, metric=[metric])


def test_a_metric_reads_something():
    with pytest.raises(InputError, match="metric 'idle' reads nothing; expected 'reward', or the name of a column"):
        Metric("idle", per_task, mean, reads=())


def test_bounds_that_are_no_number_are_none():
    """The document of such a result ended with a traceback."""
    result = calipers.score([[1, None], [1, 0]], Metric("odd", per_task, lambda values: values.sum(axis=-1) * np.nan))
    assert result["odd"].bounds is None
    assert calipers.Result.from_json(result.to_json())["odd"].value is None


def test_a_metric_that_ends_the_process_fails_by_name():
    def ends(rewards):
        raise SystemExit(5)

    with pytest.raises(PluginError, match=r"^metric 'ends' failed: SystemExit: 5"):
        calipers.score([[1, 0]], ends)


def test_a_function_is_no_family(monkeypatch):
    """Every number of the family had the same value."""
    monkeypatch.setattr(METRICS, "added", {"fam@{k}": lambda rewards, k=1: k})
    with pytest.raises(PluginError, match=r"^metric 'fam@2': 'fam@\{k\}' is a function of rewards, which is not told"):
        calipers.score([[1, 0]], "fam@2")
