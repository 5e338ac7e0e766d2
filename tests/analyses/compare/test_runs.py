"""Which runs are compared with each other."""

from __future__ import annotations

import pytest
from analyses.compare.writing import put

import calipers
from calipers.errors import InputError


def rows(*groups, reward=1):
    """Two tasks for each (model, agent, dataset)."""
    return [
        {"task": task, "reward": reward, "model": model, "agent": agent, "dataset": dataset}
        for model, agent, dataset in groups
        for task in ("t1", "t2")
    ]


def met(comparison):
    """(dataset, names of the runs) of each contest."""
    return [(contest.dataset, [run.name for run in contest.runs]) for contest in comparison.contests]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([("m", None, "d")], [("n", None, "d")], [("d", ["m", "n"])]),
        ([("m", "x", "d")], [("m", "y", "d")], [("d", ["x", "y"])]),
        (
            [("m", "x", "d")],
            [("m", "x", "d")],
            [("d", ["a.jsonl", "b.jsonl"])],
        ),  # nothing but the file tells them apart
        # the same two models, before and after: each meets itself
        (
            [("m", None, "d"), ("n", None, "d")],
            [("m", None, "d"), ("n", None, "d")],
            [("d", ["a.jsonl", "b.jsonl"])] * 2,
        ),
        # pipelines of lm-eval: agents, of one model each
        (
            [("m", "strict", "d"), ("m", "loose", "d")],
            [("n", "strict", "d"), ("n", "loose", "d")],
            [("d", ["m", "n"])] * 2,
        ),
        ([("m", None, "d")], [("n", None, "d"), ("o", None, "d")], [("d", ["m", "n", "o"])]),
        # two datasets: each by itself
        (
            [("m", None, "d"), ("m", None, "e")],
            [("n", None, "e"), ("n", None, "d")],
            [("d", ["m", "n"]), ("e", ["m", "n"])],
        ),
        ([("m", None, None)], [("n", None, "d")], [("d", ["m", "n"])]),  # a plain file does not say which dataset
    ],
)
def test_runs_of_one_name_meet(tmp_path, first, second, expected):
    a, b = put(tmp_path / "a.jsonl", *rows(*first)), put(tmp_path / "b.jsonl", *rows(*second))
    assert met(calipers.compare(a, b)) == expected


def test_a_file_with_two_models_is_compared_within_itself(tmp_path):
    path = put(tmp_path / "a.jsonl", *rows(("m", None, "d"), ("n", None, "d")))
    assert met(calipers.compare(path)) == [("d", ["m", "n"])]


def test_what_has_no_match_is_named(tmp_path):
    a = put(tmp_path / "a.jsonl", *rows(("m", None, "d"), ("n", None, "d")))
    b = put(tmp_path / "b.jsonl", *rows(("n", None, "d"), ("o", None, "d")))
    found = calipers.compare(a, b)
    assert len(found.contests) == 1
    assert [note.split(" is ")[0] for note in found.notes] == ["'m'", "'o'"]


def test_a_dataset_of_one_run_is_named(tmp_path):
    a = put(tmp_path / "a.jsonl", *rows(("m", None, "d"), ("m", None, "e")))
    b = put(tmp_path / "b.jsonl", *rows(("n", None, "d")))
    found = calipers.compare(a, b)
    assert met(found) == [("d", ["m", "n"])]
    assert found.notes == ["excluded, because only one run has them: 'e'"]


def test_two_names_for_a_dataset_are_said(tmp_path):
    a, b = (put(tmp_path / f"{d}.jsonl", *rows((f"m{d}", None, d))) for d in "de")
    assert calipers.compare(a, b).notes == ["the datasets have different names: 'd', 'e'"]


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ([("m", None, "d")], None, "a.jsonl: has only one run; give a second run"),
        (
            [("m", None, "d"), ("n", None, "d")],
            [("o", None, "d"), ("p", None, "d")],
            "it is not clear which runs to compare",
        ),
        ([("m", None, "d"), ("m", None, "e")], [("n", None, "f"), ("n", None, "g")], "no dataset in common"),
    ],
)
def test_what_is_not_clear_is_refused(tmp_path, first, second, said):
    paths = [put(tmp_path / f"{name}.jsonl", *rows(*some)) for name, some in (("a", first), ("b", second)) if some]
    with pytest.raises(InputError, match=said):
        calipers.compare(*paths)


def test_a_file_cannot_differ_from_itself(tmp_path):
    path = put(tmp_path / "a.jsonl", *rows(("m", None, "d")))
    with pytest.raises(InputError, match=r"is given twice; expected two different runs"):
        calipers.compare(path, str(tmp_path / "." / "a.jsonl"))


def test_the_same_bytes_under_two_names_are_noticed(tmp_path):
    a, b = (put(tmp_path / f"{name}.jsonl", *rows(("m", None, "d"))) for name in "ab")
    (note,) = calipers.compare(a, b).notes
    assert note.endswith("have the same content, so there is no difference")


def test_the_baseline_may_be_called_by_model_path_or_name(tmp_path):
    paths = [put(tmp_path / f"{name}.jsonl", *rows((name, None, "d"))) for name in "abc"]
    for called in ("b", paths[1]):
        assert [pair.first for pair in calipers.compare(*paths, baseline=called).contests[0].pairs] == [1, 1]
