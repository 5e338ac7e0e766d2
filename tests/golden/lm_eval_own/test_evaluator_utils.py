"""Limits, a task's numbers, the results object, which way is better, the order of groups, and the printed table."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden.lm_eval_own.made import group, ran, results
from golden.lm_eval_own.ported import ported

from calipers.running import count_within, limit_of
from calipers.systems.lm_eval.task_scores import aggregate_task
from calipers.systems.lm_eval.write import available, table

FILE = "test_evaluator_utils.py"
SIZE = "TestGetSampleSize::test_limit_"
TASK = "TestComputeTaskAggregations::test_"


@ported(
    FILE,
    "documents, limit, expected",
    {
        f"{SIZE}none_returns_none": [(100, None, 100)],
        f"{SIZE}integer_returns_int": [(100, 50, 50)],
        f"{SIZE}fractional_rounds_up": [(100, 0.3, 30)],
        f"{SIZE}fractional_small": [(10, 0.05, 1)],
        f"{SIZE}one_is_treated_as_integer": [(100, 1, 1)],
        f"{SIZE}float_exactly_one_is_integer": [(100, 1.0, 1)],
    },
)
def test_how_many_documents_a_limit_means(documents, limit, expected):
    assert count_within(documents, limit_of("--limit", limit)) == expected


@ported(
    FILE,
    "values, iterations, expected, documents",
    {
        f"{TASK}single_metric_mean_aggregation": [({"acc,none": [0.0, 1.0, 1.0, 0.0]}, 0, {"acc,none": 0.5}, 4)],
        f"{TASK}stderr_with_bootstrap_iters_zero": [({"acc,none": [0.0, 1.0]}, 0, {"acc_stderr,none": "N/A"}, 2)],
        f"{TASK}stderr_with_positive_bootstrap_iters": [
            ({"acc,none": [0.0, 1.0, 1.0, 0.0, 1.0]}, 100, {"acc_stderr,none": pytest.approx(0.06**0.5)}, 5)
        ],
        f"{TASK}stderr_na_for_single_sample": [({"acc,none": [1.0]}, 100, {"acc_stderr,none": "N/A"}, 1)],
        f"{TASK}fallback_to_mean_for_unknown_metric": [
            ({"custom_metric,none": [2.0, 4.0]}, 0, {"custom_metric,none": 3.0}, 2)
        ],
        f"{TASK}multiple_metrics_and_filters": [
            (
                {"acc,none": [1.0, 0.0], "f1,exact": [0.8, 0.6]},
                0,
                {"acc,none": 0.5, "f1,exact": pytest.approx(0.7)},
                2,
            )
        ],
        f"{TASK}bleu_metric_bootstrap_cap": [
            ({"bleu,none": [0.5, 0.6, 0.7]}, 200, {"bleu,none": pytest.approx(0.6)}, 3)
        ],
    },
)
def test_the_numbers_of_a_task(values, iterations, expected, documents):
    found = aggregate_task(values, {"acc": "mean", "f1": "mean", "bleu": "mean"}, iterations)
    numbers = available(found.metrics)
    assert {key: numbers[key] for key in expected} == expected
    assert found.sample_len == documents


MINE = ran(
    "my_task",
    {"acc,none": [1.0, 0.0, 1.0, 1.0]},
    task_alias="My Task",
    num_fewshot=5,
    metadata={"version": 1},
)
PLAIN = ran("fallback_task", {"acc,none": [1.0]})
PAIR = [
    ran("t1", {"acc,none": [1.0, 0.0, 1.0]}, documents=100),
    ran("t2", {"acc,none": [0.0]}, documents=200, better={"acc": False}),
]
T1 = ran("t1", {"acc,none": [1.0, 0.0, 1.0]}, task_alias="Task One", num_fewshot=3)
IN_GROUP = [group("grp", "t1")]
NAME_ONLY = [group("grp", "t1", entries=())]
COLLECTED = "TestCollectResults::test_"
BLOCKS = "TestToEvalResults::test_"
HELD = "TestGetResultsData::test_"


@ported(
    FILE,
    "tasks, groups, path, expected",
    {
        f"{COLLECTED}single_task_basic_collection": [
            ([MINE], [], "results/my_task/alias", "My Task"),
            ([MINE], [], "results/my_task/sample_len", 4),
            ([MINE], [], "results/my_task/acc,none", 0.75),
        ],
        f"{COLLECTED}alias_from_task_config": [([MINE], [], "results/my_task/alias", "My Task")],
        f"{COLLECTED}alias_defaults_to_task_name": [([PLAIN], [], "results/fallback_task/alias", "fallback_task")],
        f"{COLLECTED}configs_populated": [
            ([MINE], [], "configs/my_task/task_alias", "My Task"),
            ([MINE], [], "configs/my_task/num_fewshot", 5),
        ],
        f"{COLLECTED}versions_populated": [([MINE], [], "versions/my_task", 1)],
        f"{COLLECTED}num_fewshot_populated": [([MINE], [], "n-shot/my_task", 5)],
        f"{COLLECTED}higher_is_better_populated": [([MINE], [], "higher_is_better/my_task", {"acc": True})],
        f"{COLLECTED}multiple_tasks": [
            (PAIR, [], "results/t1/acc,none", pytest.approx(2 / 3)),
            (PAIR, [], "results/t2/acc,none", 0.0),
            (PAIR, [], "higher_is_better/t2", {"acc": False}),
        ],
        "TestAggregateGroups::test_group_metrics_added_to_results": [
            ([T1], IN_GROUP, "results/grp/acc,none", pytest.approx(2 / 3))
        ],
        "TestAggregateGroups::test_bottom_up_aggregation": [
            ([T1], [group("parent", group("child", "t1"))], f"results/{name}/acc,none", pytest.approx(2 / 3))
            for name in ("child", "parent")
        ],
        "TestProcessResults::test_with_groups": [([T1], IN_GROUP, "results/grp/sample_len", 3)],
        f"{HELD}preserves_sample_len": [([MINE], [], "results/my_task/sample_len", 4)],
        f"{HELD}alias_not_indented": [
            ([PLAIN], [group("grp", "fallback_task")], "results/fallback_task/alias", "fallback_task"),
            ([PLAIN], [group("grp", "fallback_task")], "results/grp/alias", "grp"),
            ([PLAIN], [group("grp", "fallback_task")], "groups/grp/alias", "grp"),
        ],
        f"{HELD}group_with_aggregation_in_group_results": [
            ([T1], IN_GROUP, f"{block}/grp/name", "grp") for block in ("results", "groups")
        ],
        f"{BLOCKS}results_contain_task_metrics": [([T1], [], "results/t1/acc,none", pytest.approx(2 / 3))],
        f"{BLOCKS}n_samples_effective_from_sample_len": [([T1], [], "n-samples/t1", {"original": 100, "effective": 3})],
        f"{BLOCKS}groups_key_present_when_group_has_aggregation": [([T1], IN_GROUP, "groups/grp/name", "grp")],
        f"{BLOCKS}higher_is_better_propagated_to_groups": [([T1], IN_GROUP, "higher_is_better/grp", {"acc": True})],
        "TestCollectResultsNSamples::test_n_samples_effective_equals_sample_len": [
            (PAIR, [], "n-samples/t1", {"original": 100, "effective": 3}),
            (PAIR, [], "n-samples/t2", {"original": 200, "effective": 1}),
        ],
        "TestCollectResultsNSamples::test_n_samples_original_from_eval_docs": [
            (
                [ran("t1", {"acc,none": [1.0, 0.5]}, documents=42)],
                [],
                "n-samples/t1",
                {"original": 42, "effective": 2},
            )
        ],
    },
)
def test_what_the_results_say(tasks, groups, path, expected):
    found = results(tasks, groups)
    for key in path.split("/"):
        found = found[key]
    assert found == expected


@ported(
    "test_group.py",
    "members",
    {"TestGroup::test_child_names_returns_keys": [(["task_a", "task_b"],)]},
)
def test_the_results_name_the_members_of_a_group(members):
    found = results([ran(name, {"acc,none": [1.0]}) for name in members], [group("g", *members)])
    assert found["group_subtasks"] == {"g": members}


@ported(
    FILE,
    "tasks, groups, block, names",
    {
        "TestAggregateGroups::test_no_groups_noop": [([MINE], [], "results", {"my_task"})],
        "TestProcessResults::test_without_groups": [
            ([MINE], [], "results", {"my_task"}),
            ([MINE], [], "groups", set()),
        ],
        f"{HELD}group_without_aggregation_not_in_group_results": [([T1], NAME_ONLY, "groups", set())],
        f"{HELD}task_only_in_task_results": [([T1, PLAIN], IN_GROUP, "groups", {"grp"})],
        f"{BLOCKS}groups_key_absent_when_no_group_has_aggregation": [([T1], NAME_ONLY, "groups", set())],
        f"{BLOCKS}groups_key_absent_when_no_groups": [([T1], [], "groups", set())],
    },
)
def test_who_is_in_a_block(tasks, groups, block, names):
    found = results(tasks, groups)
    assert set(found.get(block, ())) == names
    assert (block in found) is bool(names)


@ported(
    FILE,
    "blocks",
    {
        f"{BLOCKS}output_has_required_keys": [
            (["results", "group_subtasks", "configs", "versions", "n-shot", "higher_is_better", "n-samples"],)
        ]
    },
)
def test_the_blocks_of_the_results(blocks):
    assert [block for block in results([T1]) if block in blocks] == blocks


@ported(FILE, "block", {f"{BLOCKS}configs_sorted": [("configs",)], f"{BLOCKS}versions_sorted": [("versions",)]})
def test_a_block_sorted_by_name(block):
    assert list(results([PAIR[1], PAIR[0]])[block]) == ["t1", "t2"]


BETTER = "TestPropagateHigherIsBetter::test_"


@ported(
    FILE,
    "tasks, grouped, expected",
    {
        f"{BETTER}propagation_from_children": [({"t": {"acc": True}}, ["t"], {"acc": True})],
        f"{BETTER}conflicting_values_set_to_none": [
            ({"t1": {"acc": True}, "t2": {"acc": False}}, ["t1", "t2"], {"acc": None})
        ],
        f"{BETTER}no_children_in_higher_is_better": [({}, [], None)],
        f"{BETTER}multiple_metrics_mixed": [
            (
                {"t1": {"acc": True, "f1": True}, "t2": {"acc": True, "f1": False}},
                ["t1", "t2"],
                {"acc": True, "f1": None},
            )
        ],
        f"{BETTER}empty_groups_list": [({"t": {"acc": True}}, None, None)],
    },
)
def test_which_way_a_group_is_better(tasks, grouped, expected):
    held = [ran(name, {f"{one},none": [1.0] for one in better}, better=better) for name, better in tasks.items()]
    groups = [] if grouped is None else [group("grp", *grouped, entries=())]
    found = results(held, groups)["higher_is_better"]
    assert found.pop("grp", None) == expected
    assert found == tasks


def nest(names):
    """``a > b`` is a group in a group."""
    outer, _, inner = names.partition(" > ")
    return group(outer, *([nest(inner)] if inner else ["leaf"]))


ROOTS = "TestGetRootGroups::test_"
RISING = "TestCollectGroupsBottomUp::test_"
LEAF = ran("leaf", {"acc,none": [1.0, 0.0]})


@ported(
    FILE,
    "groups, expected",
    {
        f"{ROOTS}single_root_group": [(["root"], ["root"])],
        f"{ROOTS}root_excludes_children": [(["parent > child"], ["parent"])],
        f"{ROOTS}multiple_independent_roots": [(["a", "b"], ["a", "b"])],
        f"{ROOTS}empty_groups": [([], ["leaf"])],
        f"{ROOTS}deep_hierarchy": [(["gp > c > gc"], ["gp"])],
        f"{ROOTS}deep_hierarchy_multiple_roots": [(["gp1 > c1 > gc1", "gp2 > c2 > gc2"], ["gp1", "gp2"])],
    },
)
def test_the_table_begins_with_groups_that_are_in_no_other(groups, expected):
    lines = table(results([LEAF], [nest(names) for names in groups])).splitlines()[2:]
    names = [line.split("|")[1].rstrip() for line in lines]
    assert [name for name in names if not name.startswith(" ")] == expected


@ported(
    FILE,
    "groups, expected",
    {
        f"{RISING}single_group_no_children": [(["g"], ["g"])],
        f"{RISING}parent_child_order": [(["parent > child"], ["child", "parent"])],
        f"{RISING}deep_hierarchy_order": [(["gp > c > gc"], ["gc", "c", "gp"])],
        f"{RISING}no_duplicates": [(["p1 > shared", "p2 > shared"], ["shared", "p1", "p2"])],
        f"{RISING}empty_groups": [([], [])],
    },
)
def test_inner_groups_are_added_up_first(groups, expected):
    found = results([LEAF], [nest(names) for names in groups])["results"]
    assert [name for name in found if name != "leaf"] == expected


TABLES = Path(__file__).with_name("tables")


def read(text):
    """A results object of what a printed table says."""
    found = {"results": {}, "group_subtasks": {}, "versions": {}, "n-shot": {}, "higher_is_better": {}}
    outer = name = ""
    for line in text.splitlines()[2:]:
        alias, version, pipeline, shots, metric, arrow, value, _, _ = (cell for cell in line.split("|")[1:-1])
        if alias.strip():
            name = alias.strip().removeprefix("- ")
            if alias.startswith(" "):
                found["group_subtasks"].setdefault(outer, []).append(name)
            outer = name if not alias.startswith(" ") else outer
            found["versions"][name], found["n-shot"][name] = int(version), int(shots)
        row = found["results"].setdefault(name, {"alias": name})
        row[f"{metric.strip()},{pipeline.strip()}"] = float(value)
        row[f"{metric.strip()}_stderr,{pipeline.strip()}"] = "N/A"
        found["higher_is_better"].setdefault(name, {})[metric.strip()] = {"↑": True, "↓": False}[arrow.strip()]
    return found


@ported(
    "test_evaluator.py",
    "name",
    {"test_printed_results": [("ai2_arc",), ("mmlu_stem",), ("lambada_openai",), ("wikitext",)]},
)
def test_a_printed_table(name):
    text = (TABLES / f"{name}.txt").read_text(encoding="utf-8")
    assert table(read(text)).splitlines() == text.splitlines()
