"""``calipers check`` as a user runs it."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest
from cli.running import calipers, lines, refused
from cli.test_rescore import task


def test_a_benchmark_that_is_right(tmp_path):
    lines(tmp_path, {**task("a", "4"), "dificulty": 1}, task("b", "5", "contains"), name="suite.jsonl")
    done = calipers("check", "suite.jsonl", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "suite: 2 tasks, verified by exact_match 1, contains 1\n")
    assert done.stderr.startswith("note: suite.jsonl:1: 1 row has the field 'dificulty', which is ignored")


def test_verifiers_that_can_be_trusted(tmp_path):
    lines(tmp_path, *(task(f"{i}", f"n{i}") for i in range(8)), name="suite.jsonl")
    done = calipers("check", "suite.jsonl", "--selftest", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[2:5] == [
        "verifier     answer     tasks  wrong                          95 % interval",
        "exact_match  gold           8      0  0.0000 false negatives  [0.0000, 0.3244]",
        "exact_match  empty          8      0  0.0000 false positives  [0.0000, 0.3244]",
    ]
    assert done.stdout.endswith("\nclean: all verdicts are right\n")


def test_verifiers_that_cannot(tmp_path):
    told = {**task("a", "Four", "contains"), "instruction": "Four or five?"}  # the question holds the answer
    lines(tmp_path, told, task("b", "!!!", "contains"), name="suite.jsonl")
    done = calipers("check", "suite.jsonl", "--selftest", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-2:] == ["contains: echo answer passes: a", "1 of 5 probes found wrong verdicts"]
    done = calipers("check", "suite.jsonl", "--selftest", "--format", "json", "--limit", "1", cwd=tmp_path)
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert found["tasks"] == 1
    echo = next(probe for probe in found["selftest"]["probes"] if probe["what"] == "echo")
    assert (echo["wrong"], echo["share"], echo["interval"]) == (["a"], 1.0, None)  # one task says nothing about others
    assert echo["why"]


@pytest.mark.parametrize(
    ("row", "arguments", "said"),
    [
        (task("a", None, "contains"), [], "task 'a': target is None; contains needs a text to look for"),
        (task("a", "4", "exct_match"), [], "task 'a': no verifier named 'exct_match'; did you mean 'exact_match'"),
        ({"task_id": "a"}, [], "suite.jsonl:1: "),
        (task("a", "4"), ["--limit", "0"], "--limit: is 0; expected an integer >= 1"),
        (task("a", "4"), ["--confidence", "95"], "--confidence: is 95; expected a number between 0 and 1"),
        (task("a", "4"), ["--concurrency", "0"], "--concurrency: is 0; expected an integer >= 1"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path, row, arguments, said):
    lines(tmp_path, row, name="suite.jsonl")
    assert refused("check", "suite.jsonl", "--selftest", *arguments, cwd=tmp_path).startswith(said)


@pytest.mark.parametrize("option", [["--seed", "1"], ["--concurrency", "2"], ["--confidence", "0.9"]])
def test_an_option_of_the_self_test_needs_it(tmp_path, option):
    lines(tmp_path, task("a", "4"), name="suite.jsonl")
    said = refused("check", "suite.jsonl", *option, cwd=tmp_path)
    assert said == f"{option[0]}: is for the self-test; add --selftest"


def test_no_benchmark_at_all(tmp_path):
    assert refused("check", "nowhere", cwd=tmp_path).startswith("no benchmark named 'nowhere' in this project")


def test_the_bundled_benchmark_passes_its_own_test(tmp_path):
    done = calipers("check", str(files("calipers") / "examples" / "arith"), "--selftest", cwd=tmp_path)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("option", [["--selftest"], ["--limit", "1"]])
def test_an_option_that_a_task_of_lm_eval_does_not_have_is_refused(tmp_path, option):
    said = refused("check", "task.yaml", *option, cwd=tmp_path)
    assert said.startswith(f"{option[0]}: task.yaml is a task of lm-evaluation-harness; remove it")


def test_a_task_of_lm_eval_as_json(tmp_path):
    (tmp_path / "docs.jsonl").write_text('{"q": "1 + 1 =", "a": "2"}\n' * 3)
    (tmp_path / "sums.yaml").write_text(
        "task: sums\ndataset_path: json\ndataset_kwargs: {data_files: {test: docs.jsonl}}\ntest_split: test\n"
        "output_type: generate_until\ndoc_to_text: '{{q}}'\ndoc_to_target: '{{a}}'\n"
        "metric_list: [{metric: exact_match}]\n"
    )
    lines = calipers("check", "sums.yaml", cwd=tmp_path).stdout
    assert lines == "sums: generate_until, 3 documents, 1 repeat, 0 examples\n"
    document = json.loads(calipers("check", "sums.yaml", "--format", "json", cwd=tmp_path).stdout)
    sizes = {"output_type": "generate_until", "documents": 3, "repeats": 1, "examples": 0}
    assert document == {"benchmark": "sums.yaml", "tasks": [{"task": "sums", **sizes, "notes": []}]}
