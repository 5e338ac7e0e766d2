"""What can be asserted, and what is neither true nor false."""

import json

import pytest

import calipers
from calipers import CalipersError, InputError, NotPassed
from calipers.analyses.audit import IMPOSSIBLE, Anomaly
from calipers.analyses.certify.envelope import new_key, sign

BETTER = [[1, 1]] * 30 + [[0, 0]] * 10
WORSE = [[0, 0]] * 30 + [[0, 0]] * 10


def test_a_gate_that_failed_was_true():
    """assert calipers.gate(...) held for every gate, as every object is true."""
    assert not calipers.gate([[1], [0]], require="mean_reward >= 0.9")
    assert calipers.gate([[1], [0]], require="mean_reward >= 0.4")


def test_a_gate_without_an_answer_has_not_passed():
    gate = calipers.gate([[1], [0]], require="pass@2 >= 0.1")
    assert gate.word == "undefined"
    assert gate.passed is False
    with pytest.raises(NotPassed, match="NO ANSWER"):
        gate.check()


def test_check_returns_the_gate_or_raises_its_page():
    gate = calipers.gate([[1], [0]], require="mean_reward >= 0.4")
    assert gate.check() is gate
    failed = calipers.gate([[1], [0]], require="mean_reward >= 0.9")
    with pytest.raises(NotPassed) as raised:
        failed.check()
    assert str(raised.value) == str(failed)
    assert isinstance(raised.value, AssertionError)
    assert isinstance(raised.value, CalipersError)
    assert raised.value.exit_code == 1


def test_an_advisory_rule_does_not_keep_a_gate_from_passing(tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text("critical: [mean_reward >= 0.4]\nadvisory: [mean_reward >= 0.9]\n")
    assert calipers.gate([[1], [0]], policy=policy).check().passed


def test_a_verification_passes_if_everything_was_checked_and_is_good(tmp_path):
    rows = [{"task": f"t{task}", "sample": 0, "reward": task % 2} for task in range(8)]
    run = tmp_path / "run.jsonl"
    run.write_text("".join(json.dumps(row) + "\n" for row in rows))
    new_key(str(tmp_path / "key"))
    made = calipers.certify(str(run), salt_seed=bytes(32))
    (tmp_path / "c.json").write_bytes(sign(made.envelope, str(tmp_path / "key")).encoded())
    (tmp_path / "result.tree").write_bytes(b"".join(made.tree.encoded()))
    verified = calipers.verify(tmp_path / "c.json", run, key=tmp_path / "key.pub")
    assert (verified.exit_code, bool(verified), verified.check() is verified) == (0, True, True)
    unknown = calipers.verify(tmp_path / "c.json")
    assert (unknown.exit_code, bool(unknown)) == (3, False)
    with pytest.raises(NotPassed, match="not known"):
        unknown.check()


def test_an_audit_passes_without_a_finding(tmp_path):
    rows = [{"task": f"t{task}", "sample": 0, "reward": task % 2} for task in range(8)]
    run = tmp_path / "run.jsonl"
    run.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = calipers.audit(str(run))
    assert (done.exit_code, bool(done)) == (0, True)
    assert done.check() is done


def test_an_audit_with_a_finding_has_not_passed():
    planted = Anomaly("planted", IMPOSSIBLE, 1, "a planted finding", expected=0.0, examples=[])
    found = calipers.Audit(["run"], 8, [planted], [], [], [])
    assert not found
    with pytest.raises(NotPassed, match="planted"):
        found.check()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (
            lambda: calipers.compare(BETTER, WORSE),
            "a comparison is neither true nor false: use .verdict, or .check('better')",
        ),
        (lambda: calipers.leaderboard(BETTER, WORSE), "a leaderboard is neither true nor false: use .boards"),
        (lambda: calipers.score(BETTER), "a result is neither true nor false: use result['mean_reward'].value"),
    ],
)
def test_what_is_neither_true_nor_false(value, words):
    with pytest.raises(TypeError) as raised:
        bool(value())
    assert str(raised.value).startswith(words)


def test_a_matrix_is_neither_true_nor_false(tmp_path):
    for name, rewards in (("a", BETTER), ("b", WORSE)):
        rows = [
            {"task": f"t{task}", "sample": sample, "reward": reward, "model": name, "dataset": dataset}
            for dataset in ("x", "y")
            for task, samples in enumerate(rewards)
            for sample, reward in enumerate(samples)
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    matrix = calipers.matrix(tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    with pytest.raises(TypeError, match=r"a matrix is neither true nor false: use \.verdicts"):
        assert matrix


def test_a_comparison_has_one_verdict_and_checks_it():
    comparison = calipers.compare(WORSE, BETTER)
    assert comparison.verdict == comparison["mean_reward"].verdict == "better"
    assert comparison.check("better") is comparison
    assert comparison.check("equivalent", "better") is comparison
    with pytest.raises(NotPassed) as raised:
        comparison.check("worse", "undecided")
    assert str(raised.value) == str(comparison)


def test_the_verdict_is_that_of_the_primary_question():
    comparison = calipers.compare(WORSE, BETTER, metrics=["pass@2", "pass^2"], primary="pass^2")
    assert comparison.verdict == comparison["pass^2"].verdict


def test_several_pairs_have_no_single_verdict_but_can_be_checked():
    comparison = calipers.compare(WORSE, BETTER, BETTER)
    with pytest.raises(KeyError, match="pairs of runs were compared"):
        comparison.verdict  # noqa: B018
    assert comparison.check("better", "undecided") is comparison
    with pytest.raises(NotPassed):
        comparison.check("better")


def test_words_that_no_verdict_has_are_refused():
    comparison = calipers.compare(WORSE, BETTER)
    with pytest.raises(InputError, match="no verdict named 'beter'; did you mean 'better'"):
        comparison.check("beter")
    with pytest.raises(InputError, match="expected one or more of better, worse"):
        comparison.check()
