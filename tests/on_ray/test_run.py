"""``calipers run --engine ray`` on a real cluster whose parts end at the worst moments: nothing lost, nothing twice.

A test decides what is under way by what the server holds back, so that no run can end before the test acts.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from ray_runs import TASKS, LocalCluster, digest, lines, parents, run_of
from waiting import until

pytest.importorskip("ray", reason="ray is not installed; make test-ray brings it")


def whole(folder: Path) -> None:
    """Every rollout is in the log, and none twice."""
    counts = Counter((line["task"], line["sample"]) for line in lines(folder))
    assert len(counts) == TASKS
    assert set(counts.values()) == {1}


def test_a_run_on_a_cluster_is_the_same_run(cluster, server, questions, commands, tmp_path, local_digest):
    out = tmp_path / "ray"
    server.hold_after(1)  # the first worker takes all it may have, and the others join
    arguments = run_of(questions, server, out, "--engine", f"ray={cluster.address}", "--concurrency", 12)
    run = commands.begun(*arguments)
    run.until(lambda: server.held.total() == 12, "12 requests in flight")
    server.go_on()
    code, _, err = run.ended()
    assert code == 0, err
    whole(out)
    assert digest(out) == local_digest
    assert set(server.asked.values()) == {1}
    assert server.most == 12
    assert "sk-test" not in (out / "plan.json").read_text() + (out / "rollouts.jsonl").read_text() + err


def test_a_lost_node_loses_nothing(cluster, server, questions, commands, tmp_path, local_digest):
    out = tmp_path / "ray"
    server.hold_after(12)
    run = commands.begun(*run_of(questions, server, out, "--engine", f"ray={cluster.address}", "--concurrency", 12))
    run.until(lambda: server.held.total() == 12, "12 requests in flight")
    [lost, *_] = server.holders(cluster.workers())
    asked = server.total
    cluster.kill_node(lost)
    run.until(lambda: server.total > asked, "a request that is made again")
    server.go_on()
    code, shown, err = run.ended()
    cluster.add()
    assert code == 0, err
    whole(out)
    assert digest(out) == local_digest
    again = [line for line in lines(out) if line.get("asked_again")]
    assert again
    assert f"{len(again)} rollouts given to another worker because theirs was lost" in err
    [group] = json.loads((out / "result.json").read_text())["groups"]
    assert group["ledger"]["asked_again"] == len(again)
    assert group["ledger"]["attempts"] == TASKS  # each of them is one attempt, and counts once
    assert f"{len(again)} rollouts asked again after a worker was lost" in shown
    assert TASKS < server.total <= TASKS + len(again)  # some of these were only waiting for their turn


def test_a_worker_that_hangs_is_replaced(cluster, server, questions, commands, tmp_path, local_digest):
    out = tmp_path / "ray"
    server.hold_after(6)
    arguments = run_of(questions, server, out, "--engine", f"ray={cluster.address}", "--concurrency", 6)
    run = commands.begun(*arguments, CALIPERS_RAY_PATIENCE="8")
    run.until(lambda: server.held.total() == 6, "6 requests in flight")
    [stopped, *_] = server.holders(cluster.workers())
    os.kill(stopped, signal.SIGSTOP)
    try:
        server.go_on()
        code, _, err = run.ended()
        assert code == 0, err
        until(lambda: stopped not in parents(), "the end of the worker that hangs")
    finally:
        with suppress(ProcessLookupError):
            os.kill(stopped, signal.SIGKILL)
    whole(out)
    assert digest(out) == local_digest
    assert "did not answer for 8 s" in err


def test_a_killed_driver_resumes(cluster, server, questions, commands, tmp_path, local_digest):
    out = tmp_path / "ray"
    arguments = run_of(questions, server, out, "--engine", f"ray={cluster.address}", "--concurrency", 8)
    server.hold_after(20)
    run = commands.begun(*arguments)
    run.until_logged(out, 10)
    run.kill()
    kept = (out / "rollouts.jsonl").read_bytes()
    assert 10 <= kept.count(b"\n") <= 20
    server.go_on()
    code, _, err = commands.done(*arguments)
    assert code == 0, err
    assert (out / "rollouts.jsonl").read_bytes().startswith(kept[: kept.rfind(b"\n") + 1])
    whole(out)
    assert digest(out) == local_digest


def test_a_rollout_that_ends_its_worker_is_named_and_the_rest_is_kept(cluster, server, questions, commands, tmp_path):
    code_file = tmp_path / "deadly.py"
    code_file.write_text(
        "import os, signal\n\n\ndef grade(task, completion):\n"
        "    if completion == '8':\n        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return float(completion == task.target)\n"
    )
    out = tmp_path / "ray"
    arguments = run_of(questions, server, out, "--engine", f"ray={cluster.address}", "--concurrency", 8)
    code, _, err = commands.done(*arguments, "--verifier", f"{code_file}:grade")
    assert code == 3, err
    whole(out)
    [failed] = [line for line in lines(out) if line["outcome"] != "scored"]
    assert failed["task"] == "t7"
    assert failed["outcome"] == "client_failed"
    assert "task 't7': 3 workers were lost" in failed["error"]["message"]
    assert "task 't7': 3 workers were lost" in err


def test_a_lost_head_ends_the_command_with_3_and_a_new_cluster_resumes(
    cluster, server, questions, commands, tmp_path, local_digest
):
    out = tmp_path / "ray"
    server.hold_after(12)
    other = LocalCluster(1)
    try:
        run = commands.begun(*run_of(questions, server, out, "--engine", f"ray={other.address}", "--concurrency", 4))
        run.until_logged(out, 8)
        other.kill_head()
        code, _, err = run.ended()
        assert code == 3, err
        assert "the Ray cluster was lost" in err
        assert "run the same command again to resume" in err
    finally:
        other.end()
    assert 8 <= len(lines(out)) <= 12
    server.go_on()
    code, _, err = commands.done(*run_of(questions, server, out, "--engine", f"ray={cluster.address}"))
    assert code == 0, err
    whole(out)
    assert digest(out) == local_digest


def test_the_budget_holds_for_all_machines(cluster, server, questions, commands, tmp_path):
    out = tmp_path / "ray"
    arguments = run_of(questions, server, out, "--engine", f"ray={cluster.address}", "--concurrency", 4)
    # 4 tokens a call: 3 at 100,000 and 1 at 100,000 dollars a million, so 0.4 dollars a call
    code, _, err = commands.done(*arguments, "--price", "100000,100000", "--max-cost", "4")
    assert code == 3, err
    assert "the cost limit of $4 per start was reached" in err
    assert 10 <= len(lines(out)) <= 10 + 4  # what was under way when it was reached


def test_the_stopping_rule_holds_for_all_machines(cluster, server, questions, commands, tmp_path):
    out, rule = tmp_path / "ray", "width(pass@1) < 0.7"
    server.hold_after(20)
    arguments = run_of(questions, server, out, "--engine", f"ray={cluster.address}", "--concurrency", 4)
    run = commands.begun(*arguments, "--until", rule)
    run.until((out / "stopped.json").exists, "the rule that is met")  # by 20 answers; 4 more are under way
    server.go_on()
    code, _, err = run.ended()
    assert code == 0, err
    assert f"--until '{rule}' stopped the run" in err
    result = json.loads((out / "result.json").read_text())
    assert result["stopped"].startswith(f"--until '{rule}' stopped the run after ")
    done = Counter(line["task"] for line in lines(out))
    assert 0 < len(done) == done.total() <= 24
    ledger = result["groups"][0]["ledger"]
    assert ledger["planned"] == TASKS
    assert ledger["outcomes"] == {"scored": len(done), "stopped_early": TASKS - len(done)}


def test_wrong_engines_are_refused_in_one_line(questions, server, commands, tmp_path):
    for engine, text in (("rai", "did you mean 'ray'?"), ("ray=127.0.0.1:1", "there is no Ray cluster at 127.0.0.1:1")):
        code, _, err = commands.done(*run_of(questions, server, tmp_path / "out", "--engine", engine))
        assert code == 2
        assert text in err.splitlines()[-1]
        assert not (tmp_path / "out").exists()


def test_the_engine_is_in_the_plan_and_not_in_the_identity(cluster, server, questions, commands, tmp_path):
    out = tmp_path / "both"
    engine = f"ray={cluster.address}"
    code, _, err = commands.done(*run_of(questions, server, out, "--engine", engine, "--limit", 10))
    assert code == 0, err
    assert json.loads((out / "plan.json").read_text())["settings"]["engine"]["value"] == engine
    code, _, err = commands.done(*run_of(questions, server, out))
    assert code == 0, err
    whole(out)


def test_a_rescore_on_a_cluster_is_the_same_rescore(cluster, server, questions, commands, tmp_path):
    out, code_file = tmp_path / "run", tmp_path / "lenient.py"
    code_file.write_text(
        "def near(task, completion):\n    return float(abs(int(completion) - int(task.target)) <= 1)\n"
    )
    code, _, err = commands.done(*run_of(questions, server, out))
    assert code == 0, err
    documents = {}
    for name, engine in (("local", "local"), ("ray", f"ray={cluster.address}")):
        target = tmp_path / f"{name}.jsonl"
        arguments = ["rescore", out, "--verifier", f"{code_file}:near", "--out", target, "--format", "json"]
        code, shown, err = commands.done(*arguments, "--engine", engine)
        assert code == 0, err
        documents[name] = json.loads(shown) | {"path": ""}
        assert len(target.read_text().splitlines()) == TASKS
    assert documents["ray"] == documents["local"]
    assert (tmp_path / "ray.jsonl").read_text() == (tmp_path / "local.jsonl").read_text()
