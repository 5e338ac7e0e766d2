"""What documents keep, written beside a log and read back."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from calipers.analyses.compare.source import short, stored
from calipers.errors import InputError
from calipers.formats.run_folder import Summed, document_lines

WAYS = [Summed("bleu", "none", "bleu", True), Summed("own", "none", None), Summed("acc", "strict", "mean", True)]


@pytest.fixture
def run(tmp_path):
    """A folder with a log of ten bytes, and a function that writes what documents keep beside it."""
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
