"""``calipers run --engine ray`` on a real cluster whose parts end at the worst moments: nothing lost, nothing twice."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from ray_runs import TASKS, LocalCluster, ModelServer, begun, digest, ended, lines, run_of, talks_to, until_logged
from waiting import until

pytest.importorskip("ray", reason="ray is not installed; make test-ray brings it")


@pytest.fixture
def local_digest(questions: Path, server: ModelServer, tmp_path: Path) -> str:
    """The digest of the same run in one process."""
    code, _, err = ended(begun(*run_of(questions, server, tmp_path / "local")))
    assert code == 0, err
    server.asked.clear()
    return digest(tmp_path / "local")


def whole(folder: Path) -> None:
    """Every rollout is in the log, and none twice."""
    counts = Counter((line["task"], line["sample"]) for line in lines(folder))
    assert len(counts) == TASKS
    assert set(counts.values()) == {1}


def test_a_run_on_a_cluster_is_the_same_run(cluster, server, questions, tmp_path, local_digest):
    out = tmp_path / "ray"
    code, _, err = ended(begun(*run_of(questions, server, out, "--engine", f"ray={cluster.address}")))
    assert code == 0, err
    whole(out)
    assert digest(out) == local_digest
    assert set(server.asked.values()) == {1}
    assert "sk-test" not in (out / "plan.json").read_text() + (out / "rollouts.jsonl").read_text() + err


def test_a_lost_node_loses_nothing(cluster, server, questions, tmp_path, local_digest):
    out = tmp_path / "ray"
    process = begun(*run_of(questions, server, out, "--engine", f"ray={cluster.address}", "--concurrency", 12))
    until_logged(out, 12)
    server.hold()
    until(lambda: server.total >= len(lines(out)) + 12, "requests in flight")
    held = server.total
    cluster.kill_node(lambda pid: talks_to(pid, server.port))
    until(lambda: server.total > held, "requests that are made again")
    server.go_on()
    code, _, err = ended(process)
    cluster.add()
    assert code == 0, err
    whole(out)
    assert digest(out) == local_digest
    again = [line for line in lines(out) if line.get("asked_again")]
    assert again
    assert f"{len(again)} rollouts were given to another worker because theirs was lost" in err
    assert TASKS < server.total <= TASKS + len(again)  # some of these were only waiting for their turn


def test_a_worker_that_hangs_is_replaced(cluster, server, questions, tmp_path, local_digest):
    out = tmp_path / "ray"
    server.hold()
    process = begun(
        *run_of(questions, server, out, "--engine", f"ray={cluster.address}", "--concurrency", 6),
        CALIPERS_RAY_PATIENCE="4",
    )
    until(lambda: server.total, "a request in flight")
    os.kill(next(pid for pid in cluster.workers() if talks_to(pid, server.port)), signal.SIGSTOP)
    server.go_on()
    code, _, err = ended(process)
    assert code == 0, err
    whole(out)
    assert digest(out) == local_digest
    assert "did not answer for 4 s" in err


def test_a_killed_driver_resumes(cluster, server, questions, tmp_path, local_digest):
    out = tmp_path / "ray"
    arguments = run_of(questions, server, out, "--engine", f"ray={cluster.address}", "--concurrency", 8)
    process = begun(*arguments)
    until_logged(out, 10)
    process.kill()
    ended(process)
    kept = (out / "rollouts.jsonl").read_bytes()
    code, _, err = ended(begun(*arguments))
    assert code == 0, err
    assert (out / "rollouts.jsonl").read_bytes().startswith(kept[: kept.rfind(b"\n") + 1])
    whole(out)
    assert digest(out) == local_digest


def test_a_rollout_that_ends_its_worker_is_named_and_the_rest_is_kept(cluster, server, questions, tmp_path):
    code_file = tmp_path / "deadly.py"
    code_file.write_text(
        "import os, signal\n\n\ndef grade(task, completion):\n"
        "    if completion == '8':\n        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return float(completion == task.target)\n"
    )
    out = tmp_path / "ray"
    arguments = run_of(questions, server, out, "--engine", f"ray={cluster.address}", "--concurrency", 8)
    code, _, err = ended(begun(*arguments, "--verifier", f"{code_file}:grade"))
    assert code == 3, err
    whole(out)
    [failed] = [line for line in lines(out) if line["outcome"] != "scored"]
    assert failed["task"] == "t7"
    assert failed["outcome"] == "client_failed"
    assert "task 't7': 3 workers were lost" in failed["error"]["message"]
    assert "task 't7': 3 workers were lost" in err


def test_a_lost_head_ends_the_command_with_3_and_a_new_cluster_resumes(
    cluster, server, questions, tmp_path, local_digest
):
    out = tmp_path / "ray"
    other = LocalCluster(1)
    try:
        process = begun(*run_of(questions, server, out, "--engine", f"ray={other.address}", "--concurrency", 4))
        until_logged(out, 8)
        server.hold()
        other.kill_head()
        code, _, err = ended(process)
        assert code == 3, err
        assert "the Ray cluster was lost" in err
        assert "run the same command again to resume" in err
    finally:
        other.end()
    assert all(isinstance(line, dict) for line in lines(out))
    server.go_on()
    code, _, err = ended(begun(*run_of(questions, server, out, "--engine", f"ray={cluster.address}")))
    assert code == 0, err
    whole(out)
    assert digest(out) == local_digest


def test_the_stopping_rule_and_the_budget_hold_for_all_machines(cluster, server, questions, tmp_path):
    out = tmp_path / "ray"
    arguments = run_of(questions, server, out, "--engine", f"ray={cluster.address}", "--concurrency", 4)
    # 4 tokens a call: 3 at 100,000 and 1 at 100,000 dollars a million, so 0.4 dollars a call
    code, _, err = ended(begun(*arguments, "--price", "100000,100000", "--max-cost", "4"))
    assert code == 3, err
    assert "the cost limit of $4 per start was reached" in err
    assert 10 <= len(lines(out)) <= 10 + 4  # what was under way when it was reached


def test_wrong_engines_are_refused_in_one_line(questions, server, tmp_path):
    for engine, text in (("rai", "did you mean 'ray'?"), ("ray=127.0.0.1:1", "there is no Ray cluster at 127.0.0.1:1")):
        code, _, err = ended(begun(*run_of(questions, server, tmp_path / "out", "--engine", engine)))
        assert code == 2
        assert text in err.splitlines()[-1]
        assert not (tmp_path / "out").exists()


def test_the_engine_is_in_the_plan_and_not_in_the_identity(cluster, server, questions, tmp_path):
    out = tmp_path / "both"
    engine = f"ray={cluster.address}"
    assert ended(begun(*run_of(questions, server, out, "--engine", engine, "--limit", 10)))[0] == 0
    assert json.loads((out / "plan.json").read_text())["settings"]["engine"]["value"] == engine
    assert ended(begun(*run_of(questions, server, out)))[0] == 0
    whole(out)


def test_a_rescore_on_a_cluster_is_the_same_rescore(cluster, server, questions, tmp_path):
    out, code_file = tmp_path / "run", tmp_path / "lenient.py"
    code_file.write_text(
        "def near(task, completion):\n    return float(abs(int(completion) - int(task.target)) <= 1)\n"
    )
    assert ended(begun(*run_of(questions, server, out)))[0] == 0
    documents = {}
    for name, engine in (("local", "local"), ("ray", f"ray={cluster.address}")):
        target = tmp_path / f"{name}.jsonl"
        arguments = ["rescore", out, "--verifier", f"{code_file}:near", "--out", target, "--format", "json"]
        code, shown, err = ended(begun(*arguments, "--engine", engine))
        assert code == 0, err
        documents[name] = json.loads(shown) | {"path": ""}
        assert len(target.read_text().splitlines()) == TASKS
    assert documents["ray"] == documents["local"]
    assert (tmp_path / "ray.jsonl").read_text() == (tmp_path / "local.jsonl").read_text()
