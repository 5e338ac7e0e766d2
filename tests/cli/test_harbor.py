"""``calipers score --dialect harbor`` and ``--export harbor``, as a user runs them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from cli.running import calipers, lines, refused
from harbor_jobs import job

SMALL = Path(__file__).parents[1] / "golden" / "harbor" / "job_small"


@pytest.fixture
def small(tmp_path):
    shutil.copytree(SMALL, tmp_path / "job_small")
    return tmp_path


def test_harbor_s_tables_stand_beneath_ours(small):
    done = calipers("score", "job_small", "--dialect", "harbor", cwd=small)
    assert done.returncode == 0, done.stderr
    ours, theirs = done.stdout.split("\nHarbor's own table\n")
    assert "mean     0.444" in ours
    assert "18 planned (from lock.json) = 17 scored + 1 missing (counted as 0)" in ours
    assert "arith-mini • terminus-2 • coder-1\n" in theirs
    assert "    17           2  0.444   0.667\n" in theirs


def test_and_in_markdown(small):
    done = calipers("score", "job_small", "--dialect", "harbor", "--format", "md", cwd=small)
    assert "### `arith-mini • terminus-2 • coder-1`" in done.stdout


@pytest.mark.parametrize("shape", ["json", "csv"])
def test_but_not_where_a_program_reads(small, shape):
    assert "•" not in calipers("score", "job_small", "--dialect", "harbor", "--format", shape, cwd=small).stdout


def test_the_job_s_own_file_again(small):
    (small / "job_small" / "result.json").unlink()
    done = calipers("score", "job_small", "--export", "harbor", "--format", "csv", cwd=small)
    assert done.returncode == 0, done.stderr
    found = json.loads((small / "job_small" / "result.json").read_text())
    stored = json.loads((SMALL / "result.json").read_text())
    assert found["stats"]["evals"] == stored["stats"]["evals"]  # what else was in it is gone with it
    assert list(found) == list(stored)


def test_it_goes_where_it_is_wanted(small):
    done = calipers("score", "job_small", "--export", "harbor=again.json", cwd=small)
    assert done.returncode == 0, done.stderr
    assert (small / "again.json").read_bytes() == (SMALL / "result.json").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["job_small", "--export", "harbor"], "job_small/result.json: already exists; --force replaces it"),
        (["job_small", "--export", "harbor="], "--export: 'harbor=' has no file name; expected harbor, or harbor=PATH"),
        (
            ["rows.jsonl", "--export", "harbor"],
            "--export harbor: rows.jsonl is not a job; expected the directory of one",
        ),
        (["job_small", "rows.jsonl", "--export", "harbor"], "--export harbor: 2 paths are given; expected the"),
        (
            ["job_small", "--export", "harbor", "--hooks", "a.py:A"],
            "--hooks: they are options of NeMo Gym; add --export",
        ),
        (["job_small", "--dialect", "harbr"], "no dialect named 'harbr'; did you mean 'harbor'?"),
        (["job_small", "--dialect", "harbor", "--metric", "pass_rate"], "no harbor metric named 'pass_rate'; it is a"),
    ],
)
def test_what_cannot_be_done_is_one_line(small, arguments, said):
    lines(small, {"task": "a", "reward": 1}, name="rows.jsonl")
    assert refused("score", *arguments, cwd=small).startswith(said)


def test_a_broken_configuration_is_one_line(tmp_path):
    job(tmp_path / "job", {"rewards": {"reward": 1}}, config={"metrics": [{"type": "maen"}]})
    said = refused("score", "job", "--export", "harbor", cwd=tmp_path)
    assert said == "job/config.json: no Harbor metric named 'maen'; did you mean 'mean'?"


def test_the_word_explained(tmp_path):
    text = calipers("explain", "mean", "--dialect", "harbor", cwd=tmp_path).stdout
    assert "In harbor, mean is Calipers' pooled_mean." in text
    assert "count as 0, as Harbor counts" in calipers("explain", "harbor", cwd=tmp_path).stdout
