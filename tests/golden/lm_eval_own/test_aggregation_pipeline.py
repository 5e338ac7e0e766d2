"""From the values of documents to tasks, and from tasks to groups."""

from __future__ import annotations

import pytest
from golden.lm_eval_own.made import group, ran, results
from golden.lm_eval_own.ported import ported

from calipers.systems.lm_eval.report import _missing_numbers

TO_GROUP = "TestTaskToGroupPipeline::test_"
NESTED = "TestNestedGroupPipeline::test_"
TWO = {"t1": {"acc,none": [1.0, 1.0]}, "t2": {"acc,none": [0.0, 0.0, 0.0, 1.0]}}
APART = {"t1": {"acc,none": [0.0, 1.0, 1.0], "acc,prefix": [0.5, 0.5, 0.5]}, "t2": {"acc,none": [1.0, 1.0]}}
OTHERS = {"t1": {"acc,none": [0.8, 0.9, 0.7], "f1,none": [0.6, 0.7, 0.8]}, "t2": {"acc,none": [0.5, 0.5]}}
UNWEIGHTED = [{"metric": "acc", "weight_by_size": False}]
BOTH = [{"metric": "acc"}, {"metric": "f1"}]


@ported(
    "test_aggregation_pipeline.py",
    "tasks, groups, expected",
    {
        f"{TO_GROUP}single_task_single_group": [
            (
                {"t1": {"acc,none": [1.0, 0.0, 1.0, 0.0]}},
                [group("g", "t1")],
                {"t1": {"acc,none": 0.5, "sample_len": 4}, "g": {"acc,none": 0.5, "sample_len": 4}},
            )
        ],
        f"{TO_GROUP}two_tasks_weighted_group": [
            (TWO, [group("g", "t1", "t2")], {"g": {"acc,none": 0.5, "sample_len": 6}})
        ],
        f"{TO_GROUP}two_tasks_unweighted_group": [
            (TWO, [group("g", "t1", "t2", entries=UNWEIGHTED)], {"g": {"acc,none": 0.625}})
        ],
        f"{TO_GROUP}sample_len_is_total_not_per_filter": [
            (
                APART,
                [group("g", "t1", "t2")],
                {"g": {"sample_len": 5, "sample_count": {"acc,none": 5, "acc,prefix": 3}}},
            )
        ],
        f"{TO_GROUP}multiple_metrics_sample_count": [
            (
                OTHERS,
                [group("g", "t1", "t2", entries=BOTH)],
                {"g": {"sample_len": 5, "sample_count": {"acc,none": 5, "f1,none": 3}}},
            )
        ],
        f"{NESTED}two_level_hierarchy": [
            (
                {"t1": {"acc,none": [1.0, 1.0]}, "t2": {"acc,none": [0.0, 0.0]}},
                [group("parent", group("child", "t1", "t2"))],
                {"child": {"acc,none": 0.5, "sample_len": 4}, "parent": {"acc,none": 0.5, "sample_len": 4}},
            )
        ],
        f"{NESTED}parent_with_mixed_children": [
            (
                {"t1": {"acc,none": [0.8, 0.6]}, "t2": {"acc,none": [1.0, 1.0]}},
                [group("parent", group("sub", "t1"), "t2")],
                {"sub": {"acc,none": 0.7}, "parent": {"acc,none": 0.85, "sample_len": 4}},
            )
        ],
    },
)
def test_numbers_of_tasks_and_groups(tasks, groups, expected):
    found = results([ran(name, values) for name, values in tasks.items()], groups)["results"]
    for name, numbers in expected.items():
        for key, number in numbers.items():
            assert found[name][key] == (number if isinstance(number, dict) else pytest.approx(number))


@ported(
    "test_aggregation_pipeline.py",
    "tasks, known",
    {
        "TestGroupStderrPipeline::test_group_stderr_aggregated": [
            ({name: {"acc,none": [1.0, 0.0] * 25} for name in ("t1", "t2")}, True)
        ],
        "TestGroupStderrPipeline::test_group_stderr_na_when_task_has_single_sample": [
            ({"t1": {"acc,none": [1.0]}}, False)
        ],
    },
)
def test_the_standard_error_of_a_group_needs_those_of_its_tasks(tasks, known):
    held = [ran(name, values, iterations=100) for name, values in tasks.items()]
    found = results(held, [group("g", *tasks)])["results"]
    for name in (*tasks, "g"):
        error = found[name]["acc_stderr,none"]
        assert error > 0 if known else error == "N/A"


WARNED = "TestGroupAggregationWarnings::test_"


@ported(
    "test_aggregation_pipeline.py",
    "tasks, entries, notes",
    {
        f"{WARNED}warns_when_metric_missing_in_some_tasks": [
            (APART, [{"metric": "acc"}], ["g acc,prefix: over 1 of 2 tasks; none in t2"])
        ],
        f"{WARNED}warns_when_metric_missing_in_all_tasks": [
            (
                {"t1": {"acc,none": [0.5, 0.5]}},
                [{"metric": "nonexistent", "filter_list": ["none"]}],
                ["g: no nonexistent, because none of its tasks has it in the pipelines of its filter_list"],
            )
        ],
        f"{WARNED}no_warning_when_all_tasks_have_metric": [
            ({"t1": {"acc,none": [0.8, 0.9]}, "t2": {"acc,none": [0.7, 0.6]}}, [{"metric": "acc"}], [])
        ],
    },
)
def test_a_note_names_what_a_group_lacks(tasks, entries, notes):
    made = group("g", *tasks, entries=entries)
    found = results([ran(name, values) for name, values in tasks.items()], [made])["results"]
    assert list(_missing_numbers(made, found)) == notes
