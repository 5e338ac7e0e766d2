"""Runs of several training steps: compared at each step that both have, the last of them first."""

import json
from dataclasses import replace

import numpy as np
import pytest
from cli.running import calipers as command

import calipers
from calipers.analyses.compare.document import document
from calipers.errors import InputError, UnknownName
from calipers.pipeline import read
from calipers.reports.terminal import render
from calipers.rollouts.column import Column


def rollouts(folder, scores, tasks=30, samples=2, **columns):
    """A folder of verl's rollouts at several steps, with the given share of passes at each step."""
    folder.mkdir()
    for step, share in scores.items():
        rows = [
            {"input": f"question {task}", "output": "a", "gts": str(task), "score": score, "step": step, **columns}
            for task in range(tasks)
            for sample in range(samples)
            for score in [float((task * 7 + 3 * sample) % 10 < 10 * share)]
        ]
        (folder / f"{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture
def two(tmp_path):
    old = rollouts(tmp_path / "old", {2: 0.2, 10: 0.3, 30: 0.9})
    return old, rollouts(tmp_path / "new", {2: 0.2, 10: 0.6, 20: 0.9})


def test_each_common_step_is_compared_and_the_last_is_the_primary_question(two):
    comparison = calipers.compare(*two)
    (pair,) = comparison.contests[0].pairs
    assert comparison.primary == "mean_reward[step=10]"
    assert [(each.metric, each.by, each.slice, each.role) for each in pair.findings] == [
        ("mean_reward", "step", "2", "secondary"),
        ("pass_rate", "step", "2", "secondary"),
        ("mean_reward", "step", "10", "primary"),
        ("pass_rate", "step", "10", "primary"),  # the same test under another name
    ]
    found = comparison["mean_reward[step=10]"]
    alone = calipers.compare(two[0] / "10.jsonl", two[1] / "10.jsonl")["mean_reward"]
    assert (found.first, found.second, found.delta, found.interval, found.p, found.verdict) == (
        alone.first,
        alone.second,
        alone.delta,
        alone.interval,
        alone.p,
        "better",
    )
    assert "only old has step 30" in pair.notes
    assert "only new has step 20" in pair.notes
    assert not any("over several training steps" in note for note in comparison.notes)
    assert json.loads(comparison.to_json())["contests"][0]["pairs"][0]["findings"][2]["slice"] == "10"
    with pytest.raises(UnknownName, match=r"mean_reward\[step=2\]"):
        comparison["mean_reward"]


def test_the_page_says_which_step_it_is_about(two):
    page = render(document(calipers.compare(*two)))
    assert "new is better than old by 0.300 at step 10" in page
    comparison = calipers.compare(*two)
    assert "at step 10 (95\N{NO-BREAK SPACE}% interval" in comparison.headline()
    assert "mean_reward[step=2]" in comparison._repr_html_()
    assert "This is step 10, the last that both runs have; the other steps are adjusted for" in page
    assert "30 common tasks (mean_reward[step=10])" in page
    assert "primary question mean_reward[step=10], all others adjusted together (Holm)" in " ".join(
        render(document(calipers.compare(*two), details=True)).split()
    )


def test_a_report_has_it_from_its_document_and_mixes_no_steps(two, tmp_path):
    (tmp_path / "steps.json").write_text(calipers.compare(*two).to_json())
    assert calipers.report(tmp_path / "steps.json").title == "new is better than old by 0.300 at step 10."
    for by in ((), "step"):
        with pytest.raises(InputError, match="give the file of one step"):
            calipers.report(*two, by=by)


def test_a_command_prints_it(two, tmp_path):
    done = command("compare", "old", "new", "--fail-on", "worse", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "mean_reward by step\n  10     0.300   0.600   +0.300" in done.stdout


def test_the_other_steps_are_adjusted_by_holm_and_hints_while_the_last_is_undecided(tmp_path):
    old = rollouts(tmp_path / "old", {1: 0.2, 2: 0.2, 3: 0.2, 4: 0.4})
    new = rollouts(tmp_path / "new", {1: 0.5, 2: 0.4, 3: 0.3, 4: 0.4})
    findings = calipers.compare(old, new, metrics="mean_reward").contests[0].pairs[0].findings
    p = {finding.slice: finding.p for finding in findings}
    adjusted = {finding.slice: finding.p_adjusted for finding in findings}
    assert adjusted["4"] == p["4"]  # the primary question keeps its level
    order = sorted("123", key=p.get)
    steps = np.maximum.accumulate([min(1.0, (3 - place) * p[step]) for place, step in enumerate(order)])
    assert [adjusted[step] for step in order] == pytest.approx(steps.tolist())
    assert [finding.verdict for finding in findings] == ["undecided"] * 4
    assert [finding.hint for finding in findings] == ["better", "better", "better", None]


def test_other_slices_stand_beside_the_steps(two):
    comparison = calipers.compare(*two, by=["step", "gts"], metrics="mean_reward")
    (pair,) = comparison.contests[0].pairs
    assert comparison.primary == "mean_reward[step=10]"
    assert {finding.by for finding in pair.findings} == {"step", "gts"}
    assert pair.flips.metric == "mean_reward[step=10]"


def test_a_gate_asks_for_the_difference_at_a_step(two):
    gate = calipers.gate(two[1], baseline=two[0], require="delta(mean_reward[step=10]) >= 0.2")
    assert (gate.word, gate.checks[0].estimate) == ("passed", pytest.approx(0.3))


def test_a_breakdown_that_is_asked_for_stays_and_another_step_can_be_the_primary_question(two):
    assert calipers.compare(*two, by="gts")["mean_reward"].tasks == 30
    named = calipers.compare(*two, primary="mean_reward[step=2]")
    assert named.contests[0].pairs[0].findings[0].role == "primary"
    assert "This is step 2; the other steps" in render(document(named))


def test_runs_without_a_common_step_are_told(tmp_path):
    old, new = rollouts(tmp_path / "old", {1: 0.2, 2: 0.3}), rollouts(tmp_path / "new", {3: 0.2, 4: 0.3})
    with pytest.raises(InputError, match=r"step: only old has step 1, 2 and only new has step 3, 4"):
        calipers.compare(old, new)


def test_false_claims_about_steps_are_as_rare_as_promised(tmp_path):
    """Two equal policies at four steps: any claim is false, and is made in 5 % of comparisons at most."""
    shares = dict.fromkeys(range(4), 0.5)
    first, second = (read(str(rollouts(tmp_path / name, shares, 20, 1))) for name in ("old", "new"))
    draw, claims, runs = np.random.default_rng(1), 0, 100
    for _ in range(runs):
        sides = [
            replace(side, rewards={"score": Column.of((draw.random(len(side)) < 0.5).astype(float))})
            for side in (first, second)
        ]
        comparison = calipers.compare(*sides, metrics="mean_reward", flips=0)
        assert comparison.primary == "mean_reward[step=3]"
        claims += any(verdict != "undecided" for verdict in comparison.verdicts)
    assert claims / runs <= 0.05 + 2.6 * np.sqrt(0.05 * 0.95 / runs)


def test_missing_rollouts_do_not_undo_a_verdict_that_is_not_adjusted(tmp_path):
    """The last step keeps its level, although Holm's p of all steps together would be above it."""
    old, new = rollouts(tmp_path / "old", {1: 0.2, 2: 0.2, 3: 0.2}), rollouts(tmp_path / "new", {1: 0.2, 2: 0.2})
    again = [json.loads(line) for line in (old / "3.jsonl").read_text().splitlines()]
    for row in again[:10]:
        row["score"] = 1.0
    again[59]["score"] = None
    (new / "3.jsonl").write_text("".join(json.dumps(row) + "\n" for row in again))
    finding = calipers.compare(old, new, metrics="mean_reward")["mean_reward[step=3]"]
    assert finding.p < 0.05 < finding.p_holm
    assert (finding.verdict, finding.worst_verdict) == ("better", "better")
    assert (finding.tipping.most, finding.tipping.missing) == (1, 1)


@pytest.mark.parametrize(
    ("adjust", "words"),
    [
        ("sidak", "both runs have; the other steps are adjusted for each other."),
        ("bh", "both runs have; all steps are adjusted for each other."),
        ("none", "both runs have."),
    ],
)
def test_the_page_says_how_the_steps_are_adjusted(two, adjust, words):
    page = " ".join(render(document(calipers.compare(*two, adjust=adjust))).split())
    assert f"This is step 10, the last that {words}" in page


def test_no_task_is_better_at_a_step_where_no_way_is_better(tmp_path):
    old = rollouts(tmp_path / "old", {1: 0.2, 2: 0.2}, turns=3)
    new = rollouts(tmp_path / "new", {1: 0.2, 2: 0.2}, turns=5)
    page = render(document(calipers.compare(old, new, metrics="mean(column=turns)")))
    assert "(mean(column=turns)[step=2]): 30 higher, 0 same, 0 lower" in page
    assert "furthest up" in page
