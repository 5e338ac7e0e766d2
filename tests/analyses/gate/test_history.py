"""The nights of a gate: what a night is tested against, and nights that cannot be tested."""

import json

import pytest

from calipers.analyses.gate.history import gate_with_history
from calipers.errors import InputError

TASKS = [f"t{n}" for n in range(40)]


@pytest.fixture
def night(tmp_path):
    """A function that checks a night's rewards by task, and returns the gate; one history for all nights."""
    count = iter(range(100))

    def check(rewards, alarm=None, online=None, **settings):
        path = tmp_path / f"night-{next(count)}.jsonl"
        path.write_text(
            "".join(json.dumps({"task": task, "reward": reward}) + "\n" for task, reward in rewards.items())
        )
        history = str(tmp_path / "nights.json")
        return gate_with_history(str(path), history, alarm=alarm, false_alarms=None, online=online, **settings)

    return check


def rewards(mean, tasks=TASKS):
    """A reward for each task with about the given mean, and a spread of one."""
    return {task: mean + number % 2 - 0.5 for number, task in enumerate(tasks)}


def test_a_rise_is_said_to_be_one(night):
    for share in (0.1, 0.9, 0.95):
        gate = night({task: float(n < 40 * share) for n, task in enumerate(TASKS)}, alarm="rise(reward) > 0.02")
    assert gate.word == "failed"
    assert "; higher since night " in gate.checks[0].remark
    assert gate.sentence.startswith("Failed: open since night ")


@pytest.mark.parametrize("rule", ["lord++", "e-lond"])
def test_a_drop_of_rewards_outside_0_to_1_is_found(night, rule):
    words = [night(rewards(mean), "drop(reward) > 1.5", rule).word for mean in (9.5, 9.0, 1.5)]
    assert words == ["passed", "passed", "failed"]


def test_the_range_of_the_rewards_belongs_to_the_history(night):
    found = [night(rewards(mean), "drop(reward) > 1.5", range=(0.0, 12.0)).word for mean in (9.5, 9.4, 1.5, 1.0)]
    assert found == ["passed", "passed", "passed", "failed"]
    with pytest.raises(InputError, match=r"was begun with --range 0,12; expected the same, or another file"):
        night(rewards(2.5), "drop(reward) > 1.5", range=(0.0, 10.0))


def test_a_reward_outside_the_range_is_an_error(night):
    night(rewards(9.5), "drop(reward) > 1.5", range=(0.0, 12.0))
    with pytest.raises(InputError, match=r"night-1\.jsonl: task '.*' sample 0: reward is 1[23]; expected 0 to 12"):
        night(rewards(12.5))


def test_the_usual_range_is_that_of_a_history_without_one(night):
    """It was refused: the history was begun with --range 0,1; expected the same."""
    night(dict.fromkeys(TASKS, 0.5))
    assert night(dict.fromkeys(TASKS, 0.6), range=(0.0, 1.0)).word == "passed"


def test_a_drop_larger_than_the_range_of_the_first_night_needs_the_range(night):
    """The first night's range, 9 to 10, took its place: a drop to 1 counted as one to 9, and every night passed."""
    night(rewards(9.5), "drop(reward) > 1.5")
    gate = night(rewards(1.5), "drop(reward) > 1.5")
    assert gate.exit_code == 3
    assert "does not vary by more than 1.5 in the base steps; give its range: --range" in gate.checks[0].why


@pytest.mark.parametrize("rule", [None, "lord++", "e-lond"])
def test_a_night_of_other_tasks_has_no_answer(night, rule):
    night(rewards(0.5), online=rule)
    night({**rewards(0.5), "t0": 1.0}, online=rule)
    others = rewards(0.5, [f"u{n}" for n in range(40)])
    gate = night(others, online=rule)
    assert (gate.word, gate.exit_code) == ("undefined", 3)
    assert "compared once" in gate.checks[0].remark
    again = night(others, online=rule)  # the same rollouts are the same night of the history
    assert again.checks[0].why == gate.checks[0].why
    assert "compared 2 times" in night({**rewards(0.5), "t2": 1.0}, online=rule).checks[0].remark


def test_the_alarm_of_a_night_is_not_raised_again_by_a_night_that_cannot_be_tested(night):
    words = [night(rewards(mean), online="lord++").word for mean in (0.5, -0.5)]
    one_task = night({"t0": 0.0, "u1": 1.0}, online="lord++")
    assert [*words, one_task.word] == ["passed", "failed", "failed"]  # as the alarm is open
    assert [one_task.checks[0].alarm.raised, one_task.checks[0].alarm.at] == [2, 3]
