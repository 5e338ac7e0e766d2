import warnings

import pytest

import calipers
from calipers.compat import skip_unknown_metrics
from calipers.errors import UnknownName
from calipers.systems.evsys.lent import register_metric


@pytest.fixture
def skipping():
    skip_unknown_metrics()
    yield
    skip_unknown_metrics(False)


def evsys(source, metrics=None, **settings):
    return calipers.score(source, metrics, dialect="evsys", **settings)


class Picky:
    """Fails on what it does not like: a task without a pass."""

    def compute(self, task_rewards):
        return min(1 / max(rewards) for rewards in task_rewards)


def test_an_unknown_metric_is_left_out_with_one_warning(skipping):
    said = "metric 'pass@5' is skipped: no evsys metric named 'pass@5'"
    with pytest.warns(UserWarning, match=said) as caught:
        result = evsys([[1], [0]], ["pass@5", "avg"])
    assert len(caught) == 1
    assert {name: found.value for name, found in result.groups[0].metrics.items()} == {"avg": 0.5}
    assert result.groups[0].ledger.tasks == 2


def test_without_it_an_unknown_metric_is_an_error_before_anything_is_read():
    with pytest.raises(
        UnknownName, match=r"no evsys metric named 'pass@5'; it is a native name: did you mean 'pass@3'"
    ):
        calipers.score("no_such_file.jsonl", ["pass@5", "avg"], dialect="evsys")


@pytest.mark.parametrize("broken", ["picky", "unmade", "uncomputed", "avg(threshold=2)"])
def test_a_metric_that_fails_is_left_out(skipping, broken):
    register_metric("picky")(Picky)
    register_metric("unmade")(type("Unmade", (), {"__init__": lambda self, needed: None}))
    register_metric("uncomputed")(type("Uncomputed", (), {}))
    with pytest.warns(UserWarning, match="is skipped: ") as caught:
        result = evsys([[1], [0]], [broken, "avg"])
    assert len(caught) == 1
    assert list(result.groups[0].metrics) == ["avg"]


def test_nothing_may_be_left(skipping):
    with pytest.warns(UserWarning, match="is skipped: "):
        result = evsys([[1], [0]], "pass@5")
    assert (result.groups[0].metrics, result.groups[0].ledger.tasks) == ({}, 2)


@pytest.mark.parametrize(
    ("asked", "names"), [([], ["mean_reward", "pass_rate"]), (None, ["mean_reward", "pass_rate"]), ("avg", ["avg"])]
)
def test_all_else_is_as_ever(asked, names):
    strict = evsys([[1], [0]], asked, seed=3)
    skip_unknown_metrics()
    lenient = evsys([[1], [0]], asked, seed=3)
    skip_unknown_metrics(False)
    assert list(lenient.groups[0].metrics) == names
    assert lenient.digest == strict.digest


def test_what_is_wrong_elsewhere_is_still_an_error(skipping):
    with warnings.catch_warnings(), pytest.raises(UnknownName, match="no reward named 'nope'"):
        evsys([[1], [0]], "avg", reward="nope")
