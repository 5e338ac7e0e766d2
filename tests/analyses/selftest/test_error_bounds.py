import json

import pytest
from cli.running import calipers, refused


def rollouts(path):
    rows = [
        {"task": f"t{task}", "sample": sample, "reward": int(task < 6)} for task in range(10) for sample in range(2)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def check(path, accepted=(), failed=()):
    probes = [{"rate": "false positives", "wrong": list(accepted)}, {"rate": "false negatives", "wrong": list(failed)}]
    path.write_text(json.dumps({"selftest": {"probes": probes}}))


def test_bounds_widen_by_the_tasks_with_wrong_verdicts(tmp_path):
    rollouts(tmp_path / "run.jsonl")
    check(tmp_path / "check.json", accepted=["t0"], failed=["t8", "t9", "elsewhere"])
    command = ("score", "run.jsonl", "--verifier-errors", "check.json", "--metric", "mean_reward")
    document = json.loads(calipers(*command, "--format", "json", cwd=tmp_path).stdout)
    bounds = document["verifier_errors"]["groups"][0]["bounds"]["mean_reward"]
    ends = {}
    for worth, tasks in ((0, {"t0"}), (1, {"t8", "t9"})):
        rows = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
        filled = [{**row, "reward": worth} if row["task"] in tasks else row for row in rows]
        (tmp_path / "filled.jsonl").write_text("".join(json.dumps(row) + "\n" for row in filled))
        done = json.loads(calipers("score", "filled.jsonl", "--format", "json", cwd=tmp_path).stdout)
        ends[worth] = done["groups"][0]["metrics"]["mean_reward"]["interval"]
    assert bounds == pytest.approx([ends[0][0], ends[1][1]])
    done = calipers(*command, cwd=tmp_path)
    said = f"mean_reward 0.60, between {bounds[0]:.2f} and {bounds[1]:.2f} if the suspicious tasks are wrong"
    assert f"note: {said}\n" in done.stderr
    assert "a wrong answer passes in 1 task, the gold answer fails in 2 tasks" in done.stderr


def test_the_digest_does_not_change(tmp_path):
    rollouts(tmp_path / "run.jsonl")
    check(tmp_path / "check.json", accepted=["t0"])
    plain, bounded = (
        json.loads(calipers("score", "run.jsonl", "--format", "json", *more, cwd=tmp_path).stdout)
        for more in ((), ("--verifier-errors", "check.json"))
    )
    assert plain["digest"] == bounded["digest"]


def test_what_is_no_self_test(tmp_path):
    rollouts(tmp_path / "run.jsonl")
    (tmp_path / "check.json").write_text("{}")
    message = refused("score", "run.jsonl", "--verifier-errors", "check.json", cwd=tmp_path)
    assert message.startswith("check.json: is not the self-test of a benchmark; expected the output of calipers check")
