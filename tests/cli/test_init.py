"""``calipers init`` as a user runs it."""

from __future__ import annotations

import shutil

import pytest
from cli.running import calipers, refused
from systems.harbor.given import ARITH

from calipers.systems.harbor.manifest import read_manifest


def test_the_command_of_the_metrics_page(tmp_path):
    """In a directory of tasks, the metric is written and listed with its digest."""
    shutil.copytree(ARITH, tmp_path / "d")
    done = calipers("init", "--dataset", "acme/arith", "--with-metric", cwd=tmp_path / "d")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[:4] == [
        "metric.py: written",
        "README.md: written",
        "dataset.toml: written",
        "dataset.toml: acme/add-two is added",
    ]
    found = read_manifest(tmp_path / "d")
    assert (len(found.tasks), [one.path for one in found.files]) == (6, ["metric.py"])
    assert refused("init", "--dataset", "acme/arith", "--with-metric", cwd=tmp_path / "d").startswith(
        "metric.py: already exists; calipers check --fix"
    )


def test_a_task_in_a_new_dataset(tmp_path):
    assert calipers("init", "--dataset", "acme/d", "-o", "new/d", cwd=tmp_path).returncode == 0
    done = calipers("init", "--task", "acme/sum", "-o", "new/d", cwd=tmp_path)
    assert done.stdout == "new/d/sum: written\nnew/d/dataset.toml: acme/sum is added\n"
    assert calipers("check", "new/d", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "nothing to create; expected one of --dataset ORG/NAME and --task ORG/NAME"),
        (["--dataset", "a/b", "--task", "a/c"], "a dataset and a task at once; expected one of --dataset"),
        (["--dataset", "arith"], "--dataset: the name is 'arith'; expected org/name"),
        (["--task", "a/b", "--with-metric"], "--with-metric: a task has no metric; use it with --dataset"),
        (["--task", "a/b", "--param", "x=1"], "--param: is for a benchmark from a table; add --from FILE"),
        (["--dataset", "a/b", "--seed", "1"], "--seed: is for a benchmark from a table; add --from FILE"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path, arguments, said):
    assert refused("init", *arguments, cwd=tmp_path).startswith(said)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            '{"question": "a", "answer": ' + "[" * 900 + "]" * 900 + "}",
            "column 'answer' is nested too deeply; expected",
        ),
        ('{"question": "\\ud800", "answer": "5"}', "a string contains half of a surrogate pair; expected full pairs"),
    ],
)
def test_a_table_that_no_benchmark_can_hold(tmp_path, row, said):
    (tmp_path / "qa.jsonl").write_text(row + "\n")
    done = calipers("init", "b", "--from", "qa.jsonl", "--verifier", "exact_match", cwd=tmp_path)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "b").exists()
