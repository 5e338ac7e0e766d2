"""The counts from which the what-if panel computes, and the command that it names."""

import json
import math
from importlib.resources import files

import pytest
from making import rollouts

import calipers
from calipers.analyses.compare.compare import compare
from calipers.pipeline import read
from calipers.web import island as islands
from calipers.web.island import WhatIfSettings, pair_island, run_island, what_if_data, what_if_section
from calipers.web.report_data import report_data

ARITH, NEXT = (str(files("calipers") / "examples" / name) for name in ("arith.jsonl", "arith_next.jsonl"))


def island_of(rows, metrics="mean_reward", keys=(), **settings):
    """The island of a run of these rows."""
    table = rollouts(*rows, labels=keys)
    result = calipers.score(table, metrics, **settings)
    return run_island(table, result, result.groups[0], WhatIfSettings([], keys=keys))


def pair_of(first, second, keys=(), **settings):
    """The island of two runs."""
    runs = tuple(rollouts(*rows, labels=keys) for rows in (first, second))
    comparison = compare(*runs, **{"metrics": "mean_reward", **settings})
    return pair_island(runs, ("A", "B"), comparison, comparison.contests[0].pairs[0], WhatIfSettings([], keys=keys))


def test_each_task_has_its_distinct_rewards_with_counts_and_its_missing_rollouts():
    rows = [
        {"task": "a", "sample": 0, "reward": 1},
        {"task": "a", "sample": 1, "reward": 0.5},
        {"task": "a", "sample": 2, "reward": 1},
        {"task": "b", "sample": 0, "outcome": "client_failed"},
        {"task": "c", "sample": 0, "outcome": "refused"},  # counts as 0
    ]
    island = island_of(rows)
    assert island["runs"] == [
        {"rewards": [0, 0.5, 1], "distinct": [2, 0, 1], "code": [1, 2, 0], "count": [1, 2, 1], "missing": [0, 1, 0]}
    ]
    assert (island["tasks"], island["samples"]) == (3, 3)


def test_a_metric_is_its_definition_with_k_threshold_and_what_was_computed():
    metrics = ["pass@2(threshold=0.5)", "max@2"]
    island = island_of([{"task": n, "sample": s, "reward": 0.5} for n in range(3) for s in range(2)], metrics)
    first, second = island["metrics"]
    assert (first["definition"], first["k"], first["threshold"], first["value"]) == ("pass@{k}", 2, 0.5, 1)
    assert second["definition"] is None


def test_a_metric_of_another_reward_than_the_first_is_not_computed():
    rows = [{"task": n, "rewards": {"x": n % 2, "y": 1}} for n in range(4)]
    island = island_of(rows)
    assert [(metric["text"], metric["definition"], metric["reward"]) for metric in island["metrics"]] == [
        ("mean_reward(reward=x)", "mean_reward", "x"),
        ("mean_reward(reward=y)", None, "x"),
    ]


def test_a_key_is_a_switch_where_each_task_has_one_value_and_there_are_several():
    rows = [
        {"task": n, "sample": s, "reward": 1, "level": n % 2, "all": "x", "mixed": s}
        for n in range(4)
        for s in range(2)
    ]
    island = island_of(rows, keys=["level", "all", "mixed", "nowhere"])
    assert island["slices"] == [{"key": "level", "values": ["0", "1"], "code": [0, 1, 0, 1]}]


def test_a_key_on_which_two_runs_do_not_agree_is_no_switch():
    first = [{"task": n, "reward": 1, "same": n % 2, "other": n % 2, "one": n % 2} for n in range(4)]
    second = [{"task": n, "reward": 0, "same": n % 2, "other": n // 2} for n in range(4)]
    island = pair_of(first, second, keys=["same", "other", "one"])
    assert [each["key"] for each in island["slices"]] == ["same", "one"]


def test_two_runs_are_paired_by_their_common_tasks():
    first = [{"task": n, "reward": n % 2} for n in range(5)]
    second = [{"task": n, "reward": 1} for n in range(2, 8)]
    island = pair_of(first, second)
    assert (island["tasks"], [run["code"] for run in island["runs"]]) == (3, [[0, 1, 0], [0, 0, 0]])


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"test": "strict"}, "the test is strict, which the page does not have"),
        ({"margin": 0.1}, "the margin has a test of its own, which the page does not have"),
        ({"metrics": "max@1"}, "the page does not compute its first metric"),
        (
            {"adjust": "holm", "metrics": ["mean_reward", "pass_rate"], "by": "level"},
            "the page does not compute its first metric",
        ),
    ],
)
def test_a_comparison_that_the_page_cannot_compute_says_why(settings, why):
    first = [{"task": n, "reward": n % 2, "level": n % 3} for n in range(24)]
    second = [{"task": n, "reward": 1, "level": n % 3} for n in range(24)]
    island = pair_of(first, second, keys=["level"], **settings)
    assert (island["why"], island["runs"], island["slices"]) == (why, [], [])


def test_rewards_that_json_cannot_write_are_not_in_the_page():
    table = read([[1.0, math.nan], [0.0, 1.0]])
    result = calipers.score(table, "mean_reward")
    island = run_island(table, result, result.groups[0], WhatIfSettings([]))
    assert island["why"] == "some rewards are not finite numbers"
    json.dumps(island, allow_nan=False)


def test_more_counts_than_a_file_should_hold_are_left_out(monkeypatch):
    monkeypatch.setattr(islands, "MOST_COUNTS", 5)
    island = island_of([{"task": n, "reward": 1} for n in range(3)])
    assert (island["why"], island["runs"]) == ("there are too many tasks for one file", [])


def test_the_command_says_how_the_files_were_read(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [{"id": n, "x": "yes", "y": "no", "score": {"a": "yes", "b": "no"}[("a", "b")[n % 2]]} for n in range(4)]
    path.write_text("\n".join(map(json.dumps, rows)))
    shown = report_data([str(path)], texts=False, columns={"task": "id", "reward": "score"}, truth={"yes": 1, "no": 0})
    command = what_if_data(shown)["command"]
    assert command == ["calipers", "score", str(path), "--columns", "task=id,reward=score", "--truth", "yes=1,no=0"]


def test_a_comparison_names_both_files_and_offers_what_k_samples_solve():
    island = what_if_data(report_data([ARITH, NEXT], texts=False, confidence=0.9))
    assert island["command"] == ["calipers", "compare", ARITH, NEXT, "--confidence", "0.9"]
    assert [metric["text"] for metric in island["metrics"]][-2:] == ["pass@4", "pass^4"]


def test_rewards_in_memory_have_a_panel_without_a_command():
    shown = report_data([[[1, 0], [1, 1], [0, 0]]], texts=False)
    assert what_if_data(shown)["command"] == []
    assert "calipers score" not in what_if_section(shown, what_if_data(shown)).body


def test_a_document_without_rollouts_has_no_panel(tmp_path):
    path = tmp_path / "result.json"
    path.write_text(calipers.score(ARITH).to_json())
    shown = report_data([str(path)], texts=False)
    assert what_if_data(shown) is None
    assert what_if_section(shown, None) is None


def test_what_cannot_be_computed_names_the_command():
    shown = report_data([[[1.0, math.nan], [0.0, 1.0]]], texts=False)
    words = what_if_section(shown, what_if_data(shown)).body
    assert "These numbers are not computed again in the page: some rewards are not finite numbers.</p>" in words
