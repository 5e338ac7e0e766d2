"""Selectors over repeats are checked against the actual number of samples before any request."""

from __future__ import annotations

import json

import pytest
from cli.running import calipers, refused
from systems.lm_eval.tasks.given import TASK, task_folder

MODEL = """
calls = open("calls.txt", "a")

def answer(prompt):
    calls.write("x"); calls.flush()
    return "a" + prompt[4]
"""
THREE = """\
repeats: 3
filter_list:
  - name: maj
    filter: [{function: take_first_k, k: 3}, {function: majority_vote}, {function: take_first}]
"""
RUN = ("run", "task.yaml", "--model", "python/model.py:answer", "--format", "json", "--export", "lm_eval=theirs")


@pytest.fixture
def home(tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    task_folder(tmp_path, TASK + THREE)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "samples", "said"),
    [
        (TASK + THREE, "2", "task.yaml:11: filter_list[0]: take_first_k takes 3 of 2 responses; expected repeats: 3"),
        (
            TASK.replace("exact_match", "exact_match\n    reduction: pass_at_k\n    k: 3") + "repeats: 3\n",
            "2",
            "task.yaml:8: metric_list: k is 3, but repeats is 2; expected repeats: 3 or more",
        ),
    ],
)
def test_too_few_samples_are_refused_before_any_call(home, text, samples, said):
    (home / "task.yaml").write_text(text)
    assert refused(*RUN, "--samples", samples, cwd=home).startswith(said)
    assert not (home / "calls.txt").exists()


@pytest.mark.parametrize(("repeats", "samples"), [("3", []), ("3", ["--samples", "5"]), ("1", ["--samples", "3"])])
def test_enough_samples_whoever_asks_for_them(home, repeats, samples):
    (home / "task.yaml").write_text(TASK + THREE.replace("repeats: 3", f"repeats: {repeats}"))
    done = calipers(*RUN, *samples, cwd=home)
    assert done.returncode == 0, done.stderr
    [results] = (home / "theirs").rglob("results_*.json")
    assert json.loads(results.read_text())["results"]["made"]["exact_match,maj"] == 1.0
    taken = int((samples or ["", repeats])[1])
    assert (home / "calls.txt").stat().st_size == 6 * taken
    [group] = json.loads(done.stdout)["groups"]
    assert group["ledger"]["outcomes"] == {"scored": 6 * taken}


SOMETIMES = """
seen = {}

def answer(prompt):
    number = int(prompt[4])
    seen[number] = seen.get(number, 0) + 1
    return f"a{number}" if seen[number] <= number % 5 else "no"  # right as often as its number says
"""


@pytest.mark.parametrize(
    ("reduction", "expected"),
    [
        ("reduction: mean", {"exact_match,none": (0 + 1 + 2 + 3 + 4 + 0) / 24}),
        (
            "reduction: pass_at_k, k: [1, 2]",
            {"pass@1(exact_match),none": 10 / 24, "pass@2(exact_match),none": (0 + 3 / 6 + 5 / 6 + 1 + 1 + 0) / 6},
        ),
        ("reduction: pass_at_k, k: 4", {"pass@4(exact_match),none": 4 / 6}),
        ("reduction: take_first", {"exact_match,none": 4 / 6}),
        ("reduction: majority", {"exact_match,none": 3 / 6}),  # of two that are equal the first
    ],
)
def test_a_reduction_needs_no_filter_list(home, reduction, expected):
    (home / "model.py").write_text(SOMETIMES)
    entry = f"  - {{metric: exact_match, {reduction}}}\n  - {{metric: bleu}}\n"
    (home / "task.yaml").write_text(TASK.replace("  - metric: exact_match\n", entry) + "repeats: 4\n")
    done = calipers(*RUN, "--concurrency", "1", cwd=home)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["lm_eval"][0]["tasks"]["made"]
    assert {key: found[key]["value"] for key in expected} == pytest.approx(expected)
    assert set(found) == {*expected, "bleu,none"}


def test_numbers_that_cannot_be_made_are_no_success(home):
    (home / "utils.py").write_text("def broken(reference, scores):\n    raise ValueError('no')\n")
    entry = "{metric: exact_match, reduction: !function utils.broken}"
    (home / "task.yaml").write_text(TASK.replace("metric: exact_match", entry) + "repeats: 2\n")
    done = calipers(*RUN, "--trust", cwd=home)
    assert done.returncode == 3
    assert "own numbers: " in done.stderr
    assert "the reduction of 'exact_match' failed: ValueError: no" in done.stderr


@pytest.mark.parametrize("k", ["3", "[1, 3]"])
def test_a_k_beyond_the_repeats_is_said_before_any_call_and_by_check(home, k):
    entry = f"{{metric: exact_match, reduction: pass_at_k, k: {k}}}"
    (home / "task.yaml").write_text(TASK.replace("metric: exact_match", entry) + "repeats: 2\n")
    said = "task.yaml:8: metric_list: k is 3, but repeats is 2; expected repeats: 3 or more"
    assert refused(*RUN, cwd=home) == said
    assert refused("check", "task.yaml", cwd=home) == said
    assert not (home / "calls.txt").exists()


def test_more_samples_go_on_with_the_same_run(home):
    (home / "task.yaml").write_text(TASK + "repeats: 1\n")
    for samples in ("1", "2"):
        assert calipers(*RUN, "--samples", samples, "--out", "one", cwd=home).returncode == 0
    assert (home / "calls.txt").stat().st_size == 12  # the first six were not asked again
