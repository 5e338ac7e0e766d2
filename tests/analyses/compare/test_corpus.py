"""The numbers of lm-evaluation-harness' table of two runs, compared on their documents."""

from __future__ import annotations

import json
import math
import os
import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from analyses.compare.tables import home, kept, ran
from analyses.compare.test_align import harness, pair, sample
from analyses.compare.writing import run

import calipers
from calipers.analyses.compare.source import may_have_table
from calipers.errors import InputError, UnknownName
from calipers.stats.paired import paired_bootstrap
from calipers.systems.lm_eval.aggregations import sums

TEXT = pytest.importorskip("sacrebleu", reason="sacrebleu comes with calipers[text]")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of every task by both models: task -> (before, after)."""
    folder = home(tmp_path_factory.mktemp("runs"))
    made = {"said": ("before", "after"), "roll": ("Before", "After"), "choice": ("Before", "After")}
    return {task: tuple(ran(folder, task, model) for model in models) for task, models in made.items()}


@pytest.fixture(scope="module")
def compared(runs):
    """The comparison of both runs of a task by all numbers, cached for each task."""
    return cache(lambda task: calipers.compare(*runs[task]))


@pytest.mark.parametrize(
    ("task", "key", "method", "higher_is_better"),
    [
        ("said", "bleu,none", "paired_bootstrap", True),
        ("said", "ter,none", "paired_bootstrap", False),
        ("said", "exact_match,none", "floored_t", True),
        ("roll", "word_perplexity,none", "paired_bootstrap", False),
        ("roll", "byte_perplexity,none", "paired_bootstrap", False),
        ("roll", "bits_per_byte,none", "paired_bootstrap", False),
        ("choice", "acc,none", "floored_t", True),
        ("choice", "f1,none", "paired_bootstrap", True),
        ("choice", "mcc,none", "paired_bootstrap", True),
        ("choice", "brier_score,none", "floored_t", False),  # a mean of one distance for each document
    ],
)
def test_every_number_that_both_tables_have(runs, compared, task, key, method, higher_is_better):
    found = compared(task)[key]
    told = [json.loads((Path(run) / "result.json").read_text())["lm_eval"][0]["tasks"][task][key] for run in runs[task]]
    assert [found.first, found.second] == pytest.approx([one["value"] for one in told])
    assert found.delta == pytest.approx(found.second - found.first)
    assert (found.method, found.higher_is_better, found.tasks) == (method, higher_is_better, 40)


@pytest.mark.parametrize(
    ("task", "name", "sign"), [("said", "bleu", 1), ("said", "ter", -1), ("roll", "word_perplexity", -1)]
)
def test_lower_is_better_where_it_is(runs, task, name, sign):
    before, after = runs[task]
    found, back = calipers.compare(before, after, metric=name)[name], calipers.compare(after, before, metric=name)[name]
    assert (found.verdict, back.verdict) == ("better", "worse")
    assert math.copysign(1, found.delta) == sign
    assert back.delta == pytest.approx(-found.delta)


def test_the_draws_are_those_of_whole_documents(runs):
    """A bootstrap with sacrebleu over resampled documents, the same for both runs."""
    pairs = [kept(one, "bleu,none") for one in runs["said"]]
    metric, lot = TEXT.metrics.BLEU(), np.random.default_rng(3)

    def score(side, places):
        some = [side[place] for place in places]
        return metric.corpus_score([said for _, said in some], [[right for right, _ in some]]).score

    moved = []
    for _ in range(400):
        places = lot.integers(0, len(pairs[0]), len(pairs[0]))
        moved.append(score(pairs[1], places) - score(pairs[0], places))
    found = calipers.compare(*runs["said"], metric="bleu")["bleu"]
    error = np.std(moved, ddof=1)
    assert found.stderr == pytest.approx(error, rel=0.15)  # 400 draws know it to about 4 %
    assert found.interval == pytest.approx(tuple(np.quantile(moved, [0.025, 0.975])), abs=0.35 * error)


def test_the_level_is_kept_where_there_is_no_difference():
    """Two equal models on hard and easy documents: F1 differs significantly in about 1 of 20 replicates."""
    lot, found = np.random.default_rng(11), []
    for case in range(300):
        gold, slip = lot.integers(0, 2, 60), lot.uniform(0.1, 0.5, 60)
        sides = [[(int(g), int(g ^ (lot.random() < s))) for g, s in zip(gold, slip, strict=True)] for _ in range(2)]
        held = sums("f1", [*sides[0], *sides[1]])
        first, second = held.statistics[:60], held.statistics[60:]
        found.append(paired_bootstrap(second, first, held.combine, seed=case, draws=400).p)
    assert 0.02 <= np.mean(np.array(found) <= 0.05) <= 0.085


def test_one_seed_one_answer(runs):
    asked = [calipers.compare(*runs["said"], metric="bleu", seed=seed) for seed in (0, 0, 1)]
    assert asked[0].digest == asked[1].digest
    assert asked[0]["bleu"].interval != asked[2]["bleu"].interval


def test_what_is_asked_for_is_compared_and_nothing_else(runs):
    found = pair(calipers.compare(*runs["said"], metric=["bleu,none", "mean_reward", "ter"]))
    assert [one.metric for one in found.findings] == ["mean_reward", "bleu,none", "ter"]
    assert found.notes == []
    assert calipers.compare(*runs["said"], metric=["bleu", "bleu,none"]).tests == 1  # two names, one test
    with pytest.raises(UnknownName, match="no metric of these runs named 'blue'; did you mean 'bleu'"):
        calipers.compare(*runs["said"], metric="blue")


def test_a_run_meets_the_files_of_the_harness_itself(runs, tmp_path):
    """A run of Calipers against lm-eval's own samples: both have the same number."""
    values = kept(runs["said"][1], "bleu,none")
    rows = [sample(n, 0, bleu=value, target=value[0]) for n, value in enumerate(values)]  # of one benchmark
    for row in rows:
        del row["doc_hash"]  # its documents are hashed as it pleases
    path = harness(tmp_path / "theirs", rows)
    found = calipers.compare(runs["said"][0], path, metric="bleu")["bleu"]
    assert found.delta == pytest.approx(calipers.compare(*runs["said"], metric="bleu")["bleu"].delta)


def copied(run, folder):
    """A copy of a run that a test may damage."""
    return Path(shutil.copytree(run, folder / Path(run).name))


def grown(run):
    """The log has more rollouts than were scored, because the run was stopped."""
    log = run / "rollouts.jsonl"
    log.write_bytes(log.read_bytes() + b"\n")


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (
            lambda run: (run / "documents.jsonl").unlink(),
            "documents.jsonl does not exist",
        ),
        (
            grown,
            "documents.jsonl is older than the log of the run",
        ),
    ],
)
def test_without_what_documents_keep_it_says_what_to_do(runs, tmp_path, spoil, why):
    spoiled = copied(runs["said"][1], tmp_path)
    spoil(spoiled)
    found = pair(calipers.compare(runs["said"][0], spoiled))
    assert [one.metric for one in found.findings] == ["mean_reward"]  # BLEU is no pass
    assert why in found.notes[0]
    assert "run the same calipers run command again to write it, or to see why that is not possible" in found.notes[0]
    with pytest.raises(InputError, match=why):
        calipers.compare(runs["said"][0], spoiled, metric="bleu")


def test_a_file_that_is_none_is_refused_where_it_stands(runs, tmp_path):
    spoiled = copied(runs["said"][1], tmp_path)
    text = (spoiled / "documents.jsonl").read_text().splitlines()
    (spoiled / "documents.jsonl").write_text("\n".join([*text[:3], '{"document": 3}']))
    with pytest.raises(InputError, match=r"documents.jsonl:4: not a line of document values .*; expected the file as"):
        calipers.compare(runs["said"][0], spoiled)


def test_a_number_of_one_run_is_named_and_left_out(runs, tmp_path):
    spoiled = copied(runs["said"][1], tmp_path)
    path = spoiled / "documents.jsonl"
    path.write_text(path.read_text().replace("ter", "chrf"))
    found = pair(calipers.compare(runs["said"][0], spoiled))
    names = [f"python/{Path(runs['said'][0]).parent / 'models.py'}:{model}" for model in ("before", "after")]
    assert found.notes == [f"only {names[0]} has ter,none: excluded", f"only {names[1]} has chrf,none: excluded"]
    with pytest.raises(
        InputError, match=r"metric 'ter': only .*:before has ter, but .*:after has bleu,none, chrf,none"
    ):
        calipers.compare(runs["said"][0], spoiled, metric="ter")


def test_other_documents_under_the_same_ids_are_no_pairs(runs, tmp_path):
    others = ran(home(tmp_path, seed=1), "said", "after")
    found = pair(calipers.compare(runs["said"][0], others, metric="bleu"))
    assert (found.findings[0].why, found.findings[0].delta) == (
        "no document is the same in both runs, though they share ids",
        None,
    )
    assert "same id but different document: 40 tasks excluded from the numbers over documents" in found.notes


def test_a_function_of_the_tasks_own_is_not_called_again(tmp_path):
    folder = home(tmp_path)
    both = [ran(folder, "own", model, trust=True) for model in ("before", "after")]
    found = pair(calipers.compare(*both))
    assert [one.metric for one in found.findings] == ["mean_reward", "pass_rate"]
    assert found.notes == [
        "exact_match,none is computed by the task's own function, and only the result is stored: excluded"
    ]


def test_a_run_without_a_table_has_none_of_its_numbers(runs, tmp_path):
    path = run(tmp_path / "plain.jsonl", {str(n): [1.0] for n in range(40)})
    found = pair(calipers.compare(runs["roll"][0], path))
    assert [one.metric for one in found.findings] == ["mean_reward", "pass_rate"]
    assert any(
        note.endswith("has word_perplexity,none, byte_perplexity,none, bits_per_byte,none: excluded")
        for note in found.notes
    )


def both(tmp_path, name, first, second, **results):
    """lm-eval's own files of two runs, with another metric beside exact_match."""
    return [
        harness(
            tmp_path / side,
            [sample(n, 0, **{name: value}) | {"doc": {"level": "ab"[n % 2]}} for n, value in enumerate(values)],
            **results,
        )
        for side, values in (("a", first), ("b", second))
    ]


def test_its_own_results_say_how_documents_add_up_and_which_way_is_better(tmp_path):
    values = [float(n) for n in range(9)]
    told = {
        "configs": {"sums": {"metric_list": [{"metric": "wait", "aggregation": "median"}]}},
        "higher_is_better": {"sums": {"wait": False}},
    }
    sides = both(tmp_path, "wait", values, [value - 5 for value in values], **told)
    found = calipers.compare(*sides, metric="wait")["wait"]
    assert (found.first, found.second, found.higher_is_better, found.verdict) == (4.0, -1.0, False, "better")


def test_what_its_files_do_not_keep_is_said(tmp_path):
    """lm-eval writes the probabilities of a Brier score as rounded text."""
    chances = [[n % 2, "[0.25 0.75]"] for n in range(8)]
    sides = both(tmp_path, "brier_score", chances, chances)
    (note,) = [one for one in pair(calipers.compare(*sides)).notes if "brier" in one]
    assert note.startswith("brier_score cannot be recomputed (brier_score: the probabilities are '[0.25 0.75]'")
    with pytest.raises(InputError, match="metric 'brier_score': brier_score cannot be recomputed"):
        calipers.compare(*sides, metric="brier_score")


def test_slices_and_clusters_of_documents(tmp_path):
    pairs = [(n % 2, n % 2 if n % 3 else 1 - n % 2) for n in range(24)]
    sides = both(tmp_path, "f1", pairs, [(gold, gold) for gold, _ in pairs])
    found = pair(calipers.compare(*sides, metric="f1", by="level"))
    assert [(one.slice, one.tasks) for one in found.findings] == [(None, 24), ("a", 12), ("b", 12)]
    clustered = calipers.compare(*sides, metric="f1", cluster="level")["f1"]
    assert (clustered.units, clustered.tasks) == (2, 24)
    assert [one.metric for one in pair(calipers.compare(*sides, by="level")).findings if one.slice] == [
        "mean_reward",
        "pass_rate",
    ] * 2  # draws take their time: what nobody named is drawn once


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ([(1, 1)], [(1, 0)], "one task says nothing about others"),
        ([(1, 1)] * 5, [(1, 1)] * 5, "every draw gives the same difference"),
    ],
)
def test_no_interval_says_why(tmp_path, first, second, why):
    found = calipers.compare(*both(tmp_path, "f1", first, second), metric="f1")["f1"]
    assert (found.interval, found.why) == (None, why)
    assert found.delta == found.second - found.first


def test_a_pipe_is_not_looked_into(tmp_path):
    """Checking for a table does not consume the bytes of a pipe."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert not may_have_table(pipe)


@pytest.mark.parametrize(
    ("task", "key", "why"),
    [
        ("said", "bleu,none", "no mean of task values, so that no sequence of tasks shows it"),
        ("choice", "acc,none", None),
        ("choice", "brier_score,none", "an anytime test needs a known range"),  # a distance of up to 2
    ],
)
def test_documents_looked_at_one_after_another(runs, compared, task, key, why):
    found = calipers.compare(*runs[task], anytime=True)[key]
    assert (found.method, found.tasks) == ("betting", 40)
    assert found.delta == pytest.approx(compared(task)[key].delta)
    assert (found.p is None) == (why is not None)
    assert (found.why or "").startswith(why or "")
