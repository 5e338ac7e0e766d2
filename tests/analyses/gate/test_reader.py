"""Where a system's own number differs from ours, a gate has no answer, and pages warn."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from cli.running import calipers as command

import calipers
from calipers.errors import Incomplete
from calipers.reports.remark_texts import text_of

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
        assert "warning:" in answer.stdout
    document = json.loads(command(name, *map(str, runs), "--format", "json", cwd=tmp_path).stdout)
    if name == "compare":
        checks = [[check["agrees"] for check in run["checks"]] for run in document["contests"][0]["runs"]]
        assert checks == [[True], [False]]
    else:
        [check] = document["checks"]
        assert (check["source"], check["metric"], check["agrees"]) == (str(runs[1]), "avg_reward", False)


def shifted(folder, name, reward):
    """A run of the same tasks by another model, in which all rewards are one number."""
    copy = folder / name
    shutil.copytree(GOLDEN, copy)
    rows = [json.loads(line) for line in (copy / "results.jsonl").read_text().splitlines()]
    companion = json.loads((copy / "metadata.json").read_text())
    many = [{**row, "example_id": 100 * n + row["example_id"], "reward": reward} for n in range(10) for row in rows]
    (copy / "results.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in many))
    companion |= {"model": name, "avg_reward": reward, "num_examples": 30}
    (copy / "metadata.json").write_text(json.dumps(companion))
    return copy


@pytest.fixture
def apart(tmp_path):
    """Two runs, one better than the other beyond doubt, but for the own number of the second."""
    worse, better = shifted(tmp_path, "low", 0.0), shifted(tmp_path, "high", 1.0)
    companion = json.loads((better / "metadata.json").read_text())
    (better / "metadata.json").write_text(json.dumps({**companion, "avg_reward": 0.75}))
    return worse, better


def test_a_run_whose_numbers_differ_has_no_verdict(apart):
    settings = {"metrics": "mean_reward", "reward": "reward"}
    finding = calipers.compare(*apart, **settings)["mean_reward"]
    assert (finding.verdict, finding.undecided_by, finding.as_observed) == ("undecided", "reader", "better")
    [remark] = [each for each in finding.remarks if each.code == "reader_decides"]
    assert text_of(remark) == (
        "verifiers_v0's own avg_reward is 0.75, ours is 1: the rollouts may be read wrong; "
        "--trust-reader decides nevertheless"
    )
    trusting = calipers.compare(*apart, **settings, trust_reader=True)["mean_reward"]
    assert (trusting.verdict, trusting.undecided_by) == ("better", None)
    equivalent = calipers.compare(*apart, **settings, margin=5)["mean_reward"]
    assert (equivalent.verdict, equivalent.undecided_by) == ("undecided", "reader")


def test_a_slice_of_such_a_run_has_no_verdict_either(apart):
    found = calipers.compare(*apart, metrics="mean_reward", reward="reward", by="sample")
    assert {finding.undecided_by for finding in found.findings} == {"reader"}


def test_a_board_of_two_has_the_verdict_of_the_pair(apart):
    board = calipers.leaderboard(*apart, reward="reward").boards[0]
    assert [place.rank_set for place in board.places] == [(1, 2), (1, 2)]
    trusting = calipers.leaderboard(*apart, reward="reward", trust_reader=True).boards[0]
    assert [place.rank_set for place in trusting.places] == [(1, 1), (2, 2)]


def test_a_matrix_has_no_verdict_on_such_a_run(apart):
    found = calipers.matrix(*apart, reward="reward")
    [pair] = found.benchmarks[0].pairs
    assert (pair.verdict, pair.undecided_by) == ("undecided", "reader")
    [pair] = calipers.matrix(*apart, reward="reward", trust_reader=True).benchmarks[0].pairs
    assert pair.verdict == "better"


def test_the_page_says_why_nothing_is_decided(apart, tmp_path):
    answer = command("compare", *map(str, apart), "--reward", "reward", cwd=tmp_path)
    assert "Not decided" in answer.stdout
    assert "avg_reward is 0.75, ours is 1" in " ".join(answer.stdout.split())
    board = command("leaderboard", *map(str, apart), "--reward", "reward", cwd=tmp_path)
    assert "avg_reward is 0.75, ours is 1" in " ".join(board.stdout.split())


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
