"""``calipers leaderboard`` as a user types it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from analyses.leaderboard_rows import problem_rows
from cli.running import ARITH, calipers, lines, refused

NEXT = ARITH.replace("arith.jsonl", "arith_next.jsonl")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("board")
    lines(folder, *problem_rows(tasks=120), name="lcb.jsonl")
    return folder


def test_the_table_stands_in_the_first_lines(home):
    done = calipers("leaderboard", "lcb.jsonl", cwd=home)
    assert (done.returncode, done.stderr) == (0, "")
    page = done.stdout.splitlines()
    assert len(page) == 25
    assert page[4].startswith("tied")


def test_formats_and_the_file_agree(home, tmp_path):
    path = str(tmp_path / "board.json")
    done = calipers("leaderboard", "lcb.jsonl", "--format", "json", "--out", path, cwd=home)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    with open(path, encoding="utf-8") as file:
        assert json.load(file) == document
    rows = csv.DictReader(io.StringIO(calipers("leaderboard", "lcb.jsonl", "--format", "csv", cwd=home).stdout))
    assert [row["model"] for row in rows] == [place["name"] for place in document["boards"][0]["places"]]
    markdown = calipers("leaderboard", "lcb.jsonl", "--format", "md", "--pairs", cwd=home).stdout
    assert markdown.count("\n| `") == 136


def test_two_files_a_baseline_and_a_finished_result(tmp_path):
    assert calipers("score", ARITH, "--out", "result.json", cwd=tmp_path).returncode == 0
    done = calipers("leaderboard", NEXT, ARITH, "result.json", "--baseline", "tiny-calculator", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("arith, 2 models")
    assert "No model is first: the missing rollouts of tiny-calculator, next-calculator decide." in " ".join(
        done.stdout.split()
    )
    assert "+0.110 ~" in done.stdout
    assert "warning: 7 % of the rollouts of next-calculator are missing" in done.stderr.replace("\xa0", " ")
    assert "Not ranked: tiny-calculator: a finished result without its rollouts" in done.stdout


def test_a_metric_of_the_user_that_fails_is_named(home, tmp_path):
    (tmp_path / "mine.py").write_text(
        """from calipers import Metric
from calipers.metrics import mean


def boom(rewards, by):
    raise ValueError("no luck")


BOOM = Metric("boom", boom, mean)
"""
    )
    said = refused("leaderboard", str(home / "lcb.jsonl"), "--metric", "mine.py:BOOM", cwd=tmp_path)
    assert said == "metric 'mine.py:BOOM' failed: ValueError: no luck"


def test_a_folder_of_runs_is_a_set_of_runs(tmp_path):
    for name, file in (("a", ARITH), ("b", NEXT)):
        benchmark = ARITH.removesuffix(".jsonl")
        done = calipers(
            "run", benchmark, "--model", f"replay/{file}", "--samples", "8", "--out", f"runs/{name}", cwd=tmp_path
        )
        assert done.returncode in (0, 3), done.stderr
    done = calipers("leaderboard", "runs", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith("arith, 2 models")
    both = calipers("leaderboard", "runs/b", "runs/a", cwd=tmp_path)
    assert both.stdout == done.stdout


def steps(folder):
    for step, file in enumerate((ARITH, NEXT)):
        (folder / f"step_{step}.jsonl").write_bytes(Path(file).read_bytes())
    return str(folder)


@pytest.mark.parametrize("option", [["--seed", "1"], ["--all"], ["--pairs"], ["--baseline", "m"], ["--missing", "gap"]])
def test_an_option_that_does_not_apply_to_steps_is_refused(tmp_path, option):
    said = refused("leaderboard", steps(tmp_path), "--steps", *option, cwd=tmp_path)
    assert said == f"{option[0]}: cannot be combined with --steps; leave one of them out"


def test_the_best_step_is_in_the_summary_of_a_github_step(tmp_path):
    more = ("--steps", "--format", "github")
    done = calipers("leaderboard", steps(tmp_path), *more, cwd=tmp_path, GITHUB_STEP_SUMMARY=str(tmp_path / "s.md"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "s.md").read_text().strip() == done.stdout.strip()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((ARITH,), "tiny-calculator is the only model; expected two or more (calipers score reports one)"),
        ((ARITH, NEXT, "--metric", "latency_p90"), "metric 'latency_p90' is no mean over tasks; expected one"),
        ((ARITH, NEXT, "--baseline", "tiny"), "no model named 'tiny'; "),
        ((ARITH, ARITH), f"{ARITH}: is given twice"),
        ((ARITH, "gone.jsonl"), "gone.jsonl: no such file"),
        ((ARITH, NEXT, "--columns", "task"), "--columns: 'task' cannot be read"),
        ((ARITH, NEXT, "--confidence", "95"), "confidence is 95.0; expected a number between 0 and 1"),
        ((), "missing argument 'FILE|RUN...'; see calipers leaderboard --help"),
    ],
)
def test_wrong_input_is_one_line(tmp_path, arguments, said):
    assert said in refused("leaderboard", *arguments, cwd=tmp_path)
