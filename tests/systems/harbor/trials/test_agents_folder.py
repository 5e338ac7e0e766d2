"""Runs of agents with the same model name on two servers are two runs, each with its own folder.

Harbor is replaced by a program that sends a request to the configured server and writes a job in Harbor's form.
"""

import json
import sys
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import pytest
from cli.running import calipers
from harbor_datasets import write_dataset
from running.loopback import served
from systems.harbor.made import write

from calipers.errors import InputError
from calipers.running.folder import folder_name
from calipers.systems.harbor.trials.run import IDENTITY, agent_endpoint, check_folder, find_folder, keep_identity

HARBOR = """
import json, os, sys, urllib.request
from pathlib import Path
from systems.harbor.made import job, result, write

config = json.loads(Path(sys.argv[sys.argv.index("-c") + 1]).read_text())
server = config["agents"][0]["kwargs"].get("server") or os.environ["OPENAI_BASE_URL"]
place = Path(config["jobs_dir"], config["job_name"])
tasks = sorted(one.name for one in Path(config["datasets"][0]["path"]).iterdir())
trials = []
for task in tasks:
    for number in range(config["n_attempts"]):
        reward = float(urllib.request.urlopen(server).read())
        trials.append(result(f"{task}__{place.name}{number}", {"reward": reward}))
job(place, *trials, locked=dict.fromkeys(tasks, config["n_attempts"]), finished_at="2026-01-01T00:00:00Z")
write(place / "config.json", config)
"""


@contextmanager
def server(reward):
    """A server that replies with a reward for each answer, and counts its requests."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(str(reward).encode())

        def log_message(self, *_):
            pass

    asked = []
    with served(Handler) as url:
        yield url, asked


@pytest.fixture
def run(tmp_path):
    (tmp_path / "harbor.py").write_text(HARBOR)
    program = tmp_path / "harbor"
    path = ":".join(place for place in sys.path if place)
    version = '[ "$1" = --version ] && exec echo 0.25.0'
    program.write_text(f'#!/bin/sh\n{version}\nPYTHONPATH={path} exec {sys.executable} {tmp_path}/harbor.py "$@"\n')
    program.chmod(0o755)
    write_dataset(tmp_path / "set", 2)

    def asked(*more, **environment):
        return calipers(
            *("run", "set", "--agent", "chat", "--model", "openai/m", "--environment", "docker", *more),
            *("--format", "json"),
            cwd=tmp_path,
            CALIPERS_HARBOR=str(program),
            **{"OPENAI_BASE_URL": "", **environment},
        )

    return asked


def number(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["groups"][0]["metrics"]["mean_reward"]["value"]


def test_two_servers_are_two_folders_and_two_numbers(tmp_path, run):
    with server(1.0) as (one, first), server(0.25) as (two, second):
        assert number(run("--base-url", one)) == 1.0
        done = run("--base-url", two)
        assert number(done) == 0.25
        assert "starting a new run, because runs/set-chat-openai_m-" in done.stderr
        assert f"(endpoint: {one} there, {two} requested)" in done.stderr
        assert (len(first), len(second)) == (2, 2)
        again = run("--base-url", one)  # each is found again
        assert (number(again), "starting a new run" in again.stderr) == (1.0, False)
        assert number(run(OPENAI_BASE_URL=f"{two}/")) == 0.25  # named in another way, and the same
        assert (len(first), len(second)) == (2, 2)
        assert number(run("--base-url", one, "--samples", "2")) == 1.0
        assert (len(first), len(second)) == (4, 2)
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_a_folder_that_was_named_is_not_shared(tmp_path, run):
    with server(1.0) as (one, _), server(0.25) as (two, second):
        number(run("--base-url", one, "--out", "here"))
        done = run("--base-url", two, "--out", "here")
        assert (done.returncode, second) == (2, [])
        assert (
            f"here: contains a different run: endpoint: {one} here, {two} requested; choose another --out"
        ) in done.stderr


def test_keys_in_a_url_are_never_written(tmp_path, run):
    for url, said in (
        ("http://me:hunter2@127.0.0.1:9/v1", "the URL contains a user name or a password"),
        ("http://127.0.0.1:9/v1?api-key=hunter2", "the URL contains a key, which Harbor would write to its files"),
    ):
        done = run("--base-url", url)
        assert done.returncode == 2
        assert said in done.stderr
        assert "hunter2" not in done.stdout + done.stderr
    assert not (tmp_path / "runs").exists()
    with server(1.0) as (one, _):
        number(run(OPENAI_BASE_URL=f"{one}?api-key=hunter2"))
    held = [path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert not any(b"hunter2" in one for one in held)


ASKED = {"agent": "chat", "model": "m", "environment": "docker", "dataset": {"path": "/set"}, "sampling": {}}


@pytest.mark.parametrize("server", ["http://a/v1", None])
def test_a_folder_of_an_earlier_version_goes_on_where_its_server_is_the_one_asked_for(tmp_path, server):
    earlier = tmp_path / folder_name("set", "chat-m", ASKED)
    kwargs = {"server": "http://me:hunter2@a/v1/"} if server else {}
    write(earlier / "1" / "config.json", {"agents": [{"kwargs": kwargs}]})
    same, other = ({**ASKED, "endpoint": url} for url in ("http://a/v1", "http://b/v1"))
    if server:
        assert find_folder(tmp_path, "set", "chat-m", same) == (earlier, [])
        keep_identity(earlier, same)  # as a run does that goes on there
        assert find_folder(tmp_path, "set", "chat-m", same) == (earlier, [])
        assert "hunter2" not in (earlier / IDENTITY).read_text()
    folder, (note,) = find_folder(tmp_path, "set", "chat-m", other)
    there = f"endpoint: {server} there" if server else "endpoint: not recorded there"
    assert folder != earlier
    assert note == f"{folder}: starting a new run, because {earlier} differs ({there}, http://b/v1 requested)"


def test_a_run_that_differs_in_more_is_not_told_of(tmp_path):
    keep_identity_in = tmp_path / folder_name("set", "chat-m", {**ASKED, "endpoint": "http://a/v1"})
    keep_identity_in.mkdir()
    keep_identity(keep_identity_in, {**ASKED, "endpoint": "http://a/v1"})
    warmer = {**ASKED, "sampling": {"temperature": 1.0}, "endpoint": "http://b/v1"}
    assert find_folder(tmp_path, "set", "chat-m", warmer)[1] == []


def test_the_server_of_an_agent_is_what_it_asks(monkeypatch):
    for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    assert agent_endpoint("oracle", None, None) is None
    assert agent_endpoint("chat", "m", None) == "https://api.openai.com/v1"
    assert agent_endpoint("claude-code", "anthropic/c", None) is None
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "https://me:hunter2@gateway/")
    assert agent_endpoint("claude-code", "anthropic/c", None) == "https://gateway"


def test_a_folder_whose_server_nobody_knows_goes_on(tmp_path):
    check_folder(tmp_path, {**ASKED, "endpoint": "http://a/v1"})
    keep_identity(tmp_path, {**ASKED, "endpoint": "http://a/v1"})
    with pytest.raises(InputError, match="contains a different run: endpoint: http://a/v1 here, nothing requested"):
        check_folder(tmp_path, ASKED)
