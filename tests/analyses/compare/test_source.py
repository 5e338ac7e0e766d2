"""Texts from records of every system, and document tables beside a log."""

from __future__ import annotations

import gzip
import json
import math
from decimal import Decimal

import numpy as np
import polars as pl
import pytest
from analyses.compare.writing import put
from systems.harbor.made import job, result, write

from calipers.analyses.compare.source import json_text, read_source, short, stored
from calipers.errors import InputError
from calipers.formats.run_folder import Summed, document_lines

NAMELESS = (None, None, None)


def nested(value, deep):
    for _ in range(deep):
        value = [value]
    return value


def said(path, *wanted, columns=None):
    return of_files([str(path)], *wanted, columns=columns)


def of_files(paths, *wanted, columns=None):
    source = read_source([str(path) for path in paths], columns or {}, (), None)
    (found,) = source.texts({source.rollouts.keys[0]: wanted}).values()
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
        (Decimal("1.50"), "1.50"),  # Parquet holds more than JSON does
        (nested("far down", 30), "far down"),
        (nested("too far down", 900), None),  # no message is, and Python would give up
    ],
)
def test_what_a_value_says(value, text):
    assert json_text(value) == text


def test_the_first_sample_answers_for_a_task(tmp_path):
    rows = [{"task": "t", "sample": n, "reward": 1, "completion": f"said {n}", "prompt": "q"} for n in (2, 0, 1)]
    found = said(put(tmp_path / "a.jsonl", *rows), "t")
    assert found.answers == {"t": (0, "said 0")}
    assert said(tmp_path / "a.jsonl").answers == {}  # nobody asked
    assert len(found.prompts) == 1


@pytest.mark.parametrize("columns", [{}, {"sample": "#"}])
def test_samples_that_are_numbered_over_several_files_answer_by_the_first_file(tmp_path, columns):
    record = {"task": "t", "reward": 1}
    row = {"input": "q", "gts": "1", "score": 1.0, "step": 0}  # verl's, which has no sample numbers
    paths = [
        put(tmp_path / f"{file}.jsonl", {"completion": file, **record} if columns else {"output": file, **row})
        for file in "ab"
    ]
    (task,) = read_source(paths, columns, (), None).rollouts.tasks
    assert of_files(paths, task, columns=columns).answers == {task: (0, "a")}


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
    source = read_source(put(tmp_path / "a.jsonl", *rows), {}, (), None)
    found = source.texts({key: ["t"] for key in source.rollouts.keys})
    assert {key[1]: one.answers["t"][1] for key, one in found.items()} == {"m": "m said", "n": "n said"}


def test_of_two_attempts_at_a_sample_the_later_answers(tmp_path):
    tries = [{"task": "t", "attempt": n, "reward": 1, "completion": f"try {n}"} for n in (1, 2)]
    assert said(put(tmp_path / "a.jsonl", *tries), "t").answers == {"t": (0, "try 2")}


@pytest.mark.parametrize("prompt", [None, ""])
def test_no_prompt_is_not_a_prompt_that_says_nothing(tmp_path, prompt):
    rows = [{"task": "t", "reward": 1, "prompt": prompt}, {"task": "u", "reward": 1, "prompt": "q"}]
    assert list(said(put(tmp_path / "a.jsonl", *rows), "t").prompts) == ["u"]


def test_texts_nested_out_of_reach_are_no_harm(tmp_path):
    row = {"task": "t", "reward": 1, "prompt": nested("q", 900), "completion": nested("a", 900)}
    assert said(put(tmp_path / "a.jsonl", row), "t").answers == {}


def test_the_same_words_are_the_same_prompt_in_every_format(tmp_path):
    """Otherwise the prompts of two systems would seem to differ."""
    row = {"task": "t", "reward": 1.0, "prompt": "What is 2+2?", "completion": "4"}
    pl.DataFrame([row]).write_csv(tmp_path / "a.csv")
    pl.DataFrame([row]).write_parquet(tmp_path / "a.parquet")
    job(tmp_path / "job", result("t__1", {"reward": 1}))
    steps = [
        {"source": "user", "message": [{"type": "text", "text": "What is 2+2?"}]},
        {"source": "agent", "message": "4"},
    ]
    write(tmp_path / "job" / "t__1" / "agent" / "trajectory.json", {"steps": steps})
    paths = [put(tmp_path / "a.jsonl", row), tmp_path / "a.csv", tmp_path / "a.parquet", tmp_path / "job"]
    found = [said(path, "t") for path in paths]
    assert len({one.prompts["t"] for one in found}) == 1
    assert {one.answers["t"][1] for one in found} == {"4"}


def test_jobs_given_together_answer_by_who_began_first(tmp_path):
    for name, minute in (("a", 5), ("b", 3)):
        job(tmp_path / name, result(f"t__{name}", {"reward": 1}, started_at=f"2026-04-02T09:0{minute}:00Z"))
        write(
            tmp_path / name / f"t__{name}" / "agent" / "trajectory.json",
            {"steps": [{"source": "agent", "message": name}]},
        )
    assert of_files([tmp_path / "a", tmp_path / "b"], "t").answers["t"][1] == "b"


def test_choices_that_are_no_numbers_are_shown_as_they_are(tmp_path):
    row = {
        "doc_id": 0,
        "doc": {},
        "resps": [["x"]],
        "filtered_resps": [["likely", "True"], ["no", "False"]],
        "acc": 1.0,
    }
    assert said(put(tmp_path / "samples_t.jsonl", row), "0").answers == {"0": (0, "False")}


WAYS = [Summed("bleu", "none", "bleu", True), Summed("own", "none", None), Summed("acc", "strict", "mean", True)]


@pytest.fixture
def run(tmp_path):
    """A folder with a log of ten bytes, and a function that writes a document table beside it."""
    (tmp_path / "rollouts.jsonl").write_bytes(b"0123456789")

    def written(*documents, ways=WAYS, log_bytes=10):
        (tmp_path / "documents.jsonl").write_bytes(
            b"".join(document_lines({way.key: way for way in ways}, log_bytes, documents))
        )
        return str(tmp_path)

    return written


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (("right", "said"), ["right", "said"]),
        ((["one", "other"], "said"), [["one", "other"], "said"]),  # two references
        (np.float64(0.5), 0.5),
        (np.int64(3), 3),
        (("half \ud800", "said"), ["half ?", "said"]),  # half a character, which UTF-8 cannot hold
        ((-3.5, 4), [-3.5, 4]),
    ],
)
def test_a_value_is_read_back(run, value, read):
    assert stored(run(("7", "hash", {"bleu,none": value}))).values["bleu,none"] == {"7": read}


def test_a_gap_is_no_number_and_no_zero(run):
    found = stored(run(("0", "a", {"acc,strict": math.nan}), ("1", "b", {}), ("2", "c", {"acc,strict": 0.0})))
    assert list(found.values["acc,strict"]) == ["0", "2"]
    assert math.isnan(found.values["acc,strict"]["0"])
    assert found.hashes == {"0": "a", "1": "b", "2": "c"}


def test_what_nobody_can_add_up_again_is_not_kept(run):
    found = stored(run(("0", "a", {"own,none": object(), "acc,strict": 1.0})))
    assert (found.ways["own,none"].aggregation, found.values["own,none"]) == (None, {})


@pytest.mark.parametrize(
    ("name", "keys"), [("bleu", ["bleu,none"]), ("acc,strict", ["acc,strict"]), ("acc,none", []), ("none", [])]
)
def test_what_a_name_means(run, name, keys):
    assert stored(run()).named(name) == keys


def test_the_shortest_name_tells_numbers_apart():
    assert short(["acc,a", "acc,b", "f1,a", "f1,a"]) == ["acc,a", "acc,b", "f1"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "cannot be read (it is empty)"),
        ("[]", ":1: not a line of document values"),
        (json.dumps({"schema": "calipers.documents/2", "log_bytes": 10, "metrics": []}), "its schema is 'calipers.doc"),
    ],
)
def test_a_file_that_is_none(run, tmp_path, text, said):
    folder = run()
    (tmp_path / "documents.jsonl").write_text(text)
    with pytest.raises(InputError) as error:
        stored(folder)
    assert said in str(error.value)


def test_an_older_file_is_not_believed(run):
    assert stored(run(("0", "a", {"acc,strict": 1.0}), log_bytes=9)).why.endswith("is older than the log of the run")
