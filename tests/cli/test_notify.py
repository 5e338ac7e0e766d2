"""``calipers run --notify`` as a user types it, and notes that are printed once."""

from __future__ import annotations

import json
import signal
from importlib.resources import files

import pytest
from cli.running import ARITH, begun, calipers, on_a_full_disk
from running.loopback import hook
from running.scene import MODEL, served, sums, weather
from waiting import PATIENCE, until, until_lines

BENCH = str(files("calipers") / "examples" / "arith")
TWO = "question,answer\nWhat is the capital of Norway?,Oslo\nWhat is the capital of Peru?,Lima\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "qa.csv").write_text(TWO)
    for name in ("a", "b"):
        (tmp_path / f"{name}.py").write_text("def m(prompt, **_):\n    return 'Oslo'\n")
    return tmp_path


def test_a_command_that_fails_is_a_note_and_the_exit_code_stays(folder):
    done = calipers("run", "qa.csv", "--model", "python/a.py:m", "--notify", "no-such-program x", cwd=folder)
    assert done.returncode == 0
    assert done.stderr.splitlines()[-1] == "note: --notify no-such-program: cannot be run (No such file or directory)"
    with hook(500) as (url, posts):
        failed = calipers("run", BENCH, "--model", f"replay/{ARITH}", "--notify", url, cwd=folder)
    assert failed.returncode == 3  # as without it
    assert failed.stderr.count("note: --notify") == 1
    assert json.loads(posts[0][2])["complete"] is False


def test_one_message_has_all_runs_of_the_command_and_no_texts(folder):
    models = ("--model", "python/a.py:m", "--model", "python/b.py:m")
    with hook() as (url, posts):
        by = ("--by", "prompt", "--by", "completion", "--metadata", "answer", "--by", "answer")
        done = calipers("run", "qa.csv", *models, *by, "--notify", url, "--notify", url, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "note: --notify" not in done.stderr
    assert len(posts) == 2  # given twice
    message = json.loads(posts[0][2])
    assert (message["complete"], len(message["runs"])) == (True, 2)
    for run in message["runs"]:
        kept = json.loads((folder / run["folder"] / "result.json").read_text())
        assert run["result"]["digest"] == kept["digest"]
        assert run["result"]["groups"][0]["metrics"] == kept["groups"][0]["metrics"]
    assert "Norway" not in posts[0][2].decode()
    assert "Oslo" not in posts[0][2].decode()


def test_a_run_that_was_interrupted_is_told_too(tmp_path):
    sums(tmp_path, 100)
    with weather("--hold", "8") as url, hook() as (target, posts):
        command = ("run", "sums", "--model", MODEL, "--base-url", url, "--concurrency", "4", "--notify", target)
        running = begun(*command, "--out", "r", cwd=tmp_path)
        until_lines(tmp_path / "r" / "rollouts.jsonl", 8)
        until(lambda: served(url)["calls"] == 12, "what is in flight")
        running.send_signal(signal.SIGINT)
        served(url, "/go")
        _, errors = running.communicate(timeout=PATIENCE)
    assert running.returncode == 3, errors
    message = json.loads(posts[0][2])
    assert (message["complete"], message["runs"][0]["complete"]) == (False, False)
    assert "not_run" in message["runs"][0]["result"]["groups"][0]["ledger"]["outcomes"]


def test_a_full_disk_is_told_too(tmp_path):
    sums(tmp_path, 400)
    with weather() as url, hook() as (target, posts):
        command = ("run", "sums", "--model", MODEL, "--base-url", url, "--notify", target, "--out", "r")
        done = on_a_full_disk(*command, cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert [(json.loads(body)["complete"], json.loads(body)["runs"]) for _, _, body in posts] == [(False, [])]


def test_who_waits_is_told_though_nobody_reads_the_page(folder):
    with hook() as (url, posts):
        command = ("run", "qa.csv", "--model", "python/a.py:m", "--notify", url)
        running = begun(*command, cwd=folder)
        running.stdout.close()
        running.stderr.read()
        running.wait(PATIENCE)
        running.stderr.close()
    assert running.returncode == 141
    assert json.loads(posts[0][2])["complete"] is True


@pytest.mark.parametrize(
    "arguments",
    [
        ("nowhere.csv", "--model", "python/a.py:m"),
        ("qa.csv", "--model", "python/a.py:m", "--metric", "pas@1"),
        ("qa.csv", "nowhere.csv", "--model", "python/no.py:m"),
        ("qa.csv", "--model", MODEL, "--base-url", "http://127.0.0.1:9/v1", "--retries", "0"),
    ],
)
def test_nobody_is_told_of_wrong_input(folder, arguments):
    with hook() as (url, posts):
        done = calipers("run", *arguments, "--notify", url, cwd=folder)
    assert done.returncode == 2, done.stderr
    assert posts == []


def test_a_dry_run_tells_nobody_but_reads_the_option(folder):
    with hook() as (url, posts):
        assert calipers("run", "qa.csv", "--dry-run", "--notify", url, cwd=folder).returncode == 0
    assert posts == []
    wrong = calipers("run", "qa.csv", "--dry-run", "--notify", "http://me:pw@127.0.0.1/", cwd=folder)
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)


def test_a_note_is_printed_once_in_a_command(folder):
    """Several models with the same notes on settings and questions print each note once."""
    models = ("--model", "python/a.py:m", "--model", "python/b.py:m")
    done = calipers("run", "qa.csv", *models, "--samples", "3", "--temperature", "0", cwd=folder)
    notes = [line for line in done.stderr.splitlines() if line.startswith("note: ")]
    assert any("3 samples at temperature 0" in note for note in notes)
    assert len(notes) == len(set(notes)), notes
    again = calipers("run", "qa.csv", *models, "--samples", "3", "--temperature", "0", cwd=folder)
    assert "note: 3 samples at temperature 0" in again.stderr  # the next command says it again
