import pytest
from making import rollouts

import calipers
from calipers.errors import InputError
from calipers.metrics import MetricSpec

TABLE = rollouts(*({"task": "a", "sample": s, "reward": s / 4} for s in range(4)))


@pytest.mark.parametrize(
    ("asked", "name", "params"),
    [
        ("mean_reward", "mean_reward", {}),
        ("pass@3", "pass@3", {}),
        ("pass^3 ( threshold = 0.5 )", "pass^3", {"threshold": 0.5}),
        ("percentile(column=latency_s, q=95)", "percentile", {"column": "latency_s", "q": 95.0}),
        ("mean(column=a.b c)", "mean", {"column": "a.b c"}),
        ({"metric": "pass@3", "threshold": 0.5}, "pass@3", {"threshold": 0.5}),
    ],
)
def test_a_metric_is_read_from_its_string_or_mapping(asked, name, params):
    request = MetricSpec.of(asked)
    assert (request.name, dict(request.params)) == (name, params)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("pas@3", "no metric named 'pas@3'; did you mean 'pass@{k}'"),
        ("pass@0", "metric 'pass@0': k is 0; expected a positive integer"),
        ("pass@-1", "no metric named 'pass@-1'; did you mean 'pass@{k}'"),
        ("pass@{k}", "no metric named 'pass@{k}'"),  # a family, not a name
        ("pass@3(treshold=1)", "no parameter of pass@3 named 'treshold'; did you mean 'threshold'?"),
        ("pass@3(threshold=high)", "threshold is 'high'; expected a number"),
        ("pass@3(threshold=nan)", "expected a number"),
        ("pass@3(threshold=1, threshold=2)", "threshold is given twice"),
        ("pass@3(k=2)", "no parameter of pass@3 named 'k'"),
        ("pass@3(", "cannot be read"),
        ("mean(column=a) (b)", "cannot be read"),
        ("mean(column=a(b)", "cannot be read"),
        ("percentile(column=f1)", "needs q; expected percentile(column=..., q=...)"),
        ("", "cannot be read"),
        ("mean(column)", "expected key=value"),
        ("mean", "needs column"),
        ("percentile(column=reward, q=101)", "expected 0 to 100"),
        ({"threshold": 1}, "a metric has no name"),
    ],
)
def test_a_metric_that_cannot_be_meant_is_refused(asked, message):
    with pytest.raises(InputError) as caught:
        calipers.score(TABLE, [asked])
    assert message in str(caught.value)


def test_the_result_is_keyed_by_the_string_as_asked():
    result = calipers.score(TABLE, ["pass@2(threshold=0.5)", {"metric": "pass@2", "threshold": 0.75}])
    assert list(result.groups[0].metrics) == ["pass@2(threshold=0.5)", "pass@2(threshold=0.75)"]
    assert result["pass@2(threshold=0.5)"].value == pytest.approx(5 / 6)


@pytest.mark.parametrize("k", [1, 4, 5, 10**6])
def test_k_is_any_positive_integer(k):
    found = calipers.score(TABLE, f"pass@{k}(threshold=0.75)")[f"pass@{k}(threshold=0.75)"]
    assert found.value == (None if k > 4 else pytest.approx(k / 4))
    assert found.undefined_tasks == (k > 4)


@pytest.mark.parametrize(
    "asked", ["percentile(column=reward, q=0)", "percentile(column=reward, q=100)", "gpass@2(tau=1)"]
)
def test_the_ends_of_a_parameters_range_belong_to_it(asked):
    assert calipers.score(TABLE, asked)[asked].value is not None


def test_a_mapping_without_parameters_is_its_name_and_a_column_may_be_a_number():
    table = rollouts({"task": "a", "reward": 1, "7": 0.5}, {"task": "b", "reward": 0, "7": 1})
    result = calipers.score(table, [{"metric": "mean_reward"}, "mean(column=7)"])
    assert (result["mean_reward"].value, result["mean(column=7)"].value) == (0.5, 0.75)


def test_a_column_may_be_called_as_spreadsheets_call_them():
    table = rollouts({"task": "a", "reward": 1, "Score (0-1)": 0.5}, {"task": "b", "reward": 1, "Score (0-1)": 1})
    asked = ["mean(column=Score (0-1))", "percentile(column=Score (0-1), q=0)"]
    result = calipers.score(table, asked)
    assert [result[name].value for name in asked] == [0.75, 0.5]


@pytest.mark.parametrize("name", ["007", "12345678", "1.50", "1e3", "0.1234567", "inf", "-0"])
def test_a_column_keeps_its_name_however_much_it_looks_like_a_number(name):
    table = rollouts({"task": "a", "reward": 1, name: 0.5})
    assert calipers.score(table, f"mean(column={name})")[f"mean(column={name})"].value == 0.5


def test_nor_does_a_mapping_round_it():
    table = rollouts({"task": "a", "reward": 1, "12345678": 0.5})
    assert calipers.score(table, [{"metric": "mean", "column": 12345678}]).groups[0].metrics.keys() == {
        "mean(column=12345678)"
    }


@pytest.mark.parametrize("written", ["0.5", "0.50", "5e-1", ".5"])
def test_a_number_may_be_written_in_any_way(written):
    asked = f"pass@2(threshold={written})"
    found = calipers.score(TABLE, asked)[asked]
    assert found.value == pytest.approx(5 / 6)
    assert "|threshold:0.5|" in found.signature


def test_a_column_has_no_reward_key():
    with pytest.raises(InputError, match="no parameter of mean named 'reward'"):
        calipers.score(TABLE, "mean(column=reward, reward=x)")
