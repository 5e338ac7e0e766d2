"""The answer of a gate by tiers, missing rollouts and missing values."""

import json
import random

import pytest

import calipers
from calipers.analyses.gate import Check, Gate
from calipers.analyses.gate.gate import check_policy, gate
from calipers.analyses.gate.requirement import NamedResult, Policy, parse


def check(tier, word):
    return Check("x >= 1", tier, "r", None, None, None, word)


C, S, A = "critical", "supporting", "advisory"


@pytest.mark.parametrize(
    ("checks", "allowed", "word"),
    [
        ([(C, "passed")], 0, "passed"),
        ([(C, "passed"), (C, "failed")], 0, "failed"),
        ([(C, "failed")], 5, "failed"),  # of the critical ones none may fail
        ([(S, "failed")], 0, "failed"),
        ([(S, "failed"), (S, "passed")], 1, "passed"),
        ([(S, "failed"), (S, "failed")], 1, "failed"),
        ([(A, "failed"), (A, "undefined")], 0, "passed"),
        ([(C, "undefined")], 0, "undefined"),
        ([(S, "undefined")], 5, "undefined"),  # a null is no failure that might be allowed
        ([(C, "undefined"), (C, "failed")], 0, "failed"),  # the answer is no, whatever the other would be
        ([(S, "undefined"), (S, "failed")], 1, "undefined"),
    ],
)
def test_what_the_gate_says(checks, allowed, word):
    found = Gate([check(*one) for one in checks], allowed)
    assert found.word == word
    assert found.exit_code == {"passed": 0, "failed": 1, "undefined": 3}[word]
    assert any(map(found.blocks, found.checks)) == (word != "passed")


def test_the_sentence():
    found = Gate([check(C, "passed"), check(S, "failed"), check(A, "undefined")], 1)
    assert found.sentence == (
        "passed: 1 of 3 requirements met, 1 supporting requirement failed (1 allowed), "
        "1 advisory requirement has no answer"
    )


def test_tasks_that_are_left_out_may_decide_and_retries_are_said(tmp_path):
    stopped = [[0] * (n - 1) + [1] for n in (1, 1, 1, 2, 2, 3, 3)]
    path = tmp_path / "rewards.json"
    path.write_text(json.dumps([*stopped, *[[0] * 4] * 3]))
    asked = Policy([parse("pass@4 >= 0.5")], [NamedResult(str(path), str(path), None)], None)
    found = check_policy(asked, alone=True)
    assert found.word == "undefined"  # the three that never passed are all that have four samples
    assert found.checks[0].why == (
        "the number of samples follows the results, so pass@4 is not comparable; any_of_first_4 is"
    )
    assert found.notes[0].startswith("warning: 7 of 10 tasks stop at their first pass")


@pytest.mark.parametrize(
    ("requirement", "value", "ends"),
    [("pass^2 >= 0.6", 1.0, "0.5000 to 0.5000"), ("lower(pass^2) >= 0.6", 0.839, "0.3520 to 0.3520")],
)
def test_a_requirement_that_no_missing_rollout_lets_a_value_meet_says_so(tmp_path, requirement, value, ends):
    """Tasks with a failure and a missing rollout have no pass^2 yet, and it is 0 whatever that rollout was."""
    rows = [{"task": f"t{n}", "sample": sample, "reward": 1.0} for n in range(20) for sample in (0, 1)]
    rows += [{"task": f"u{n}", "sample": 0, "reward": 0.0} for n in range(20)]
    rows += [{"task": f"u{n}", "sample": 1, "outcome": "client_failed"} for n in range(20)]
    path = tmp_path / "run.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (found,) = gate(str(path), require=requirement).checks
    assert (found.word, found.value) == ("failed", pytest.approx(value, abs=1e-3))
    missing = "20 of 80 rollouts are missing, and no outcomes of theirs meet it"
    assert found.remark == f"{missing}: with them the value is {ends}"


def test_a_finished_result_and_rollouts_have_a_plain_difference():
    baseline = calipers.score([[1], [0]])
    (found,) = gate([[1], [1]], baseline=baseline, require="delta(mean_reward) >= 0.5").checks
    assert (found.word, found.value, found.interval) == ("passed", 0.5, None)
    assert found.remark == "a finished result and rollouts are not paired, so their difference has no interval"


@pytest.mark.parametrize("metric", ["mean_reward", "pass@1", "pass_rate", "lower(mean_reward)"])
def test_a_run_that_stops_at_its_first_pass_has_no_answer_on_all_of_its_samples(metric):
    """The mean of its samples is not that of a single try: an unbiased number has another name."""
    rng = random.Random(5)
    rows = []
    for task in range(60):
        for sample in range(4):
            passed = rng.random() < 0.4
            rows.append({"task": task, "sample": sample, "reward": float(passed)})
            if passed:
                break
    gate = calipers.gate(rows, require=f"{metric} >= 0.3")
    assert gate.exit_code == 3
    assert "any_of_first_1" in gate.checks[0].why
    assert calipers.gate(rows, require="any_of_first_1 >= 0.2").exit_code == 0
