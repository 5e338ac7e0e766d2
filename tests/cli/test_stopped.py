"""Commands on the folder of a run that --until stopped, as a user types them."""

from __future__ import annotations

import json

import pytest
from cli.running import calipers
from running.scene import sums
from running.stopping import TASKS, model


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    sums(folder, TASKS)
    (folder / "slow").touch()
    spec, rule = model(folder, 0.4), "upper(pass@1) < 0.6"
    done = calipers("run", "sums", "--model", spec, "--until", rule, "--concurrency", "4", "--out", "run", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "not run (stopped early), none missing" in done.stdout.replace("\n  ", " ")
    (folder / "slow").unlink()
    return folder


def on_one_line(done):
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


def test_a_page_names_the_rule_and_the_direction_of_the_bias(home):
    page = on_one_line(calipers("score", "run", "--metric", "pass@1", cwd=home))
    assert "stopped early by --until 'upper(pass@1) < 0.6': the value of pass@1" in page
    assert "is too low on average" in page
    markdown = on_one_line(calipers("score", "run", "--metric", "pass@1", "--format", "md", cwd=home))
    assert "is too low on average" in markdown
    assert "unbiased" not in page + markdown


def test_gates_on_the_folder_and_on_its_result_have_one_answer(home):
    said = json.loads((home / "run" / "result.json").read_text())
    high = said["groups"][0]["metrics"]["pass@1"]["interval"][1]
    for bound, code in ((high - 0.01, 1), (high + 0.01, 0)):
        for path in ("run", "run/result.json"):
            done = calipers("gate", path, "--require", f"upper(pass@1) < {bound}", "--max-gaps", "0", cwd=home)
            assert done.returncode == code, (path, bound, done.stdout)
            assert "is too low on average" in done.stderr


@pytest.mark.parametrize("command", [("curve", "run"), ("items", "run"), ("plan", "run", "--detect", "0.1")])
def test_every_other_reader_says_that_the_run_was_stopped(home, command):
    done = calipers(*command, cwd=home)
    assert done.returncode == 0, done.stderr
    assert "--until 'upper(pass@1) < 0.6' stopped the run after" in " ".join((done.stdout + done.stderr).split())


def test_a_leaderboard_ranks_the_others_and_says_why(home):
    for name, share in (("half", 0.5), ("most", 0.9)):
        spec = model(home, share, f"{name}.py")
        done = calipers("run", "sums", "--model", spec, "--limit", "60", "--out", f"whole/{name}", cwd=home)
        assert done.returncode == 0, done.stderr
    done = calipers("leaderboard", "run", "whole", cwd=home)
    page = on_one_line(done)
    assert page.startswith("sums, 2 models")
    assert "y:answer is first of 2" in page
    assert "Not ranked: " in page
    assert "its results stopped the run, so a rank over a fixed number of tasks is not valid." in page
    places = json.loads(calipers("leaderboard", "run", "whole", "--format", "json", cwd=home).stdout)["boards"][0][
        "places"
    ]
    assert [place["place"] for place in places] == [1, 2, None]
    alone = on_one_line(calipers("leaderboard", "run", "whole/half", cwd=home))
    assert "No model is ranked: " in alone
