"""The nights of a gate: what a night is tested against, and nights that cannot be tested."""

import json
import random
import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import calipers
from calipers.analyses.gate import annotated, junit_page
from calipers.analyses.gate.history import gate_with_history, new_history
from calipers.analyses.watch.sums import StepSums
from calipers.errors import InputError
from calipers.reports import terminal

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


def passes(mean, seed, tasks=TASKS):
    """A reward of 0 or 1 for each task, with the given mean."""
    draw = random.Random(seed)
    return {task: float(draw.random() < mean) for task in tasks}


def nights_of(night, means, alarm=None, start=0, **settings):
    """The gates of several nights with the given means."""
    return [night(passes(mean, start + number), alarm, **settings) for number, mean in enumerate(means)]


def test_nights_after_an_alarm_fail_until_the_drop_is_repaired(night):
    """Two of three nights of a drop that was never repaired were green."""
    gates = nights_of(night, [0.8] * 5 + [0.3] * 12 + [0.8] * 6)
    states = [gate.checks[0].alarm.state for gate in gates]
    first = states.index("open")
    closed = states.index("closed")
    assert 5 <= first <= 8
    assert 17 <= closed <= 20
    assert states == ["quiet"] * first + ["open"] * (closed - first) + ["closed"] + ["quiet"] * (22 - closed)
    assert [gate.exit_code for gate in gates] == [int(state == "open") for state in states]
    alarm = gates[closed].checks[0].alarm
    assert (alarm.raised, alarm.closed, alarm.at) == (first + 1, closed + 1, closed + 1)
    assert alarm.recovery_evidence >= 20
    assert gates[closed].sentence.startswith(f"Closed on night {closed + 1}: above 0.")


def test_the_alarm_of_a_night_has_every_number(night):
    gates = nights_of(night, [0.8] * 5 + [0.3] * 6)
    alarm = gates[-1].to_dict()["checks"][0]["alarm"]
    keys = "state since raised evidence needed reference now close_at recovery_evidence closed"
    assert set(keys.split()) <= set(alarm)
    assert alarm["evidence"] >= alarm["needed"] == pytest.approx(80)  # that which raised it
    mean = np.mean([gate.checks[0].value for gate in gates[alarm["since"] - 1 : alarm["raised"]]])
    assert alarm["close_at"] == pytest.approx(alarm["reference"] - (alarm["reference"] - mean) / 4)
    assert alarm["now"] == pytest.approx(gates[-1].checks[0].value)
    assert alarm["closed"] is None
    again = calipers.analyses.gate.Gate.from_json(gates[-1].to_json())
    assert again.to_json() == gates[-1].to_json()


def test_a_quiet_night_is_no_passed_test(night):
    (gate,) = nights_of(night, [0.8])
    page = terminal.render(gate.page())
    assert "PASS" not in page
    assert "No alarm (night 1; evidence 1 of 80)." in page
    assert "no drop" not in gate.to_json()


def test_an_open_alarm_in_every_shape(night):
    gates = nights_of(night, [0.8] * 5 + [0.3] * 4)
    sentence = gates[-1].sentence
    assert sentence.startswith("Failed: open since night ")
    assert sentence in " ".join(terminal.render(gates[-1].page()).split())
    (failure,) = ElementTree.fromstring(junit_page(gates[-1])).iter("failure")
    assert sentence in failure.get("message")
    (annotation,) = annotated(gates[-1])
    assert sentence in annotation
    (remark,) = gates[-1].to_dict()["checks"][0]["remarks"]
    assert (remark["code"], remark["severity"], remark["text"]) == ("alarm_open_low", "warning", f"{sentence}.")


def test_a_rise_stays_open_until_it_is_over(night):
    gates = nights_of(night, [0.2] * 5 + [0.7] * 6 + [0.2] * 5, "rise(reward) > 0")
    states = [gate.checks[0].alarm.state for gate in gates]
    assert states[:5] == ["quiet"] * 5
    assert states[10] == "open"
    assert "closed" in states[11:]
    alarm = gates[10].checks[0].alarm
    assert alarm.reference < alarm.close_at < alarm.now
    assert ": below 0." in gates[states.index("closed")].sentence


def test_an_accepted_night_is_the_new_reference(night):
    gates = nights_of(night, [0.8] * 5 + [0.3] * 4)
    raised = gates[-1].checks[0].alarm.raised
    gate = night(passes(0.3, 100), accept=raised)
    assert (gate.exit_code, gate.checks[0].alarm.state) == (0, "quiet")
    assert gate.checks[0].alarm.reference < 0.3
    assert gate.notes == [f"night {raised} and the nights after it are the new reference"]
    later = nights_of(night, [0.3] * 3, start=200, accept=raised)  # a command that stays as it was
    assert [gate.exit_code for gate in later] == [0, 0, 0]
    assert not later[0].notes
    assert 1 in [gate.exit_code for gate in nights_of(night, [0.02] * 5, start=300)]


def test_tonight_may_be_accepted_before_it_is_tested(night):
    nights_of(night, [0.8] * 5 + [0.3] * 4)
    gate = night(passes(0.3, 100), accept=10)
    assert gate.exit_code == 0
    assert gate.checks[0].remark == "It is the baseline of the next ones."
    assert [gate.exit_code for gate in nights_of(night, [0.3] * 3, start=200)] == [0, 0, 0]


def test_the_same_rollouts_pass_once_their_night_is_accepted(night):
    nights_of(night, [0.8] * 5 + [0.3] * 4)
    assert night(passes(0.3, 8)).exit_code == 1  # night 9 again
    gate = night(passes(0.3, 8), accept=9)
    assert (gate.exit_code, gate.sentence) == (0, "Accepted: night 9 is the new reference")


@pytest.mark.parametrize(
    ("accept", "message"),
    [
        (99, "--accept: night 99 is not in the history; expected a night from 1 to 10"),
        (11, "--accept: night 11 is not in the history; expected a night from 1 to 10"),
        (2, "--accept: night 2 is before the change that raised the alarm; expected night [6-9] or a later one"),
    ],
)
def test_a_night_that_cannot_be_accepted_changes_nothing(night, tmp_path, accept, message):
    nights_of(night, [0.8] * 5 + [0.3] * 4)
    before = (tmp_path / "nights.json").read_bytes()
    with pytest.raises(InputError, match=message):
        night(passes(0.3, 100), accept=accept)
    assert (tmp_path / "nights.json").read_bytes() == before


def test_a_night_is_accepted_without_a_new_one(night, tmp_path):
    nights_of(night, [0.8] * 5 + [0.3] * 4)
    settings = {"alarm": None, "false_alarms": None, "online": None}
    gate = gate_with_history(None, str(tmp_path / "nights.json"), accept=9, **settings)
    assert (gate.exit_code, gate.checks[0].alarm.state) == (0, "accepted")
    with pytest.raises(InputError, match="RESULT is missing"):
        gate_with_history(None, str(tmp_path / "nights.json"), **settings)
    with pytest.raises(InputError, match="night 3 is not in the history; expected a night of the history"):
        gate_with_history(None, str(tmp_path / "none.json"), accept=3, **settings)


@pytest.mark.parametrize("rule", ["lord++", "e-lond"])
def test_an_alarm_of_a_test_of_each_night_stays_open_too(night, rule):
    gates = nights_of(night, [0.8] * 4 + [0.1] * 4 + [0.8] * 6, online=rule)
    states = [gate.checks[0].alarm.state for gate in gates]
    first = states.index("open")
    assert first in (4, 5)
    assert states[first:8] == ["open"] * (8 - first)
    assert "closed" in states[8:]
    assert states[-1] == "quiet"
    assert (
        gates[first].checks[0].remark.startswith(f"Raised on night {first + 1}, which is lower than the baseline: p ")
    )
    accepted = nights_of(night, [0.1] * 6, start=50)[-1]
    assert accepted.exit_code == 1
    assert night(passes(0.1, 55), accept=len(gates) + 6).exit_code == 0
    assert [gate.exit_code for gate in nights_of(night, [0.1] * 2, start=80)] == [0, 0]


def test_a_night_that_cannot_be_tested_does_not_end_an_alarm(night):
    nights_of(night, [0.8] * 5 + [0.3] * 4)
    gate = night(passes(0.9, 1, [f"u{n}" for n in range(40)]))
    assert gate.exit_code == 1
    assert "other tasks than before" in gate.checks[0].why
    assert "There is no value to show recovery by" in gate.sentence


def test_a_night_without_any_value_has_no_answer(night):
    nights_of(night, [0.8])
    gate = night({**dict.fromkeys(TASKS), "t0": None})
    assert gate.exit_code == 3


OLDER = Path(__file__).parent / "history_of_older_version.json"
OLD_TASKS = [f"t{n}" for n in range(30)]


@pytest.fixture
def older(tmp_path):
    """The history of an older version: seven nights, of which the sixth raised an alarm and the seventh was green."""
    shutil.copy(OLDER, tmp_path / "nights.json")
    return tmp_path


def test_the_last_alarm_of_an_older_file_is_open(older, night):
    gate = night(passes(0.15, 1, OLD_TASKS))
    alarm = gate.checks[0].alarm
    assert (gate.exit_code, alarm.state, alarm.raised, alarm.since, alarm.at) == (1, "open", 6, 5, 8)
    assert alarm.evidence == pytest.approx(774.1056729651789)
    mean = (0.16666666666666666 + 0.2) / 2  # of the nights from the change to the alarm
    assert alarm.close_at == pytest.approx(alarm.reference - (alarm.reference - mean) / 4)
    recovered = nights_of(night, [0.75] * 4, start=20, online=None)
    # other tasks would be no answer: these are 40 tasks, of which the history knows 30
    assert recovered[-1].exit_code == 0


def test_an_alarm_of_an_older_file_can_be_accepted(older, night):
    gate = night(passes(0.15, 1, OLD_TASKS), accept=6)
    assert gate.exit_code == 0
    assert [each.exit_code for each in (night(passes(0.15, seed, OLD_TASKS)) for seed in (2, 3, 4))] == [0, 0, 0]


def random_history(seed, drop):
    """The states of a history of 40 nights, whose chances fall by ``drop`` in night 8."""
    rng = np.random.default_rng([29, seed])
    chances = rng.beta(0.8, 0.8, 100)
    history = new_history(None, None, None)
    tasks = np.arange(100, dtype=np.uint64)
    states = []
    for number in range(40):
        low = np.clip(chances - drop, 0, 1) if number >= 7 else chances
        found = rng.binomial(4, low).astype(float)
        four = np.full(100, 4.0)
        rewards = {"reward": np.stack([four, found, found, found])}
        night = history.take(StepSums(1, "", None, None, str(number), "reward", tasks, four, rewards))
        states.append(night.alarm.state)
    return states


def test_no_night_is_green_while_a_drop_stays():
    for seed in range(10):
        states = random_history(seed, 0.2)
        first = states.index("open")
        assert 7 <= first <= 12
        assert states[first:] == ["open"] * (40 - first)


def test_a_night_that_lost_many_rollouts_is_warned_about(night):
    nights_of(night, [0.8] * 3)
    lost = {task: None if number < 10 else 1.0 for number, task in enumerate(TASKS)}
    (note,) = night(lost).notes
    assert note.endswith(
        "warning: 25\N{NO-BREAK SPACE}% of the rollouts of this night are missing; without its failures a night "
        "looks better than it was"
    )
    assert night({**passes(0.8, 77), "t0": None}).notes == []


def test_a_night_that_tries_again_until_it_passes_is_no_recovery(night, tmp_path):
    """With all samples, a night with three tries of each failed task looked as good as before the drop."""
    rng = np.random.default_rng(61)
    nights_of(night, [0.8] * 5 + [0.3] * 3)
    states = []
    for number in range(4):
        rows = []
        for task in TASKS:
            for sample in range(6):
                reward = float(rng.random() < 0.3)
                rows.append(json.dumps({"task": task, "sample": sample, "reward": reward}))
                if reward:
                    break
        path = tmp_path / f"tries-{number}.jsonl"
        path.write_text("\n".join(rows) + "\n")
        history = str(tmp_path / "nights.json")
        gate = gate_with_history(str(path), history, alarm=None, false_alarms=None, online=None)
        states.append(gate.checks[0].alarm.state)
        assert gate.checks[0].value < 0.55
        assert any("stops at its first pass" in note for note in gate.notes) == (number == 0)
    assert states == ["open"] * 4


def test_the_same_rollouts_of_an_earlier_night_do_not_hide_an_open_alarm(night):
    nights_of(night, [0.8] * 5 + [0.3] * 4)
    again = night(passes(0.8, 1))
    assert again.exit_code == 0  # the answer of night 2
    assert "are night 2 of the history already; nothing was added, and the alarm of night" in again.notes[0]
