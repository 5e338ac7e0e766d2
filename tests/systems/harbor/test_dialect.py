"""Harbor's own numbers of a scoring, from its jobs and by the same rules from other rollouts."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from cli.running import lines
from harbor_jobs import job
from hypothesis import given, settings
from hypothesis import strategies as st

import calipers
from calipers.errors import InputError, UnknownName
from calipers.systems.harbor.job_result import document, read_job, render

SMALL = Path(__file__).parents[2] / "golden" / "harbor" / "job_small"
PASS, FAIL = {"rewards": {"reward": 1.0}}, {"rewards": {"reward": 0.0}}


def block(path, *metrics, **more):
    """The block ``harbor`` of a result with one eval."""
    result = calipers.score(path, list(metrics) or None, dialect="harbor", **more)
    return json.loads(result.to_json())["groups"][0]["harbor"]


def counted(one):
    """An eval of Harbor's file with the number of trials instead of their names."""
    return {
        **one,
        "reward_stats": {
            name: {value: len(names) for value, names in values.items() if names}
            for name, values in one["reward_stats"].items()
        },
        "exception_stats": {kind: len(names) for kind, names in one["exception_stats"].items() if names},
    }


def test_a_job_s_own_numbers():
    stored = json.loads((SMALL / "result.json").read_text())["stats"]["evals"]["terminus-2__coder-1__arith-mini"]
    found = block(SMALL)
    assert found == {"eval": "terminus-2__coder-1__arith-mini", **counted(stored)}


def test_the_estimate_is_the_same_number_with_an_interval():
    result = calipers.score(SMALL, dialect="harbor")
    assert result["mean"].value == pytest.approx(0.4444444444444444, rel=1e-12)
    assert result["mean"].interval is not None
    assert result.missing == "zero"
    assert result.groups[0].ledger.gaps == 1  # counted as 0, and still told


TRIAL = st.fixed_dictionaries(
    {"task": st.sampled_from(["t1", "t2"])},
    optional={
        "rewards": st.one_of(
            st.none(),
            st.dictionaries(
                st.sampled_from(["reward", "b"]), st.sampled_from([0, 0.0, 1, 1.0, 0.5, -1, True]), max_size=2
            ),
        ),
        "exception_type": st.sampled_from(["AgentTimeoutError", "RuntimeError", "CancelledError"]),
        "source": st.sampled_from(["d1", "d2"]),
        "running": st.just(True),
    },
)


@settings(max_examples=60, deadline=None)
@given(trials=st.lists(TRIAL, min_size=1, max_size=9))
def test_any_job_gives_the_numbers_of_harbor_s_file(tmp_path_factory, trials):
    """For any trials, scoring a job gives the same numbers for every eval as its result.json."""
    folder = tmp_path_factory.mktemp("jobs")
    path = str(folder / job(folder / "job", *trials))
    evals = document(read_job(path))["stats"]["evals"]
    result = calipers.score(path, dialect="harbor")
    found = {group.own["harbor"]["eval"]: dict(group.own["harbor"]) for group in result.groups if group.ledger.planned}
    assert {key: one.pop("eval") for key, one in found.items()} == {key: key for key in evals}
    for key, one in evals.items():
        expected = counted(one)
        assert found[key].pop("metrics") == [pytest.approx(metric, rel=1e-12) for metric in expected.pop("metrics")]
        assert found[key].pop("pass_at_k") == pytest.approx(expected.pop("pass_at_k"), rel=1e-12)
        assert found[key] == expected


def test_values_of_rewards_are_written_as_the_files_write_them(tmp_path):
    """A value is 1 or 1.0, 0 or 0.0, as in the trial that started first, like Harbor's key for the same job."""
    given = [1, 1.0, 0.0, 0, True, 2**60 + 2]
    trials = [
        {"rewards": {"reward": value}, "started_at": f"2026-01-01T00:00:{n:02}Z"} for n, value in enumerate(given)
    ]
    path = tmp_path / job(tmp_path / "job", *trials)
    assert block(path)["reward_stats"] == {"reward": {"1": 3, "0.0": 2, str(2**60 + 2): 1}}
    later = tmp_path / job(tmp_path / "later", {**trials[0], "started_at": "2026-01-01T00:09:00Z"}, *trials[1:])
    assert block(later)["reward_stats"] == {"reward": {"1.0": 3, "0.0": 2, str(2**60 + 2): 1}}
    shown = render(calipers.score(path, dialect="harbor"))
    assert ["1", "3"] in [line.split() for line in shown.splitlines()]


def test_trials_that_did_not_end_are_left_out_and_told_of(tmp_path):
    path = tmp_path / job(tmp_path / "job", PASS, FAIL, {"running": True}, started_at="2026-01-01T00:00:00", stats={})
    result = calipers.score(path, dialect="harbor")
    assert result["mean"].value == 0.5
    assert any("1 planned trial did not end" in note for note in result.notes)


def test_a_reward_beside_an_exception_counts(tmp_path):
    """In the native dialect it does not, because Harbor itself calls such a reward invalid."""
    crashed = {**PASS, "exception_type": "EnvironmentStartTimeoutError"}
    path = tmp_path / job(tmp_path / "job", crashed, FAIL)
    assert calipers.score(path, dialect="harbor")["mean"].value == 0.5
    assert calipers.score(path)["mean_reward"].value == 0.0


def test_verification_that_was_switched_off_is_a_mean_of_zero(tmp_path):
    found = block(tmp_path / job(tmp_path / "job", {}, {}))
    assert (found["metrics"], found["n_trials"], found["n_errors"]) == ([{"mean": 0.0}], 0, 0)


def test_an_empty_map_counts_as_a_trial_and_takes_pass_at_k(tmp_path):
    found = block(tmp_path / job(tmp_path / "job", PASS, {"rewards": {}}))
    assert (found["n_trials"], found["pass_at_k"], found["metrics"]) == (2, {}, [{"mean": 0.5}])


def test_exceptions_of_steps_are_not_seen(tmp_path):
    hidden = {**PASS, "steps": [{**PASS, "exception_type": "AgentTimeoutError"}]}
    found = block(tmp_path / job(tmp_path / "job", hidden))
    assert (found["n_errors"], found["exception_stats"]) == (0, {})


def test_the_metrics_that_the_job_asks_for(tmp_path):
    path = tmp_path / job(tmp_path / "job", PASS, FAIL, {}, config={"metrics": [{"type": "max"}, {"type": "sum"}]})
    assert block(path)["metrics"] == [{"max": 1}, {"sum": 1}]
    assert block(path, "min")["metrics"] == [{"min": 0}]  # what the user asks for wins
    assert list(calipers.score(path, dialect="harbor").groups[0].metrics) == ["max", "sum"]


def test_every_reward_is_reported_also_beside_one_called_reward(tmp_path):
    path = tmp_path / job(tmp_path / "job", {"rewards": {"reward": 1, "style": 0.5}}, {"rewards": {"style": 1}})
    result = calipers.score(path, dialect="harbor")
    assert block(path)["metrics"] == [{"reward": 0.5, "style": 0.75}]
    assert {name: one.value for name, one in result.groups[0].metrics.items()} == {
        "mean(reward=reward)": 0.5,
        "mean(reward=style)": 0.75,
    }


def test_rollouts_of_our_own_by_the_same_rule(tmp_path):
    rows = [
        {"task": "a", "sample": 0, "reward": 1, "agent": "x", "model": "m", "dataset": "d"},
        {"task": "a", "sample": 1, "outcome": "client_failed", "agent": "x", "model": "m", "dataset": "d"},
        {"task": "a", "sample": 2, "outcome": "not_run", "agent": "x", "model": "m", "dataset": "d"},  # it did not end
    ]
    assert block(tmp_path / lines(tmp_path, *rows)) == {
        "eval": "x__m__d",
        "n_trials": 1,
        "n_errors": 1,
        "metrics": [{"mean": 0.5}],
        "pass_at_k": {"2": 1.0},
        "reward_stats": {"reward": {"1.0": 1}},
        "exception_stats": {"client_failed": 1},
    }


ROW = st.fixed_dictionaries(
    {"task": st.sampled_from("ab")},
    optional={
        "reward": st.sampled_from([0, 1, 0.1, 0.7]),
        "rewards": st.dictionaries(st.sampled_from(["acc", "style"]), st.floats(-1, 1)),
        "outcome": st.sampled_from(["client_failed", "timed_out", "not_run", "missing"]),
        "model": st.sampled_from(["m1", "m2"]),
    },
)


@settings(max_examples=30, deadline=None)
@given(rows=st.lists(ROW, min_size=1, max_size=12), order=st.randoms())
def test_the_order_of_rollouts_says_nothing(tmp_path_factory, rows, order):
    folder = tmp_path_factory.mktemp("rows")
    numbered = [{**row, "sample": number} for number, row in enumerate(rows)]
    one = calipers.score(folder / lines(folder, *numbered, name="one.jsonl"), dialect="harbor")
    shuffled = order.sample(numbered, len(numbered))
    other = calipers.score(folder / lines(folder, *shuffled, name="other.jsonl"), dialect="harbor")
    assert one.digest == other.digest
    assert [group.own for group in one.groups] == [group.own for group in other.groups]


def test_a_job_of_which_nothing_ended(tmp_path):
    found = block(tmp_path / job(tmp_path / "job", {"running": True}, {"running": True}))
    assert (found["n_trials"], found["metrics"], found["pass_at_k"]) == (0, [], {})


def test_rewards_in_lists():
    found = block([[1, 0], [0, 0]])
    assert (found["eval"], found["metrics"], found["pass_at_k"]) == ("adhoc", [{"mean": 0.25}], {"2": 0.5})


def test_what_strict_json_cannot_hold_is_null():
    assert block([[math.nan, 1]])["metrics"] == [{"mean": None}]


def test_gaps_can_be_left_out_as_elsewhere():
    assert calipers.score(SMALL, dialect="harbor", missing="gap")["mean"].value == pytest.approx(8 / 17)


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("maen", "no harbor metric named 'maen'; did you mean 'mean'"),
        ("pass_rate", "it is a native name: use --dialect native"),
        ("pass@{k}", "give it a number"),
    ],
)
def test_names_that_harbor_does_not_have(metric, said):
    with pytest.raises(UnknownName, match=said):
        calipers.score(SMALL, metric, dialect="harbor")


def test_any_k_can_be_asked_for():
    assert calipers.score(SMALL, "pass@3", dialect="harbor")["pass@3"].value == pytest.approx(5 / 6)
    with pytest.raises(InputError):
        calipers.score(SMALL, "pass@0", dialect="harbor")
