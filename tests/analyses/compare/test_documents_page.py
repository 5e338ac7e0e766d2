"""The document and the page of a comparison, beyond the tests of the command."""

from __future__ import annotations

import json

import pytest
from analyses.compare.writing import put, run

import calipers
from calipers.analyses.compare.document import answer, chance, document
from calipers.reports import terminal


@pytest.fixture
def three(tmp_path):
    """A comparison of three runs on two slices."""
    paths = []
    for name, passes in (("low", 2), ("middle", 5), ("high", 9)):
        rows = [
            {"task": f"t{n}", "reward": float(n % 10 < passes), "model": name, "metadata": {"half": "ab"[n % 2]}}
            for n in range(60)
        ]
        paths.append(put(tmp_path / f"{name}.jsonl", *rows))
    return calipers.compare(*paths, by="half", metric="mean_reward")


def test_every_pair_and_the_ranks_are_on_the_page(three):
    text = terminal.render(document(three, details=True))
    for said in ("high is better than low", "high is better than middle", "middle is better than low"):
        assert f"mean_reward: {said} by" in text
    assert "mean_reward ↑ by half" in text
    assert "ranks by mean_reward over 60 tasks that all runs have" in text
    assert "high is the best of 3 candidates, with" in text
    assert "of bootstrap draws of the tasks: this is not its" in text
    assert "chance of being best" not in text
    shown = text.replace("\n  ", " ")
    assert "primary question mean_reward, one of 3 pairs, all others adjusted together (sidak, intervals at" in shown


@pytest.mark.parametrize("columns", [60, 80, 100, 140])
def test_the_page_keeps_to_its_width(three, columns):
    lines = terminal.render(document(three, details=True), columns=columns).splitlines()[
        3:
    ]  # the first three hold paths, which are never cut
    assert [line for line in lines if len(line) > max(columns, 75)] == []


def test_a_metric_of_each_pair_is_named_by_the_pair(tmp_path):
    """The runs have no dataset, and each pair has another reward in common."""
    rewards = {"one": ("x", "y"), "two": ("x", "z"), "three": ("y", "z")}
    paths = [
        put(
            tmp_path / f"{name}.jsonl",
            *({"task": f"t{n}", "model": name, "rewards": {key: float(n % 3 > 0) for key in keys}} for n in range(9)),
        )
        for name, keys in rewards.items()
    ]
    lines = terminal.render(document(calipers.compare(*paths, metric="mean_reward"))).splitlines()
    named = [line for line in lines if "mean_reward(reward=" in line]
    assert named == [
        f"{pair}: mean_reward(reward={key})" for pair, key in (("B − A", "x"), ("C − A", "y"), ("C − B", "z"))
    ]


def test_the_document_is_strict_and_whole(three):
    document = json.loads(three.to_json())
    assert document["schema"] == "calipers.comparison/1"
    assert [len(contest["pairs"]) for contest in document["contests"]] == [3]
    assert document["contests"][0]["ranks"][0]["places"][0]["run"] == 2
    assert len(three.rows()) == len(three.to_polars()) == 9


def test_one_finding_is_asked_for_by_name_only_where_two_runs_met(three):
    with pytest.raises(KeyError, match="3 pairs of runs were compared"):
        three["mean_reward"]


def test_the_digest_holds_what_was_found(tmp_path):
    a = run(tmp_path / "a.jsonl", {"t": [1], "u": [0], "v": [1]})
    b = run(tmp_path / "b.jsonl", {"t": [1], "u": [1], "v": [0]})
    c = run(tmp_path / "c.jsonl", {"t": [1], "u": [1], "v": [1]})
    assert calipers.compare(a, b).digest == calipers.compare(a, b, flips=0).digest  # answers are no numbers
    assert calipers.compare(a, b).digest != calipers.compare(a, c).digest
    assert calipers.compare(a, c).digest != calipers.compare(c, a).digest


def test_a_long_answer_keeps_its_end():
    assert answer("so\n\n" + "x" * 500 + " = 42", 10) == "…xxxx = 42"
    assert answer(None) == "–"


def test_a_tiny_chance_is_not_zero():
    assert chance(1e-300) == "<0.0001"
