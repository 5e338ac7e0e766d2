"""Where a system's own number differs from ours, a gate has no answer, and pages warn."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from cli.running import calipers as command

import calipers
from calipers.analyses.compare import make_question
from calipers.analyses.compare.source import is_doubtful
from calipers.errors import Incomplete
from calipers.request import make_plan

GOLDEN = Path(__file__).parents[2] / "golden" / "formats" / "verifiers_v0_old"
WARNING = "verifiers_v0's own avg_reward is 0.76, ours is 0.75: the rollouts may be read wrong"
RULE = "mean_reward >= 0.1"


@pytest.fixture
def runs(tmp_path):
    """A run whose own mean agrees with ours, and one whose does not."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    shutil.copytree(GOLDEN, good)
    shutil.copytree(GOLDEN, bad)
    companion = json.loads((bad / "metadata.json").read_text())
    companion["avg_reward"] += 0.01
    (bad / "metadata.json").write_text(json.dumps(companion))
    return good, bad


def test_a_gate_has_no_answer_unless_the_reader_is_trusted(runs):
    good, bad = runs
    assert calipers.gate(good, require=RULE).word == "passed"
    for requirement in (RULE, "mean_reward >= 0.999", "missing < 0.9"):
        answer = calipers.gate(bad, require=requirement)
        assert (answer.word, answer.exit_code) == ("undefined", 3)
        assert answer.checks[0].why == f"{WARNING}; --trust-reader decides nevertheless"
        assert answer.checks[0].value is None
    assert calipers.gate(bad, require=RULE, trust_reader=True).word == "passed"
    assert f"warning: {WARNING}" in calipers.gate(bad, require=RULE, trust_reader=True).notes


def test_a_gate_has_no_answer_about_a_finished_result(runs, tmp_path):
    _, bad = runs
    result = calipers.score(bad)
    path = tmp_path / "result.json"
    path.write_text(result.to_json())
    assert calipers.gate(result, require=RULE).word == "undefined"
    answer = calipers.gate(path, require=RULE)
    assert answer.word == "undefined"
    assert WARNING in answer.checks[0].why
    assert calipers.gate(path, require=RULE, trust_reader=True).word == "passed"


def test_a_difference_needs_both_readers(runs):
    good, bad = runs
    rules = ["delta(mean_reward) >= -0.5", RULE]
    answer = calipers.gate(good, require=rules, baseline=bad)
    assert [check.word for check in answer.checks] == ["undefined", "passed"]
    trusting = calipers.gate(good, require=rules, baseline=bad, trust_reader=True)
    assert [check.word for check in trusting.checks] == ["passed", "passed"]


def test_a_night_whose_numbers_differ_is_not_added_to_a_history(runs, tmp_path):
    good, bad = (tmp_path / name / "results.jsonl" for name in ("good", "bad"))
    history = tmp_path / "history.json"
    night = ["--history", str(history), "--reward", "reward"]
    assert command("gate", str(good), *night, cwd=tmp_path).returncode == 0
    before = history.read_bytes()
    answer = command("gate", str(bad), *night, cwd=tmp_path)
    assert answer.returncode == Incomplete.exit_code == 3
    assert f"{WARNING}; --trust-reader adds the night nevertheless" in answer.stderr
    assert history.read_bytes() == before
    command("gate", str(bad), *night, "--trust-reader", cwd=tmp_path)
    assert len(json.loads(history.read_bytes())["nights"]) == 1  # the same rollouts are one night


def test_the_page_and_standard_error_warn(runs, tmp_path):
    _, bad = runs
    for more in ([], ["--details"], ["--by", "example_id"]):
        answer = command("score", str(bad), *more, cwd=tmp_path)
        assert answer.returncode == 0
        assert "warning: verifiers_v0's own avg_reward is 0.76" in answer.stdout
        assert f"warning: {WARNING}\n" in answer.stderr
        assert "note: warning" not in answer.stderr
    assert command("gate", str(bad), "--require", RULE, cwd=tmp_path).returncode == 3
    assert command("gate", str(bad), "--require", RULE, "--trust-reader", cwd=tmp_path).returncode == 0
    report = command("report", str(bad), "-o", "page.html", cwd=tmp_path)
    assert report.returncode == 0
    assert "own avg_reward is 0.76" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("name", ["compare", "leaderboard"])
def test_comparisons_warn_and_name_the_run(runs, tmp_path, name):
    for more in ([], ["--trust-reader"]):
        answer = command(name, *map(str, runs), *more, cwd=tmp_path)
        assert answer.returncode == 0
        assert f"/bad: {WARNING}"[:60] in answer.stderr
        assert "warning: " in answer.stdout
    document = json.loads(command(name, *map(str, runs), "--format", "json", cwd=tmp_path).stdout)
    if name == "compare":
        checks = [[check["agrees"] for check in run["checks"]] for run in document["contests"][0]["runs"]]
        assert checks == [[True], [False]]
    else:
        [check] = document["checks"]
        assert (check["source"], check["metric"], check["agrees"]) == (str(runs[1]), "avg_reward", False)


def test_the_verdict_asks_whether_a_run_is_doubtful(runs):
    good, bad = (calipers.read(path) for path in runs)
    plan = make_plan(None)
    assert not is_doubtful(good, make_question(plan))
    assert is_doubtful(bad, make_question(plan))
    assert not is_doubtful(bad, make_question(plan, trust_reader=True))
    [part] = bad.groups()
    assert is_doubtful(part, make_question(plan))


def test_a_result_keeps_its_checks_in_its_document_and_out_of_its_digest(runs):
    good, bad = (calipers.score(path) for path in runs)
    assert good.digest == bad.digest
    again = type(bad).from_dict(json.loads(bad.to_json()))
    assert again.checks == bad.checks
    assert "checks" not in calipers.score([[1.0, 0.0]]).to_dict()


def test_partial_scores_keep_the_checks(runs, tmp_path):
    _, bad = runs
    partial = tmp_path / "p.partial"
    assert command("score", str(bad), "--partial", str(partial), cwd=tmp_path).returncode == 0
    merged = command("merge", str(partial), "--format", "json", cwd=tmp_path)
    assert [check["agrees"] for check in json.loads(merged.stdout)["checks"]] == [False]
    cached = command("score", str(bad), "--cache", str(tmp_path / "cache"), cwd=tmp_path)
    assert WARNING in cached.stderr
