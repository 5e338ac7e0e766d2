from __future__ import annotations

import hashlib
import json
from datetime import date

import numpy as np
import pytest

from calipers.systems.lm_eval.write import file_text, hashes, line_text, results_object, sample_row, task_hash, task_row


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()


def test_hashes_are_of_indented_json_unescaped():
    found = hashes({"q": "café", "when": date(2026, 1, 2)}, "Q: café", ["a", "b"])
    assert found["doc_hash"] == sha('{\n  "q": "café",\n  "when": "2026-01-02"\n}')
    assert found["prompt_hash"] == sha("Q: café")
    assert found["target_hash"] == sha("['a', 'b']")


def test_an_object_is_written_and_hashed_without_its_address():
    def f():
        return 1

    assert json.loads(line_text({"doc": {"f": f}}))["doc"]["f"].endswith(".f>")
    assert " at 0x" not in file_text({"f": f, "o": object()})
    assert hashes({"f": object()}, "", "") == hashes({"f": object()}, "", "")
    assert json.loads(line_text({"doc": "<function f at 0x7f00>"}))["doc"] == "<function f at 0x7f00>"  # a text stays


def test_a_samples_line():
    resps = [[(-2.5, True)], [(-1.0, False)]]
    scores = {"acc": 1.0, "brier_score": (0, [0.19422300717, 0.80577699282])}
    row = sample_row(
        3, {"q": "é"}, 0, [("ctx", " a"), ("ctx", " b")], resps, [(-2.5, True), (-1.0, False)], "none", scores
    )
    assert list(row) == [
        *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
        *("doc_hash", "prompt_hash", "target_hash", "acc", "brier_score"),
    ]
    assert row["arguments"]["gen_args_1"] == {"arg_0": "ctx", "arg_1": " b"}
    assert row["resps"] == [[["-2.5", "True"]], [["-1.0", "False"]]]  # every leaf as text
    assert row["filtered_resps"] == [["-2.5", "True"], ["-1.0", "False"]]
    assert row["brier_score"] == (0, "[0.19422301 0.80577699]")  # as numpy prints it
    assert json.loads(line_text(row))["doc"] == {"q": "é"}
    assert task_hash([row, row]) == sha((row["doc_hash"] + row["prompt_hash"] + row["target_hash"]) * 2)


def test_a_results_object_is_in_lm_evals_order():
    row = task_row("t", None, 4, {"acc,none": 0.5, "acc_stderr,none": None})
    found = results_object(config={}, n_shot={"b": 0, "a": 5}, results={"t": row}, groups={})
    assert list(found) == ["results", "n-shot", "config"]  # no groups where none adds up
    assert list(found["n-shot"]) == ["a", "b"]
    assert found["results"]["t"] == {
        "name": "t",
        "alias": "t",
        "sample_len": 4,
        "acc,none": 0.5,
        "acc_stderr,none": "N/A",
    }


@pytest.mark.parametrize(
    ("value", "expected"), [({1}, [1]), (np.float64(0.5), 0.5), (np.int64(3), 3), (len, str(len)), (float("nan"), None)]
)
def test_what_json_has_no_word_for(value, expected):
    text = file_text({"x": value})
    if expected is None:
        assert "NaN" in text  # bare, as Python writes it
    else:
        assert json.loads(text) == {"x": expected}
