"""One primary question at its full level, the others as secondary questions; compare and gate agree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from analyses.compare.writing import put
from cli.inside import inside  # noqa: F401

import calipers
from calipers.errors import InputError, UnknownName
from calipers.stats.ranks import sidak


@pytest.fixture
def command(inside):  # noqa: F811
    return inside


@pytest.mark.parametrize(("p", "adjusted"), [(0.012, 0.035570), (0.03, 0.087327), (0.2, 0.488), (0.0, 0.0), (1.0, 1.0)])
def test_sidak(p, adjusted):
    assert sidak(p, 3) == pytest.approx(adjusted, abs=1e-6)


def runs(folder, easy=(20, 0, 0), hard=(20, 0, 0)):
    """Two files of single samples; each slice has (tasks, fixed, broken)."""
    first, second = [], []
    for name, (tasks, fixed, broken) in {"easy": easy, "hard": hard}.items():
        for n in range(tasks):
            before = 0.0 if n < fixed else 1.0
            after = 1.0 if n < fixed else 0.0 if n < fixed + broken else 1.0
            row = {"task": f"{name}{n}", "metadata": {"level": name}}
            first.append({**row, "reward": before, "model": "old"})
            second.append({**row, "reward": after, "model": "new"})
    return put(folder / "old.jsonl", *first), put(folder / "new.jsonl", *second)


def findings(found):
    return {(one.metric, one.slice): one for one in found.contests[0].pairs[0].findings}


def test_slices_do_not_take_the_primary_questions_level(tmp_path):
    """p .027 alone is better, and stays so beside slices; it was undecided beside an interval without 0."""
    paths = runs(tmp_path, easy=(20, 5, 1), hard=(20, 5, 1))
    alone = calipers.compare(*paths, metric="mean_reward")["mean_reward"]
    beside = findings(calipers.compare(*paths, metric="mean_reward", by="level"))
    whole = beside["mean_reward", None]
    assert (alone.verdict, whole.verdict) == ("better", "better")
    assert (whole.p_adjusted, whole.interval, whole.role) == (alone.p, alone.interval, "primary")
    for name in ("easy", "hard"):
        cut = beside["mean_reward", name]
        assert cut.role == "secondary"
        assert cut.p_adjusted == pytest.approx(sidak(cut.p, 2))
        assert cut.confidence == pytest.approx(0.95**0.5)


@pytest.mark.parametrize("adjust", ["sidak", "none"])
@pytest.mark.parametrize("counts", [((30, 9, 1), (30, 0, 0)), ((40, 12, 2), (10, 0, 3)), ((20, 6, 0), (20, 1, 1))])
def test_a_line_and_its_interval_agree(tmp_path, adjust, counts):
    found = calipers.compare(*runs(tmp_path, *counts), metric=["mean_reward", "pass_rate"], by="level", adjust=adjust)
    for one in found.contests[0].pairs[0].findings:
        shown = one.interval[0] > 0 or one.interval[1] < 0
        assert shown == (one.p_adjusted <= 0.05)
        assert shown == ((one.hint or one.verdict) in ("better", "worse"))


def test_below_an_undecided_question_there_are_hints(tmp_path):
    paths = runs(tmp_path, easy=(40, 12, 0), hard=(40, 3, 9))
    found = findings(calipers.compare(*paths, metric="mean_reward", by="level"))
    assert found["mean_reward", None].verdict == "undecided"
    easy = found["mean_reward", "easy"]
    assert (easy.verdict, easy.hint) == ("undecided", "better")
    assert easy.sentence.endswith("a hint, not a claim")
    named = findings(calipers.compare(*paths, metric="mean_reward", primary="mean_reward[level=easy]"))
    assert (named["mean_reward", "easy"].verdict, named["mean_reward", "easy"].role) == ("better", "primary")
    assert named["mean_reward", "easy"].p_adjusted == easy.p


def test_a_hint_fails_no_build(tmp_path, command):
    paths = runs(tmp_path, easy=(40, 12, 0), hard=(40, 0, 12))
    shown = command("compare", *paths, "--metric", "mean_reward", "--by", "level", cwd=tmp_path)
    text = " ".join(shown.stdout.split())
    assert "hint: worse" in text
    assert "the primary question is undecided, so slices and other metrics are hints, not claims" in text
    failing = ["compare", *paths, "--metric", "mean_reward", "--by", "level", "--fail-on", "worse"]
    assert command(*failing, cwd=tmp_path).returncode == 0


def test_the_same_test_under_two_names_is_the_primary_one(tmp_path):
    """With one sample per task, a mean and a rate are the same test."""
    found = findings(calipers.compare(*runs(tmp_path, easy=(20, 8, 1)), metric=["mean_reward", "pass_rate"]))
    assert [one.role for one in found.values()] == ["primary", "primary"]
    assert found["pass_rate", None].p_adjusted == found["pass_rate", None].p


def test_three_runs_share_the_level_among_their_pairs(tmp_path):
    old, new = runs(tmp_path, easy=(30, 9, 1))
    rows = [json.loads(line) for line in Path(new).read_text().splitlines()]
    third = put(tmp_path / "third.jsonl", *({**row, "model": "third"} for row in rows))
    found = calipers.compare(old, new, third, metric="mean_reward", by="level")
    for pair in found.contests[0].pairs:
        whole, *cuts = pair.findings
        assert whole.confidence == pytest.approx(0.95 ** (1 / 3))
        below = {one.slice for one in cuts if one.p is not None}
        for one in cuts:
            assert one.p_adjusted >= sidak(one.p, 3) - 1e-12
            assert one.confidence >= 0.95 ** (1 / (3 * len(below))) - 1e-12


@pytest.mark.parametrize(
    ("primary", "error", "said"),
    [
        ("", InputError, "is not a metric"),
        ("[level=easy]", InputError, "is not a metric"),
        ("mean_rewrd", UnknownName, "mean_reward"),
        ("mean_reward[level=esy]", UnknownName, "easy"),
    ],
)
def test_an_unknown_question(tmp_path, primary, error, said):
    with pytest.raises(error, match=said):
        calipers.compare(*runs(tmp_path), metric="mean_reward", primary=primary)


@pytest.mark.parametrize("counts", [(60, 12, 3), (60, 4, 2), (60, 2, 9), (60, 0, 0)])
@pytest.mark.parametrize("op", [">", ">="])
def test_compare_and_gate_agree_on_better(tmp_path, command, counts, op):
    old, new = runs(tmp_path, easy=counts, hard=(0, 0, 0))
    one = calipers.compare(old, new, metric="mean_reward")["mean_reward"]
    asked = ["gate", new, "--baseline", old, "--require", f"lower(delta(mean_reward)) {op} 0"]
    assert (command(*asked, cwd=tmp_path).returncode == 0) == (one.verdict == "better")


@pytest.mark.parametrize("margin", [0.034, 0.05, 0.1, 0.2])
@pytest.mark.parametrize("broken", [0, 1, 2, 5])
def test_compare_and_gate_agree_on_a_margin(tmp_path, command, margin, broken):
    old, new = runs(tmp_path, easy=(100, 0, broken), hard=(0, 0, 0))
    one = calipers.compare(old, new, metric="mean_reward", margin=margin)["mean_reward"]
    shown = one.p_not_worse <= 0.025
    asked = ["gate", new, "--baseline", old, "--require", f"lower(delta(mean_reward)) >= {-margin}", "--format", "json"]
    done = command(*asked, cwd=tmp_path)
    check = json.loads(done.stdout)["checks"][0]
    assert (done.returncode == 0) == shown == (check["value"] >= -margin)
    assert "tested by tango" in check["remark"]


def test_a_margin_that_so_few_tasks_cannot_rule_out(tmp_path, command):
    old, new = runs(tmp_path, easy=(50, 0, 0), hard=(0, 0, 0))
    done = command("gate", new, "--baseline", old, "--require", "lower(delta(mean_reward)) >= -0.05", cwd=tmp_path)
    assert done.returncode == 1
    assert "would not rule out a loss of 0.05: at least" in " ".join(done.stdout.split())
    shown = command("compare", old, new, "--metric", "mean_reward", "--margin", "0.05", "--details", cwd=tmp_path)
    assert "would not rule out the margin: at least" in " ".join(shown.stdout.split())


def test_a_claim_that_one_task_would_undo_says_so(tmp_path):
    """Ten tasks and one constant run: the spread is estimated from the observed tasks."""
    steady = [{"task": f"t{n}", "reward": 0.90, "model": "a"} for n in range(12)]
    wild = [{"task": f"t{n}", "reward": 0.91 + 0.001 * n, "model": "b"} for n in range(12)]
    paths = put(tmp_path / "a.jsonl", *steady), put(tmp_path / "b.jsonl", *wild)
    one = calipers.compare(*paths, metric="mean_reward")["mean_reward"]
    assert (one.verdict, one.undone_by_one) == ("better", True)
    assert "one more task lost outright would undo this verdict; --test strict allows for that" in one.sentence
    worse = calipers.compare(*paths[::-1], metric="mean_reward")["mean_reward"]
    assert "one more task won outright" in worse.sentence
    page = " ".join(str(calipers.compare(*paths[::-1], metric="mean_reward", cluster="task")).split())
    assert "One more cluster won outright would undo this verdict; --test strict allows for that." in page
    assert calipers.compare(*paths, metric="mean_reward", test="strict")["mean_reward"].verdict == "undecided"
    many = runs(tmp_path, easy=(100, 30, 5), hard=(100, 30, 5))
    assert not calipers.compare(*many, metric="mean_reward")["mean_reward"].undone_by_one


def test_a_named_slice_has_its_sentence_first_with_what_is_missing(tmp_path, command):
    old, new = runs(tmp_path, easy=(40, 12, 0), hard=(40, 3, 9))
    lost = [json.loads(line) for line in Path(new).read_text().splitlines()]
    lost[5] = {**lost[5], "reward": None, "outcome": "client_failed"}
    new = put(tmp_path / "lost.jsonl", *lost)
    ask = ("compare", old, new, "--metric", "mean_reward", "--primary", "mean_reward[level=easy]")
    done = command(*ask, "--details", cwd=tmp_path)
    lines = [line for line in done.stdout.splitlines() if line]
    assert lines[2].startswith("mean_reward[level=easy]: new is better than old by")
    assert "better even if the 1 missing rollout of new failed" in " ".join(done.stdout.split())
    short = command(*ask, cwd=tmp_path).stdout
    assert short.splitlines()[0].endswith("mean_reward[level=easy], 80 common tasks")
    assert short.splitlines()[1].startswith("new is better than old by ")
    assert "even if the 1 missing rollout of new failed" in " ".join(short.split())
