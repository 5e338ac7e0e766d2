"""``calipers collect`` as a user runs it: NeMo Gym's files, the page, and the exit code."""

from __future__ import annotations

import json
import signal

import pytest
from cli.running import begun, calipers, refused
from running.scene import weather
from systems.nemo_gym.agents import AgentServer
from systems.nemo_gym.collect.gathering import agent, here, keys, put, report, rows, tasks
from systems.nemo_gym.heads import HeadServer
from systems.nemo_gym.serve.running import running
from waiting import PATIENCE, until, until_lines

FILES = ["r.jsonl", "r_aggregate_metrics.json", "r_failures.jsonl", "r_materialized_inputs.jsonl"]


def test_one_command_from_agents_to_numbers(tmp_path):
    tasks(tmp_path)
    with agent() as url:
        command = ("--input", "tasks.jsonl", "--output", "r.jsonl", "--agent", f"math={url}", "--num-repeats", "4")
        done = calipers("collect", *command, "--metric", "pass@2", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "24 planned (from materialized_inputs) = 24 scored, none missing" in done.stdout
        assert "pass@2" in done.stdout
        assert done.stderr.splitlines()[-1] == "r_aggregate_metrics.json"
        assert "key metrics of math: mean/reward " in done.stderr
        assert sorted(path.name for path in tmp_path.glob("r*")) == FILES
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        assert calipers("collect", *command, cwd=tmp_path).returncode == 0
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
        assert report(url)["runs"] == 24


def test_metrics_that_cannot_be_taken_away_are_told_before_a_call(tmp_path):
    tasks(tmp_path)
    (tmp_path / "r_aggregate_metrics.json").mkdir()
    with agent() as url:
        done = calipers(
            "collect", "--input", "tasks.jsonl", "--output", "r.jsonl", "--agent", f"math={url}", cwd=tmp_path
        )
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.startswith("r_aggregate_metrics.json: cannot be written (Is a directory)")
        assert report(url)["runs"] == 0


def test_nemo_gyms_own_arguments_mean_the_same(tmp_path):
    tasks(tmp_path, 4, None)
    ours = ["--num-repeats", "2", "--add-seed", "--limit", "3", "--concurrency", "2", "--temperature", "0.25"]
    ours += ["--responses-create-params", '{"reasoning": {"effort": "low"}}', "--agent-name", "math"]
    theirs = ["+num_repeats=2", "+num_repeats_add_seed=true", "+limit=3", "++num_samples_in_parallel=2"]
    theirs += ["+responses_create_params.temperature=0.25", "+responses_create_params.reasoning.effort=low"]
    theirs += ["+agent_name=math", "+resume_from_cache=true", "upload_rollouts=false"]
    files = ["--input", "tasks.jsonl", "--output", "r.jsonl"]
    words = ["+input_jsonl_fpath=tasks.jsonl", "+output_jsonl_fpath=s.jsonl"]
    with agent() as url, here(HeadServer({"math": url})) as head:
        first = calipers("collect", *files, *ours, "--agent", f"math={url}", cwd=tmp_path)
        second = calipers("collect", *words, *theirs, f"+head_server.port={head.port}", cwd=tmp_path)
    assert (first.returncode, second.returncode) == (0, 0), second.stderr
    for name in FILES[0], *FILES[2:]:
        assert rows(tmp_path / name) == rows(tmp_path / name.replace("r", "s", 1))
    assert (tmp_path / FILES[1]).read_bytes() == (tmp_path / "s_aggregate_metrics.json").read_bytes()
    sent = rows(tmp_path / "s_materialized_inputs.jsonl")[0]["responses_create_params"]
    assert (sent["temperature"], sent["reasoning"]) == (0.25, {"effort": "low"})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["+num_repeat=2"], "no key of a collection named 'num_repeat'; did you mean 'num_repeats'"),
        (["--agent", "maths=http://127.0.0.1:1"], "tasks.jsonl: no agent named 'math'; did you mean 'maths'?"),
        (
            ["--agent", "math=http://127.0.0.1:1"],
            "agent math: cannot connect to 127.0.0.1:1: connection refused; nothing",
        ),
    ],
)
def test_what_cannot_work_is_one_line_and_leaves_nothing(tmp_path, arguments, said):
    tasks(tmp_path)
    head = ["+head_server.port=1"]
    line = refused("collect", "--input", "tasks.jsonl", "--output", "r.jsonl", *head, *arguments, cwd=tmp_path)
    assert said in line


def test_ctrl_c_finishes_what_is_in_flight_and_the_same_command_goes_on(tmp_path):
    tasks(tmp_path, 60)
    with agent("--hold", "8") as url:
        command = ("--input", "tasks.jsonl", "--output", "r.jsonl", "--agent", f"math={url}", "--concurrency", "4")
        with begun("collect", *command, cwd=tmp_path) as running:
            until_lines(tmp_path / "r.jsonl", 8)
            until(lambda: report(url)["runs"] == 12, "what is in flight")
            running.send_signal(signal.SIGINT)
            report(url, "/go")
            shown, said = running.communicate(timeout=PATIENCE)
        assert running.returncode == 3, said
        assert b"stopped early: interrupted; run the same command again to resume" in said
        assert b"not_run" in shown
        assert not (tmp_path / "r_aggregate_metrics.json").exists()
        calls = report(url)["runs"]
        assert 12 <= len(rows(tmp_path / "r.jsonl")) == calls < 60  # every call that was sent is in the file
        assert calipers("collect", *command, cwd=tmp_path).returncode == 0
        assert report(url)["runs"] == 60
        assert report(url)["most"] <= 4
        calipers("collect", *command[:3], "at_once.jsonl", *command[4:], cwd=tmp_path)
    assert (tmp_path / "r_aggregate_metrics.json").read_bytes() == (
        tmp_path / "at_once_aggregate_metrics.json"
    ).read_bytes()


def test_an_agent_that_dies_in_mid_run(tmp_path):
    tasks(tmp_path, 30)
    files = ("--input", "tasks.jsonl", "--output", "r.jsonl", "--concurrency", "4", "--retries", "1")
    with agent("--die-after", "10") as url:
        done = calipers("collect", *files, "--agent", f"math={url}", cwd=tmp_path)
    assert done.returncode == 3
    assert "cannot connect to 127.0.0.1:" in done.stderr
    assert "run the same command again for the rollouts that were not run" in done.stderr
    assert "Traceback" not in done.stderr
    kept = keys(tmp_path / "r.jsonl")
    assert 6 <= len(kept) <= 10
    assert "the file contains the metrics computed here" in done.stderr
    assert json.loads((tmp_path / "r_aggregate_metrics.json").read_text())[0]["agent_metrics"]
    with agent() as url:  # at another address, which is not part of a collection's identity
        again = calipers("collect", *files, "--agent", f"math={url}", cwd=tmp_path)
        assert again.returncode == 0, again.stderr
        assert report(url)["runs"] == 30 - len(kept)
    assert keys(tmp_path / "r.jsonl") == [(task, 0) for task in range(30)]


def test_the_built_in_agent_and_calipers_serve_on_one_machine(tmp_path):
    tasks(tmp_path, 5, None)
    shown, token = ("--token-env", "GYM_TOKEN"), {"GYM_TOKEN": "token-of-the-house"}
    with weather() as model, running("--verifier", "exact_match", *shown, cwd=tmp_path, **token) as server:
        files = ("--input", "tasks.jsonl", "--output", "r.jsonl", "--num-repeats", "3", "--add-seed")
        built_in = ("--agent", "simple_agent=openai/any", "--base-url", model, "--verify-url", server.url)
        done = calipers("collect", *files, *built_in, *shown, cwd=tmp_path, **token)
        assert done.returncode == 0, done.stderr
        theirs = (tmp_path / "r_aggregate_metrics.json").read_bytes()
        calipers("collect", *files, *built_in, "--local", *shown, cwd=tmp_path, **token)
    assert (tmp_path / "r_aggregate_metrics.json").read_bytes() == theirs
    assert {row["reward"] for row in rows(tmp_path / "r.jsonl")} == {0.0, 1.0}
    assert all(b"token-of" not in path.read_bytes() for path in tmp_path.iterdir())


def test_a_prompt_template_and_a_verifier(tmp_path):
    given = put(tmp_path / "t.jsonl", *({"a": n, "b": 1, "expected_answer": str(n + 1)} for n in range(4)))
    (tmp_path / "prompt.yaml").write_text("system: be brief\nuser: 'What is {a} + {b}?'\n")
    with weather() as url:
        command = ("--input", given, "--output", "r.jsonl", "--prompt-config", "prompt.yaml", "--base-url", url)
        done = calipers(
            "collect",
            *command,
            "--agent",
            "a=openai/any",
            "--verifier",
            "exact_match",
            "--format",
            "json",
            cwd=tmp_path,
        )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["groups"][0]["ledger"]["scored"] == 4
    asked = rows(tmp_path / "r.jsonl")[2]["responses_create_params"]["input"]
    assert asked == [{"role": "system", "content": "be brief"}, {"role": "user", "content": "What is 2 + 1?"}]


def test_failures_are_gaps_and_exit_3(tmp_path):
    tasks(tmp_path, 4)
    with here(AgentServer({"1": "bad"})) as server:
        command = ("--input", "tasks.jsonl", "--output", "r.jsonl", "--agent", f"math={server.url}", "--retries", "0")
        done = calipers("collect", *command, cwd=tmp_path)
    assert done.returncode == 3
    assert "4 planned (from materialized_inputs) = 3 scored + 1 missing (excluded)" in done.stdout
    (row,) = rows(tmp_path / "r_failures.jsonl")
    assert row["error"] == {"kind": "malformed", "message": "the response is not JSON"}
