"""Numbers of lm-evaluation-harness' table in requirements: as values, and as differences from a baseline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from analyses.compare.tables import home, ran
from cli.inside import inside  # noqa: F401

pytest.importorskip("sacrebleu", reason="sacrebleu comes with calipers[text]")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with two runs of two tasks: said-before, said-after, roll-Before, roll-After."""
    made = home(tmp_path_factory.mktemp("gates"))
    for task, model in (("said", "before"), ("said", "after"), ("roll", "Before"), ("roll", "After")):
        ran(made, task, model)
    return made


@pytest.fixture
def gate(inside, folder):  # noqa: F811
    def held(path, *required, options=()):
        asked = [part for text in required for part in ("--require", text)]
        done = inside("gate", path, *asked, *options, "--format", "json", cwd=folder)
        return done.returncode, json.loads(done.stdout)["checks"] if done.stdout else done.stderr

    return held


def told(folder, run, task):
    return json.loads((folder / run / "result.json").read_text())["lm_eval"][0]["tasks"][task]


@pytest.mark.parametrize(
    ("run", "required", "key"),
    [
        ("said-after", "bleu >= 1", "bleu,none"),
        ("said-after", "ter,none <= 99", "ter,none"),
        ("said-after", "exact_match >= 0", "exact_match,none"),
        ("roll-After", "word_perplexity >= 1", "word_perplexity,none"),
    ],
)
def test_a_run_and_its_result_give_one_answer(gate, folder, run, required, key):
    """Computed from the document table or read from result.json: the same value and interval."""
    expected = told(folder, run, run.partition("-")[0])[key]
    for path in (run, f"{run}/result.json"):
        code, (check,) = gate(path, required)
        assert code == 0
        assert check["value"] == pytest.approx(expected["value"])
        assert check["interval"] == pytest.approx(expected["interval"])
        assert check["tasks"] == 40


@pytest.mark.parametrize(
    ("required", "code"),
    [
        (["delta(bleu) >= 0"], 0),
        (["lower(delta(bleu)) >= 0"], 0),
        (["upper(delta(ter)) <= 0"], 0),  # a lower one is better, and it has been shown to be lower
        (["delta(ter) >= 0"], 1),
        (["lower(delta(bleu)) >= 0", "delta(mean_reward) >= 0", "bleu >= 99"], 1),
        (["lower(delta(exact_match,none)) >= 0"], 0),
    ],
)
def test_a_difference_is_paired_on_documents(gate, required, code):
    assert gate("said-after", *required, options=("--baseline", "said-before"))[0] == code


def test_two_finished_results_have_a_plain_difference(gate, folder):
    code, (check,) = gate(
        "said-after/result.json", "delta(ter) <= 0", options=("--baseline", "said-before/result.json")
    )
    values = [told(folder, run, "said")["ter,none"]["value"] for run in ("said-before", "said-after")]
    assert (code, check["interval"]) == (0, None)
    assert check["value"] == pytest.approx(values[1] - values[0])
    assert check["remark"] == "two finished results are not paired, so their difference has no interval"


@pytest.mark.parametrize(
    ("required", "said"),
    [
        ("ter >= 1", "lower is better for ter, but this asks for the opposite"),
        ("bleu <= 99.5", "higher is better for bleu, but this asks for the opposite"),
        ("ter <= 99", None),
        ("bleu == 3", None),
    ],
)
def test_who_asks_for_the_worse_end_is_told(gate, required, said):
    assert gate("said-after", required)[1][0]["remark"] == said


@pytest.mark.parametrize(
    ("required", "said"),
    [
        ("blue >= 1", "no metric in said-after named 'blue'; did you mean 'bleu'?"),
        ("perplexity <= 9", "no metric in said-after named 'perplexity'"),
    ],
)
def test_a_name_that_no_table_has(gate, required, said):
    code, error = gate("said-after", required)
    assert code == 2
    assert said in error


def test_a_baseline_without_the_number_is_refused(gate):
    code, error = gate("said-after", "delta(bleu) >= 0", options=("--baseline", "roll-After"))
    assert code == 2
    assert "metric 'bleu': only python/" in error


def test_without_what_documents_keep_there_is_no_answer(gate, folder):
    path = folder / "said-after" / "documents.jsonl"
    text = path.read_bytes()
    path.unlink()
    try:
        code, (check,) = gate("said-after", "bleu >= 1")
    finally:
        path.write_bytes(text)
    assert (code, check["word"]) == (3, "undefined")
    assert "said-after/documents.jsonl does not exist" in check["why"]


def test_the_group_that_has_it_is_to_be_picked(gate, folder):
    """A result of two tasks: BLEU is a number of one of them."""
    both = [json.loads((folder / run / "result.json").read_text()) for run in ("said-after", "roll-After")]
    whole = {
        **both[0],
        "groups": [*both[0]["groups"], *both[1]["groups"]],
        "lm_eval": [*both[0]["lm_eval"], *both[1]["lm_eval"]],
    }
    (folder / "whole.json").write_text(json.dumps(whole))
    code, error = gate("whole.json", "bleu >= 1")
    assert (code, "has no bleu, but said" in error) == (2, True)
    assert gate("whole.json", "bleu >= 1", options=("--dataset", "said"))[0] == 0


def test_a_policy_names_them_too(inside, folder):  # noqa: F811
    Path(folder / "policy.yaml").write_text(
        """
results:
  text: {path: said-after, baseline: said-before}
  odds: {path: roll-After, baseline: roll-Before}
critical:
  - {require: lower(delta(bleu)) >= 0, of: text}
  - {require: "upper(delta(word_perplexity)) <= 0", of: odds}
supporting:
  - {require: "ter <= 60", of: text}
"""
    )
    done = inside("gate", "--policy", "policy.yaml", cwd=folder)
    assert done.returncode == 0, done.stdout
    assert "Passed: 3 of 3 rules." in done.stdout


def test_a_slice_has_a_difference_and_no_value(gate):
    code, (check,) = gate("said-after", "bleu[doc_id=0] >= 1")
    assert (code, check["why"]) == (3, "no value: bleu has no value in a slice, only delta(bleu[...])")
