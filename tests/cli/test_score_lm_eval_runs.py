"""``calipers score`` and ``calipers gate`` on runs of lm-evaluation-harness' tasks that are cut off or not scored."""

from __future__ import annotations

import json

import pytest
from cli.running import calipers

TASK = """\
task: sums
dataset_path: json
dataset_kwargs: {data_files: {test: data.jsonl}}
test_split: test
doc_to_text: q
doc_to_target: a
metric_list: [{metric: exact_match}, {metric: bleu}]
"""
MODEL = "def answer(prompt):\n    return str(len(prompt))\n"
TABLE = ("--dialect", "lm_eval", "--format", "md")


@pytest.fixture
def home(tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    rows = [{"q": "x" * size, "a": str(size - size % 2)} for size in range(1, 7)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "sums.yaml").write_text(TASK)
    return tmp_path


def run(home, *more, model="python/model.py:answer", out="out"):
    done = calipers("run", "sums.yaml", "--model", model, "--out", out, *more, cwd=home)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("cut", [b'{"task": "5", "sam', b'{"task": "5"\0\0\0\n', b"\n", b"\xff\xfe"])
def test_a_line_that_a_crash_cut_off_is_not_in_the_table(home, cut):
    run(home)
    whole = calipers("score", "out", *TABLE, cwd=home)
    with (home / "out" / "rollouts.jsonl").open("ab") as log:
        log.write(cut)
    torn = calipers("score", "out", *TABLE, cwd=home)
    assert (torn.returncode, torn.stdout) == (0, whole.stdout), torn.stderr
    assert torn.stderr.count("the last line was cut off by a crash") == (cut != b"\n")  # a blank line is none


def test_a_broken_line_amid_the_log_is_named(home):
    run(home)
    log = home / "out" / "rollouts.jsonl"
    log.write_bytes(log.read_bytes().replace(b'{"task"', b'{"task', 1))
    done = calipers("score", "out", *TABLE, cwd=home)
    assert done.returncode == 2
    assert done.stderr.startswith("out/rollouts.jsonl:1: "), done.stderr


def test_an_unchanged_task_that_was_not_scored_is_not_called_changed(home):
    run(home, "--predict-only")
    done = calipers("score", "out", *TABLE, cwd=home)
    assert done.returncode == 0, done.stderr
    assert "|exact_match|↑  |  0.5|" in done.stdout  # three of six: the table is worked out all the same
    assert "changed after the run" not in done.stderr
    (home / "sums.yaml").write_text(TASK.replace("doc_to_text: q", "doc_to_text: '{{q}}?'"))
    assert "changed after the run" in calipers("score", "out", *TABLE, cwd=home).stderr


def test_a_gate_over_what_was_not_scored_says_what_scores_it(home):
    run(home, "--predict-only")
    gate = ("gate", "out", "--require", "exact_match >= 0.5")
    done = calipers(*gate, cwd=home)
    told = " ".join(done.stdout.split())
    assert done.returncode == 3
    assert "out was run with --predict-only, which scores nothing" in told
    assert "without --predict-only and with --model replay/out/rollouts.jsonl" in told
    run(home, model="replay/out/rollouts.jsonl", out="scored")
    assert calipers("gate", "scored", *gate[2:], cwd=home).returncode == 0


FUNCTIONS = """\
def question(doc):
    return doc["q"]

def results(doc, results):
    return {"right": float(results[0] == doc["a"])}
"""
WITH_FUNCTIONS = TASK.replace("doc_to_text: q", "doc_to_text: !function code.question").replace(
    "metric_list: [{metric: exact_match}, {metric: bleu}]",
    "process_results: !function code.results\nmetric_list: [{metric: right, higher_is_better: true}]",
)


@pytest.mark.parametrize("judged", [True, False])
def test_a_task_with_functions_is_scored_from_its_folder_once_it_is_trusted(home, judged):
    (home / "code.py").write_text(FUNCTIONS)
    (home / "sums.yaml").write_text(WITH_FUNCTIONS)
    run(home, "--trust", *([] if judged else ["--predict-only"]))
    table = calipers("score", "out", *TABLE, "--trust", cwd=home)
    assert (table.returncode, table.stderr.count("changed after the run")) == (0, 0), table.stderr
    assert "|right |↑  |  0.5|" in table.stdout
    told = json.loads(calipers("score", "out", *TABLE[:2], "--format", "json", "--trust", cwd=home).stdout)
    assert told["lm_eval"][0]["tasks"]["sums"]["right,none"]["value"] == 0.5


def test_a_task_with_functions_that_nobody_trusts_is_not_run(home):
    (home / "code.py").write_text(FUNCTIONS)
    (home / "sums.yaml").write_text(WITH_FUNCTIONS)
    run(home, "--trust")  # the run's own word is not the reader's
    (home / "code.py").write_text("raise SystemExit(9)\n")
    table = calipers("score", "out", *TABLE, cwd=home)
    assert (table.returncode, table.stdout) == (2, "")
    assert "sums.yaml:5: doc_to_text: is !function code.question" in table.stderr
    done = calipers("score", "out", *TABLE[:2], "--format", "json", cwd=home)
    assert (done.returncode, "lm_eval" in json.loads(done.stdout)) == (0, False)
    assert "lm-evaluation-harness' own numbers: " in done.stderr
    assert "--trust" in done.stderr
