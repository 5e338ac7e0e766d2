"""``calipers run DATASET --agent``: without Harbor, in rooms of our own."""

import json

import pytest
from cli.running import calipers, refused
from harbor_datasets import write_dataset, write_task
from rooms import needs_rooms
from running.loopback import hook
from running.scene import sums


def run(tmp_path, *asked, **environment):
    """The command without Harbor: PATH has only the system's programs."""
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "CALIPERS_HARBOR": "", **environment}
    return calipers("run", str(tmp_path / "set"), "--out", str(tmp_path / "out"), *asked, cwd=tmp_path, **environment)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--samples", "0"], "--samples: it is 0; expected at least 1"),
        (["--model", "openai/m"], "--model: has no effect: without --agent the oracle runs the task's own solution"),
        (["--concurrency", "0"], "--concurrency: it is 0; expected at least 1"),
        (["--retries", "-1"], "--retries: it is -1; expected at least 0"),
        (["--limit", "0"], "--limit: is 0; expected a number of tasks, or a fraction below 1"),
        (["--limit", "1.5"], "--limit: is 1.5; expected a number of tasks, or a fraction below 1"),
        (
            ["--agent", "orcale"],
            ("'orcale' is not an agent that works without Harbor (did you mean 'oracle'?); expected"),
        ),
        (["--agent", ""], "--agent: is empty; expected oracle, nop or command:LINE"),  # $AGENT, and nobody set it
        (["--agent", "command: "], "--agent: 'command: ' has no command; expected command:LINE"),
        (["--agent", "oracle", "--temperature", "1"], "--agent: 'oracle' does not accept --temperature; expected chat"),
        (
            ["--max-tokens", "9", "--system-prompt", "x"],
            "'oracle' does not accept --max-tokens, --system-prompt; expected",
        ),
        (["--agent", "nop", "--model", "openai/m"], "--model: has no effect: nop does not use a model; expected"),
        (["--agent", "command:true", "--model", "openai/m"], "has no effect: command does not use a model"),
        (["--environment", ""], "--environment: is empty; expected auto, room, or one of Harbor's"),
        (["--environment", "dokcer"], "--environment: there is no environment 'dokcer'; did you mean 'docker'?"),
        (["--environment", "modal"], "there is no program 'harbor'; install Harbor"),  # one of Harbor's
        (["--environment", "docker"], "there is no program 'harbor'; install Harbor"),
    ],
)
def test_what_is_asked_is_checked_first(tmp_path, asked, said):
    write_dataset(tmp_path / "set", 1)
    done = run(tmp_path, *asked)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("echo 0.11.3", "is Harbor 0.11.3; expected 0.25 or newer"),
        ("echo 'true (GNU coreutils) 9.1'", "--version prints 'true (GNU coreutils) 9.1'; expected Harbor"),
        ("echo what; exit 1", "--version prints 'what'; expected Harbor 0.25 or newer"),
    ],
)
def test_another_harbor_is_none(tmp_path, program, said):
    write_dataset(tmp_path / "set", 1)
    fake = tmp_path / "harbor"
    fake.write_text(f"#!/bin/sh\n{program}\n")
    fake.chmod(0o755)
    done = run(tmp_path, CALIPERS_HARBOR=str(fake))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert said in done.stderr


@needs_rooms
def test_a_task_that_is_wrong_stops_no_other(tmp_path):
    place = write_task(tmp_path / "set", "linked")
    (place / "tests" / "secret").symlink_to("/etc/passwd")
    write_task(tmp_path / "set", "good")
    write_task(tmp_path / "set", "torn", toml="[agent\n")
    done = run(tmp_path, "--format", "json")
    assert done.returncode == 3  # for what was left out
    assert "secret: is a link out of" in done.stderr
    assert "torn/task.toml" in done.stderr
    (group,) = json.loads(done.stdout)["groups"]
    assert group["metrics"]["mean_reward"]["value"] == 1.0


@needs_rooms
def test_a_share_of_the_tasks_is_rounded_up(tmp_path):
    write_dataset(tmp_path / "set", 3)
    (group,) = json.loads(run(tmp_path, "--limit", "0.5", "--format", "json").stdout)["groups"]
    assert group["ledger"]["planned"] == 2


def programs(tmp_path, **scripts):
    """A path that begins with these programs."""
    folder = tmp_path / "programs"
    folder.mkdir(exist_ok=True)
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return f"{folder}:/usr/sbin:/usr/bin:/sbin:/bin"


@needs_rooms
def test_a_run_that_has_begun_keeps_its_environment(tmp_path):
    write_dataset(tmp_path / "set", 1)
    first = run(tmp_path)
    assert "environment: room (Harbor is not installed)\n" in first.stdout
    path = programs(tmp_path, harbor="echo 0.25.0", docker="echo 27.0")
    again = run(tmp_path, PATH=path)
    assert again.returncode == 0, again.stderr
    assert "environment: room (this run was started in it)\n" in again.stdout
    other = run(tmp_path, "--environment", "docker", PATH=path)
    assert other.returncode == 2
    assert (
        "contains a different run: environment: room here, docker requested; expected --environment room, or another"
        in other.stderr
    )


@pytest.mark.parametrize("option", ["--environment", "--registry"])
def test_a_model_has_no_option_of_agents(tmp_path, option):
    wrong = f"{option}: is for agents; expected --agent NAME and a directory of their tasks"
    assert refused("run", sums(tmp_path, 1), "--model", "openai/m", option, "room", cwd=tmp_path) == wrong


@pytest.mark.parametrize("option", [["--agent", "oracle"], []])
def test_an_agent_has_no_dry_run(tmp_path, option):
    write_dataset(tmp_path / "set", 1)
    wrong = "--dry-run: is for questions, not for agents; expected calipers check BENCHMARK"
    assert refused("run", "set", *option, "--dry-run", cwd=tmp_path) == wrong


@pytest.mark.parametrize("agent", [True, False])
@pytest.mark.parametrize(
    "option",
    [
        *("--export=lm_eval", "--write-out", "--show-config", "--check-integrity", "--cache-requests"),
        *("--num-fewshot=3", "--include-path=.", "--load-seeds=1", "--fewshot-seed=1", "--task-metadata={}"),
        "--default-metrics=guide",
    ],
)
def test_an_option_of_lm_eval_tasks_is_refused_before_anything_runs(tmp_path, agent, option):
    write_dataset(tmp_path / "set", 1)
    what = ["set", "--agent", "oracle"] if agent else [sums(tmp_path, 1), "--model", "openai/m"]
    wrong = f"{option.partition('=')[0]}: is for tasks of lm-evaluation-harness, and no benchmark is one; remove it"
    assert refused("run", *what, option, cwd=tmp_path) == wrong


@needs_rooms
def test_who_waits_for_an_agent_is_told_of_its_end(tmp_path):
    write_dataset(tmp_path / "set", 2)
    with hook() as (url, posts):
        done = run(tmp_path, "--agent", "oracle", "--notify", url)
    assert done.returncode == 0, done.stderr
    ((_, _, body),) = posts
    message = json.loads(body)
    assert (message["complete"], len(message["runs"])) == (True, 1)
    assert message["runs"][0]["result"]["groups"][0]["ledger"]["planned"] == 2


@needs_rooms
def test_a_run_without_harbor_is_one_run_for_the_commands_that_read_it(tmp_path):
    """The result in its folder is not another run of the same agent, beside the jobs that it was made from."""
    write_dataset(tmp_path / "set", 2)
    ran = run(tmp_path, "--agent", "nop", "--samples", "2", "--format", "json")
    scored = calipers("score", str(tmp_path / "out"), "--format", "json", cwd=tmp_path)
    assert scored.returncode == 0, scored.stderr
    (group,) = json.loads(scored.stdout)["groups"]
    assert group == json.loads(ran.stdout)["groups"][0]
    assert json.loads((tmp_path / "out" / "identity.json").read_text())["agent"] == "nop"


@needs_rooms
def test_docker_is_named_only_for_tasks_that_it_can_run(tmp_path):
    write_dataset(tmp_path / "set", 1)
    write_task(tmp_path / "set", "gpu", toml="[environment]\ngpus = 1\n")
    write_task(tmp_path / "set", "tpu", toml='[environment.tpu]\ntype = "v5"\n')
    done = run(tmp_path, "--agent", "nop")
    assert "gpu: not run: it needs an accelerator; --environment docker runs it with Harbor\n" in done.stderr
    assert "tpu: not run: it needs an accelerator\n" in done.stderr
