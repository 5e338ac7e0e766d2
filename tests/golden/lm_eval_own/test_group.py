"""Groups: which pipelines a metric is added up over, weights, standard errors, and what has no row."""

from __future__ import annotations

import pytest
from golden.lm_eval_own.made import group as of
from golden.lm_eval_own.ported import ported

from calipers.errors import InputError
from calipers.systems.lm_eval.task_scores import aggregate_group
from calipers.systems.lm_eval.tasks.groups import TaskGroup, Tasks, every_group, leaves

FOUND = {
    "task_a": {
        "sample_len": 100,
        "acc_norm,none": 0.85,
        "acc_norm_stderr,none": 0.02,
        "acc_norm,prefix": 0.88,
        "acc_norm_stderr,prefix": 0.015,
    },
    "task_b": {
        "sample_len": 150,
        "acc_norm,none": 0.90,
        "acc_norm_stderr,none": 0.018,
        "acc_norm,custom": 0.92,
        "acc_norm_stderr,custom": 0.012,
    },
}
ADDED = {
    "task_a": {**FOUND["task_a"], "acc_norm,none": 0.80, "acc_norm,prefix": 0.85},
    "task_b": {**FOUND["task_b"], "sample_len": 100},
}
ALONE = {"task_a": {"sample_len": 100, "acc,none": 0.85, "acc_stderr,none": 0.02}}
UNEVEN = {"task_a": {"sample_len": 100, "acc,none": 0.60}, "task_b": {"sample_len": 200, "acc,none": 0.90}}
DISCOVERED = "TestGroupFilterDiscovery::test_discover_filters_"


def keys(row):
    return [key for key in row if "," in key and "_stderr" not in key]


@ported(
    "test_group.py",
    "rows, metric, pipelines",
    {
        f"{DISCOVERED}single_filter": [(ALONE, "acc", ["none"])],
        f"{DISCOVERED}multiple_filters": [(FOUND, "acc_norm", ["custom", "none", "prefix"])],
        f"{DISCOVERED}no_matches": [(FOUND, "nonexistent_metric", [])],
        f"{DISCOVERED}excludes_stderr": [(ALONE, "acc", ["none"])],
        f"{DISCOVERED}partial_availability": [(FOUND, "acc_norm", ["custom", "none", "prefix"])],
    },
)
def test_a_metric_is_found_under_every_pipeline(rows, metric, pipelines):
    found = aggregate_group("g", list(rows), rows, [{"metric": metric}])
    assert keys(found) == [f"{metric},{pipeline}" for pipeline in pipelines]


SET = "TestAggMetricConfig::test_"
SUM = "TestGroupAggregation::test_"
EDGE = "TestGroupEdgeCases::test_"
MORE = {
    "task_a": {**ADDED["task_a"], "acc,none": 0.75, "acc_stderr,none": 0.03},
    "task_b": {**ADDED["task_b"], "acc,none": 0.85, "acc_stderr,none": 0.025},
}
MIXED = {**MORE, "task_a": {**MORE["task_a"], "acc,prefix": 0.78}}
EVERY = {"acc_norm,none": 0.85, "acc_norm,prefix": 0.85, "acc_norm,custom": 0.92}


@ported(
    "test_group.py",
    "rows, entries, expected",
    {
        f"{SET}default_filter_list_is_none": [(ADDED, [{"metric": "acc_norm", "filter_list": None}], EVERY)],
        f"{SET}explicit_filter_list": [
            (ADDED, [{"metric": "acc_norm", "filter_list": ["none"]}], {"acc_norm,none": 0.85})
        ],
        f"{SET}string_filter_normalized_to_list": [
            (ADDED, [{"metric": "acc_norm", "filter_list": "none"}], {"acc_norm,none": 0.85})
        ],
        f"{SET}empty_filter_list": [(ADDED, [{"metric": "acc_norm", "filter_list": []}], {})],
        f"{SET}multiple_filters": [
            (ADDED, [{"metric": "acc_norm", "filter_list": ["none", "prefix", "custom"]}], EVERY)
        ],
        f"{SET}default_aggregation_is_mean": [
            (UNEVEN, [{"metric": "acc"}], {"acc,none": 0.80}),
            (UNEVEN, [{"metric": "acc", "aggregation": "mean"}], {"acc,none": 0.80}),
        ],
        f"{SET}default_weight_by_size_is_true": [(UNEVEN, [{"metric": "acc"}], {"acc,none": 0.80})],
        f"{SUM}auto_discovery_aggregates_all_filters": [(ADDED, [{"metric": "acc_norm"}], EVERY)],
        f"{SUM}explicit_filter_list_backward_compatibility": [
            (ADDED, [{"metric": "acc_norm", "filter_list": ["none"]}], {"acc_norm,none": 0.85})
        ],
        f"{SUM}multiple_explicit_filters": [
            (
                ADDED,
                [{"metric": "acc_norm", "filter_list": ["none", "prefix"]}],
                {"acc_norm,none": 0.85, "acc_norm,prefix": 0.85},
            )
        ],
        f"{SUM}empty_filter_list_no_aggregation": [
            ({"task_a": ADDED["task_a"]}, [{"metric": "acc_norm", "filter_list": []}], {})
        ],
        f"{SUM}multiple_metrics_auto_discovery": [
            (MORE, [{"metric": "acc_norm"}, {"metric": "acc"}], {**EVERY, "acc,none": 0.80})
        ],
        f"{SUM}mixed_auto_and_explicit_filters": [
            (MIXED, [{"metric": "acc_norm"}, {"metric": "acc", "filter_list": ["none"]}], {**EVERY, "acc,none": 0.80})
        ],
        "TestGroupWeightedAggregation::test_weighted_aggregation_auto_discovery": [
            (UNEVEN, [{"metric": "acc", "weight_by_size": True}], {"acc,none": 0.80}),
            (UNEVEN, [{"metric": "acc", "weight_by_size": False}], {"acc,none": 0.75}),
        ],
        f"{EDGE}metric_missing_in_some_tasks": [
            (
                {"task_a": {"sample_len": 100, "acc,none": 0.85, "acc,prefix": 0.90}, "task_b": {"sample_len": 150}},
                [{"metric": "acc"}],
                {"acc,none": 0.85, "acc,prefix": 0.90},
            )
        ],
    },
)
def test_values(rows, entries, expected):
    found = aggregate_group("g", list(rows), rows, entries)
    assert {key: found[key] for key in keys(found)} == pytest.approx(expected)


@ported("test_group.py", "rows, tree, expected", {f"{EDGE}task_not_in_metrics": [(ALONE, ["task_a", "task_b"], 0.85)]})
def test_a_task_without_a_row_is_passed_by(rows, tree, expected):
    found = aggregate_group("g", tree, rows, [{"metric": "acc"}])
    assert (found["acc,none"], found["sample_len"]) == (expected, 100)


@ported(
    "test_group.py",
    "rows, errors",
    {
        f"{SUM}stderr_aggregation_with_auto_discovery": [
            (ADDED, {"acc_norm_stderr,prefix": 0.015, "acc_norm_stderr,custom": 0.012})
        ]
    },
)
def test_standard_errors(rows, errors):
    found = aggregate_group("g", list(rows), rows, [{"metric": "acc_norm"}])
    assert {key: found[key] for key in errors} == pytest.approx(errors)
    assert found["acc_norm_stderr,none"] > 0


@ported(
    "test_group.py",
    "rows, metric, total, counts",
    {
        f"{SUM}sample_len_count_with_auto_discovery": [
            (
                ADDED,
                "acc_norm",
                200,
                {"acc_norm,none": 200, "acc_norm,prefix": 100, "acc_norm,custom": 100},
            )
        ],
        f"{SUM}sample_count_per_metric_with_asymmetric_filters": [
            (
                {
                    "task_a": {"sample_len": 100, "acc,none": 0.8, "acc,prefix": 0.85},
                    "task_b": {"sample_len": 200, "acc,none": 0.9},
                },
                "acc",
                300,
                {"acc,none": 300, "acc,prefix": 100},
            )
        ],
    },
)
def test_documents_behind_a_number(rows, metric, total, counts):
    found = aggregate_group("g", list(rows), rows, [{"metric": metric}])
    assert (found["sample_len"], found["sample_count"]) == (total, counts)


@ported(
    "test_group.py",
    "entries, numbers",
    {
        f"{EDGE}no_aggregation_config": [([], False)],
        "TestGroup::test_has_aggregation_true": [([{"metric": "acc"}], True)],
        "TestGroup::test_has_aggregation_false_none": [((), False)],
        "TestGroup::test_has_aggregation_false_empty": [([], False)],
    },
)
def test_a_group_that_adds_nothing_up_has_only_its_name(entries, numbers):
    found = aggregate_group("test_group", ["task_a"], ALONE, entries)
    named = {"alias": "test_group", "name": "test_group"}
    assert (found == named) is not numbers
    assert found | named == found


@ported(
    "test_group.py",
    "made, expected",
    {
        "TestGroup::test_get_all_tasks_recursive": [
            (of("parent", of("child", "task_a"), "task_b"), ["task_a", "task_b"])
        ]
    },
)
def test_the_tasks_below_a_group(made, expected):
    assert [leaf.name for leaf in leaves([made])] == expected


READ = "TestGroupSerialization::test_from_config_"


def group(tmp_path, text):
    (tmp_path / "one.yaml").write_text("task: one\ndataset_path: json\ntest_split: test\n")
    (tmp_path / "group.yaml").write_text(f"{text}\ntask: [one]\n")
    [found] = Tasks([tmp_path]).find(str(tmp_path / "group.yaml"))
    assert isinstance(found, TaskGroup)
    return found


@ported(
    "test_group.py",
    "text, expected",
    {
        f"{READ}basic": [
            (
                "group: my_group\ngroup_alias: My Group\nmetadata: {version: 2}\naggregate_metric_list: "
                "[{metric: acc, filter_list: [none], aggregation: mean, weight_by_size: true}]",
                ("my_group", "My Group", ["acc"], {"version": 2}),
            )
        ],
        f"{READ}single_dict_agg_metric": [("group: g\naggregate_metric_list: {metric: acc}", ("g", "g", ["acc"], {}))],
    },
)
def test_a_group_file(tmp_path, text, expected):
    found = group(tmp_path, text)
    metrics = [entry["metric"] for entry in found.aggregate_metric_list]
    assert (found.name, found.alias, metrics, found.metadata) == expected


CHECKED = "TestAggMetricConfigValidation::test_"


@ported("test_group.py", "how", {f"{CHECKED}invalid_aggregation_raises": [("median",)]})
def test_a_group_has_no_other_aggregation_than_the_mean(tmp_path, how):
    with pytest.raises(InputError, match=f"aggregation: is '{how}'; expected mean"):
        group(tmp_path, f"group: g\naggregate_metric_list: [{{metric: acc, aggregation: {how}}}]")


@ported("test_group.py", "how, expected", {f"{CHECKED}callable_aggregation_allowed": [(max, 0.80)]})
def test_a_function_may_stand_there_and_is_never_called(how, expected):
    found = aggregate_group("g", list(UNEVEN), UNEVEN, [{"metric": "acc", "aggregation": how}])
    assert found["acc,none"] == pytest.approx(expected)


@ported(
    "test_group.py",
    "made, expected",
    {
        "TestGroup::test_get_all_groups_recursive": [
            (of("parent", of("child", of("grandchild"))), ["child", "grandchild"])
        ]
    },
)
def test_the_groups_below_a_group(made, expected):
    assert [one.name for one in every_group([made])][1:] == expected


@ported("test_group.py", "text", {f"{READ}missing_group_key": [("group_alias: nameless",)]})
def test_a_group_without_a_name_is_refused(tmp_path, text):
    with pytest.raises(InputError, match="has no task and no group"):
        group(tmp_path, text)
