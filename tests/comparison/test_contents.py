"""Texts out of records of every system."""

from __future__ import annotations

import gzip
import json

import pytest
from comparison.writing import put

from calipers.comparison.contents import contents, spoken
from calipers.readers.read import read

NAMELESS = (None, None, None)


def said(path, *wanted, columns=None):
    rollouts, inputs = read([str(path)], columns=columns or {})
    (found,) = contents(inputs, rollouts.keys, columns or {}, {rollouts.keys[0]: wanted}).values()
    return found


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("42", "42"),
        (42, "42"),
        (None, None),
        (["a", "b"], "b"),
        ([{"role": "assistant", "content": "yes"}, {"role": "tool", "content": None}], "yes"),
        ({"output": [{"content": [{"type": "output_text", "text": "done"}]}]}, "done"),
        ({"other": 1}, None),
    ],
)
def test_what_a_value_says(value, text):
    assert spoken(value) == text


def test_the_first_sample_answers_for_a_task(tmp_path):
    rows = [{"task": "t", "sample": n, "reward": 1, "completion": f"said {n}", "prompt": "q"} for n in (2, 0, 1)]
    found = said(put(tmp_path / "a.jsonl", *rows), "t")
    assert found.answers == {"t": (0, "said 0")}
    assert said(tmp_path / "a.jsonl").answers == {}  # nobody asked
    assert len(found.prompts) == 1


def test_an_answer_goes_before_the_completion(tmp_path):
    row = {"task": 7, "reward": 1, "completion": "so it is 4", "answer": 4}
    assert said(put(tmp_path / "a.jsonl", row), "7").answers == {"7": (0, "4")}


def test_keys_by_other_names_and_packed_files(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps({"id": "t", "score": 1, "reply": "yes", "prompt": "q"}).encode()))
    found = said(path, "t", columns={"task": "id", "reward": "score", "completion": "reply"})
    assert found.answers == {"t": (0, "yes")}
    given_away = said(put(tmp_path / "b.jsonl", {"prompt": "t", "reward": 1}), "t", columns={"task": "prompt"})
    assert given_away.prompts == {}


def test_each_group_has_its_own(tmp_path):
    rows = [{"task": "t", "reward": 1, "model": model, "completion": f"{model} said"} for model in "mn"]
    rollouts, inputs = read([put(tmp_path / "a.jsonl", *rows)])
    found = contents(inputs, rollouts.keys, {}, {key: ["t"] for key in rollouts.keys})
    assert {key[1]: one.answers["t"][1] for key, one in found.items()} == {"m": "m said", "n": "n said"}
