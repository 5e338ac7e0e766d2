"""Task files: includes, functions, tags, groups and what they pass on, folders that hide one another."""

from __future__ import annotations

import pytest
from golden.lm_eval_own.folders import FIELDS, FILES, LIBRARY, folder
from golden.lm_eval_own.ported import ported

from calipers.errors import InputError
from calipers.systems.lm_eval.tasks import Function, read_task_file, with_functions
from calipers.systems.lm_eval.tasks.groups import Leaf, TaskGroup, Tasks, heads, leaves

FILE = "test_task_manager.py"
LOADER = "TestConfigLoader::test_load_yaml_"


@ported(
    FILE,
    "files, expected",
    {
        "TestConfigLoader::test_load_simple_yaml": [
            (
                {"one": "task: simple_test\ndataset_path: test_dataset\noutput_type: generate_until\n"},
                {"task": "simple_test", "dataset_path": "test_dataset", "output_type": "generate_until"},
            )
        ],
        f"{LOADER}with_include": [
            (
                {
                    "base": "dataset_path: base_dataset\noutput_type: multiple_choice\nnum_fewshot: 5\n",
                    "one": "include: base.yaml\ntask: child_task\nnum_fewshot: 10\n",
                },
                {
                    "task": "child_task",
                    "num_fewshot": 10,
                    "dataset_path": "base_dataset",
                    "output_type": "multiple_choice",
                },
            )
        ],
        f"{LOADER}recursive_includes": [
            (
                {
                    "old": "output_type: generate_until\nmetric_list: [{metric: exact_match}]\n",
                    "mid": "include: old.yaml\ndataset_path: parent_dataset\n",
                    "one": "include: mid.yaml\ntask: nested_task\n",
                },
                {"task": "nested_task", "dataset_path": "parent_dataset", "output_type": "generate_until"},
            )
        ],
    },
)
def test_a_file_and_what_it_includes(tmp_path, files, expected):
    found = read_task_file(folder(tmp_path, files) / "one.yaml").values
    assert {key: found[key] for key in expected} == expected


WITH_CODE = {
    "one": "task: func_test\nprocess_docs: !function utils.my_processor\n",
    "utils.py": "def my_processor(doc):\n    return doc\n",
}


@ported(FILE, "files", {f"{LOADER}without_function_resolution": [(WITH_CODE,)]})
def test_a_function_is_read_as_a_name(tmp_path, files):
    found = read_task_file(folder(tmp_path, files) / "one.yaml").values["process_docs"]
    assert isinstance(found, Function)
    assert "utils.my_processor" in str(found)


@ported(FILE, "files", {f"{LOADER}with_function_tag_resolved": [(WITH_CODE,)]})
def test_a_function_is_loaded_where_it_is_trusted(tmp_path, files):
    found = with_functions(read_task_file(folder(tmp_path, files) / "one.yaml").values, "one.yaml")
    assert found["process_docs"]({"a": 1}) == {"a": 1}


CIRCLE = {"one": "include: two.yaml\ntask: a\n", "two": "include: one.yaml\ntask: b\n"}


@ported(FILE, "files", {f"{LOADER}cycle_detection": [(CIRCLE,)]})
def test_files_that_include_one_another_are_refused(tmp_path, files):
    with pytest.raises(InputError, match=r"one\.yaml"):
        read_task_file(folder(tmp_path, files) / "one.yaml")


INDEX = "TestTaskIndex::test_"
PLAIN = "dataset_path: t\n"


@ported(
    FILE,
    "files, expected",
    {
        f"{INDEX}build_from_directory": [({"one": f"task: test_task\n{PLAIN}"}, [("test_task", "task")])],
        f"{INDEX}deterministic_traversal": [
            (
                {f"{name}_task": f"task: {name}_task\n{PLAIN}" for name in "zam"},
                [("a_task", "task"), ("m_task", "task"), ("z_task", "task")],
            )
        ],
        f"{INDEX}kind_detection_task": [({"one": f"task: my_task\n{PLAIN}"}, [("my_task", "task")])],
        f"{INDEX}kind_detection_group": [({"one": "group: my_group\ntask: [task1, task2]\n"}, [("my_group", "group")])],
        f"{INDEX}kind_detection_py_task": [({"one": "task: my_task\nclass: SomeClass\n"}, [("my_task", "class")])],
        f"{INDEX}ignore_pycache": [({"__pycache__/one.yaml": f"task: should_ignore\n{PLAIN}"}, [])],
    },
)
def test_what_is_in_a_folder(tmp_path, files, expected):
    assert [(head.name, head.kind) for head in heads(folder(tmp_path, files))] == expected


@ported(
    FILE,
    "files, name, expected",
    {
        f"{INDEX}duplicate_task_detection": [
            ({f"dir{n}/one.yaml": f"task: twice\ndataset_path: from_{n}\n" for n in (1, 2)}, "twice", "dir1")
        ],
        f"{INDEX}duplicate_group_detection": [
            ({f"dir{n}/one.yaml": "group: twice\ntask: [task1]\n" for n in (1, 2)}, "twice", "dir1")
        ],
    },
)
def test_of_two_files_with_one_name_the_first_counts(tmp_path, files, name, expected):
    assert Tasks([folder(tmp_path, files)]).heads[name].path.parent.name == expected


CLASS = {"one": "task: my_python_task\nclass: !function code.Task\ntag: [my-tag]\n"}


@ported(
    FILE,
    "files, tag, names",
    {
        f"{INDEX}tag_registration": [
            ({"one": f"task: tagged_task\ntag: my_custom_tag\n{PLAIN}"}, "my_custom_tag", ["tagged_task"])
        ],
        "test_python_task_inclusion": [(CLASS, "my-tag", ["my_python_task"])],
    },
)
def test_a_tag_knows_its_tasks(tmp_path, files, tag, names):
    found = Tasks([folder(tmp_path, files)])
    assert (found.tags, list(found.heads)) == ({tag: names}, names)


MANAGED = "TestTaskManagerIntegration::test_"
LOADED = "TestTaskManagerLoad::test_"
TAGGED = ["tag_task_1", "tag_task_2", "tag_task_3"]
INLINE = ["test_group::group_task_fs0", "test_group::group_task_fs2"]


@ported(
    FILE,
    "asked, expected",
    {
        f"{MANAGED}load_task_by_name": [("simple_task", ["simple_task"])],
        f"{MANAGED}load_group_by_name": [("test_group", INLINE)],
        f"{MANAGED}load_tag_by_name": [("ai2_arc", ["arc_challenge", "arc_easy"])],
        f"{MANAGED}match_tasks_glob": [("arc_*", ["arc_challenge", "arc_easy"])],
        f"{MANAGED}tag_expansion_in_group": [("tag_subgroup", TAGGED)],
        f"{MANAGED}nested_group_with_tag": [("tag_parent_group", TAGGED)],
        f"{MANAGED}include_resolution": [("include_task_fs5", ["include_task_fs5"])],
        f"{MANAGED}include_group": [("include_group", ["include_task_fs0", "include_task_fs1", "include_task_fs5"])],
        f"{LOADED}load_task_by_name": [("simple_task", ["simple_task"])],
        f"{LOADED}load_group_by_name": [("test_group", INLINE)],
        f"{LOADED}load_returns_same_tasks_as_legacy": [("test_group", INLINE)],
        f"{LOADED}load_tag_by_name": [("ai2_arc", ["arc_challenge", "arc_easy"])],
        f"{LOADED}tag_expansion_in_group": [("tag_subgroup", TAGGED)],
        f"{LOADED}nested_group_with_tag": [("tag_parent_group", TAGGED)],
        "TestGroupBuilding::test_deeply_nested_get_all_tasks_recursive": [
            ("group_ref_parent", ["include_task_fs0", "include_task_fs1", "include_task_fs5"])
        ],
    },
)
def test_the_tasks_that_a_name_stands_for(tmp_path, asked, expected):
    assert [leaf.name for leaf in leaves(Tasks([folder(tmp_path, FILES | LIBRARY)]).find(asked))] == expected


BUILT = "TestGroupBuilding::test_"


def shape(node):
    return node.name if isinstance(node, Leaf) else {node.name: [shape(member) for member in node.members]}


SUBGROUPS = {
    "inline_subgroup_parent": [
        {"inline_subgroup_parent::subgroup_a": ["simple_task"]},
        {"inline_subgroup_parent::subgroup_b": ["simple_task_b"]},
    ]
}
MIXED = {
    "mixed_members_group": ["simple_task", "simple_task_b", {"mixed_members_group::mixed_inline_sub": ["simple_task"]}]
}


@ported(
    FILE,
    "asked, expected",
    {
        f"{MANAGED}inline_subgroup_syntax": [("inline_subgroup_parent", SUBGROUPS)],
        f"{MANAGED}group_loading": [("test_group", {"test_group": INLINE})],
        f"{LOADED}load_group_map": [("test_group", {"test_group": INLINE})],
        f"{BUILT}existing_group_ref_has_children": [
            (
                "group_ref_parent",
                {"group_ref_parent": [{"include_group": [f"include_task_fs{shots}" for shots in (0, 1, 5)]}]},
            )
        ],
        f"{BUILT}mixed_members_string_ref": [("mixed_members_group", MIXED)],
        f"{BUILT}mixed_members_inline_subgroup": [("mixed_members_group", MIXED)],
        f"{BUILT}deeply_nested_get_all_tasks_non_recursive": [
            ("tag_parent_group", {"tag_parent_group": [{"tag_subgroup": TAGGED}]})
        ],
    },
)
def test_the_groups_that_a_name_stands_for(tmp_path, asked, expected):
    [found] = Tasks([folder(tmp_path, FILES)]).find(asked)
    assert shape(found) == expected


@ported(
    FILE,
    "asked, field, expected",
    {
        f"{MANAGED}include_inheritance_override": [
            ("include_task_fs5", "num_fewshot", [5]),
            ("include_task_fs5", "dataset_path", ["json"]),
        ],
        f"{MANAGED}include_custom_metrics": [
            ("include_task_fs5", "metric_list", [[{"metric": "acc"}, {"metric": "acc_norm"}]])
        ],
        f"{LOADED}include_inheritance_override": [
            ("include_task_fs5", "num_fewshot", [5]),
            ("include_task_fs5", "dataset_path", ["json"]),
        ],
        f"{LOADED}include_custom_metrics": [
            ("include_task_fs5", "metric_list", [[{"metric": "acc"}, {"metric": "acc_norm"}]])
        ],
        f"{BUILT}existing_group_ref_overrides_propagate": [("group_ref_parent", "num_fewshot", [99, 99, 99])],
        f"{BUILT}group_level_config_propagates_to_children": [("propagation_group", "num_fewshot", [42, 42])],
        f"{BUILT}caller_overrides_beat_group_defaults": [("asked_otherwise", "num_fewshot", [0, 0])],
    },
)
def test_a_field_of_the_tasks(tmp_path, asked, field, expected):
    found = leaves(Tasks([folder(tmp_path, FILES)]).find(asked))
    assert [getattr(leaf.config, field) for leaf in found] == expected


@ported(
    FILE, "member, shots", {f"{BUILT}mixed_members_dict_with_overrides": [("simple_task_b", 7), ("simple_task", 1)]}
)
def test_a_member_of_a_group_may_say_more(tmp_path, member, shots):
    [found] = Tasks([folder(tmp_path, FILES)]).find("mixed_members_group")
    assert [one.config.num_fewshot for one in found.members if one.name == member] == [shots]


TWO = "[{metric: acc, weight_by_size: true}, {metric: f1, weight_by_size: false}]"


@ported(
    FILE,
    "text, expected",
    {
        f"{BUILT}parse_aggregation_with_list": [(f"aggregate_metric_list: {TWO}\n", [("acc", True), ("f1", False)])],
        f"{BUILT}parse_aggregation_single_dict_normalized": [
            ("aggregate_metric_list: {metric: acc, weight_by_size: true}\n", [("acc", True)])
        ],
        f"{BUILT}parse_aggregation_missing_returns_none": [("", []), ("aggregate_metric_list: null\n", [])],
    },
)
def test_what_a_group_adds_up(tmp_path, text, expected):
    home = folder(tmp_path, {"one": f"task: one\n{FIELDS}", "group": f"group: test\ntask: [one]\n{text}"})
    [found] = Tasks([home]).find("test")
    assert [(entry["metric"], entry["weight_by_size"]) for entry in found.aggregate_metric_list] == expected


@ported(FILE, "name", {f"{BUILT}group_alias_preserved": [("include_group",)]})
def test_a_group_without_an_alias_goes_by_its_name(tmp_path, name):
    [found] = Tasks([folder(tmp_path, FILES)]).find(name)
    assert isinstance(found, TaskGroup)
    assert found.alias == name


def test_a_group_of_nothing_is_refused(tmp_path):
    """There it is a row without a number; docs/dialects.md says so."""
    with pytest.raises(InputError, match=r"empty_group\.yaml: task: is None; expected a list of tasks"):
        Tasks([folder(tmp_path, FILES)]).find("empty_group")


def test_a_task_twice_in_one_group_is_refused_when_it_is_run(tmp_path):
    """There it is asked once and counts twice; docs/dialects.md says so."""
    with pytest.raises(InputError, match="simple_task: the task is requested twice"):
        leaves(Tasks([folder(tmp_path, FILES)]).find("mixed_members_group"))


CUSTOM = f"task: arc_easy\nmetadata: {{version: 2.0}}\n{FIELDS}".replace("metric: acc,", "metric: f1,")
OTHER = f"task: arc_custom_generation\n{FIELDS}"


@ported(
    FILE,
    "mine, metric",
    {
        f"{MANAGED}include_path_precedence": [({"arc_easy": CUSTOM}, "f1"), ({}, "acc")],
        f"{LOADED}include_path_precedence": [({"arc_easy": CUSTOM}, "f1"), ({}, "acc")],
    },
)
def test_a_later_folder_hides_an_earlier_one(tmp_path, mine, metric):
    (tmp_path / "mine").mkdir()
    found = Tasks([folder(tmp_path / "library", LIBRARY), folder(tmp_path / "mine", mine)])
    [leaf] = leaves(found.find("arc_easy"))
    assert [entry["metric"] for entry in leaf.config.metric_list] == [metric]


SIMPLE = {"simple_task": FILES["simple_task"]}
ARC = {"arc_easy", "arc_challenge", "hellaswag"}


@ported(
    FILE,
    "roots, names",
    {
        f"{MANAGED}include_path": [([SIMPLE], {"simple_task"})],
        f"{MANAGED}include_defaults_false": [([SIMPLE], {"simple_task"})],
        f"{MANAGED}include_defaults_false_with_custom_path": [([{"one": OTHER}], {"arc_custom_generation"})],
        f"{MANAGED}include_defaults_true_with_new_tasks": [
            ([LIBRARY, {"one": OTHER}], {"arc_custom_generation", *ARC})
        ],
        f"{MANAGED}name_is_registered": [([LIBRARY], ARC)],
    },
)
def test_the_names_of_some_folders(tmp_path, roots, names):
    found = Tasks([folder(tmp_path / str(place), files) for place, files in enumerate(roots)])
    assert set(found.heads) == names
    assert "nonexistent_task_xyz" not in found.heads


@ported(FILE, "task, tag", {f"{MANAGED}name_is_task_tag": [("arc_easy", "ai2_arc")]})
def test_a_tag_is_no_task(tmp_path, task, tag):
    found = Tasks([folder(tmp_path, LIBRARY)])
    assert found.heads[task].kind == "task"
    assert tag in found.tags
    assert tag not in found.heads
