import pytest

from calipers.errors import InputError, UnknownName
from calipers.systems.lm_eval.tasks.groups import Leaf, TaskGroup, Tasks, heads, leaves

BASE = "dataset_path: json\ntest_split: test\ndoc_to_text: q\ndoc_to_target: a\n"


@pytest.fixture
def home(tmp_path):
    files = {
        "_base": BASE + "tag: all_of_them\nnum_fewshot: 1\n",
        "a.yaml": "include: _base\ntask: a\n",
        "b.yaml": "include: _base\ntask: b\ntag: [all_of_them, some]\nrepeats: 2\n",
        "deep/c.yaml": "include: ../_base\ntask: c\ntask_alias: See\n",
        "inner.yaml": "group: inner\ntask: [b]\n",
        "outer.yaml": "group: outer\ngroup_alias: Outer\ntask:\n  - a\n  - inner\n  - {task: c, num_fewshot: 5}\n"
        "num_fewshot: 3\naggregate_metric_list:\n  - metric: exact_match\nmetadata: {version: 1}\n",
        "notes.yaml": "just: notes\n",
        "broken.yaml": "task: [\n",
        "python.yaml": "task: written\nclass: !function code.Task\n",
        "__pycache__/x.yaml": "task: never\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def shots(nodes):
    return {leaf.name: leaf.config.num_fewshot for leaf in leaves(nodes)}


def test_the_head_of_a_file_is_read_without_the_rest(home):
    found = {head.name: (head.kind, list(head.tags)) for head in heads(home)}
    assert found == {
        "a": ("task", ["all_of_them"]),  # a tag may come by an include
        "b": ("task", ["all_of_them", "some"]),
        "c": ("task", ["all_of_them"]),
        "inner": ("group", []),
        "outer": ("group", []),
        "written": ("class", []),
    }


def test_a_name_a_tag_a_pattern_and_a_file(home):
    tasks = Tasks([home])
    assert [leaf.name for leaf in leaves(tasks.find("a"))] == ["a"]
    assert [leaf.name for leaf in leaves(tasks.find("all_of_them"))] == ["a", "b", "c"]
    assert [leaf.name for leaf in leaves(Tasks([home]).find("?"))] == ["a", "b", "c"]
    assert [leaf.name for leaf in leaves(Tasks().find(str(home / "b.yaml")))] == ["b"]


def test_overrides_of_a_group_reach_its_members_and_theirs_win(home):
    [outer] = Tasks([home]).find("outer")
    assert isinstance(outer, TaskGroup)
    assert (outer.alias, outer.metadata, list(outer.aggregate_metric_list)) == (
        "Outer",
        {"version": 1},
        [{"metric": "exact_match"}],
    )
    assert [type(member) for member in outer.members] == [Leaf, TaskGroup, Leaf]
    assert shots([outer]) == {"a": 3, "b": 3, "c": 5}
    assert shots(Tasks([home]).find("inner")) == {"b": 1}


def test_the_metadata_beside_the_name_of_a_group_is_that_of_its_tasks(home):
    (home / "g.yaml").write_text("group: g\ntask:\n  - {group: outer, num_fewshot: 4, metadata: {version: 9}}\n")
    [group] = Tasks([home]).find("g")
    assert [(leaf.name, leaf.config.version) for leaf in leaves([group])] == [("a", 9), ("b", 9), ("c", 9)]
    assert group.members[0].metadata == {"version": 1}  # a group keeps its own


def test_inline_tasks_and_groups_are_named_after_their_group(tmp_path):
    (tmp_path / "base").write_text(BASE)
    (tmp_path / "g.yaml").write_text(
        "group: g\n"
        "task:\n"
        "  - {task: one, include: base, repeats: 3}\n"
        "  - group: part\n"
        "    task:\n"
        "      - {task: two, dataset_path: csv, test_split: dev}\n"
        "    num_fewshot: 2\n"
    )
    [group] = Tasks([tmp_path]).find("g")
    assert [(leaf.name, leaf.config.repeats, leaf.config.num_fewshot) for leaf in leaves([group])] == [
        ("g::one", 3, None),
        ("g::part::two", 1, 2),
    ]
    assert group.members[1].name == "g::part"


def test_a_later_folder_hides_an_earlier_one_and_the_first_file_wins_inside_one(tmp_path):
    for name, repeats in (("one/x.yaml", 1), ("one/y.yaml", 2), ("two/z.yaml", 3)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"task: t\nrepeats: {repeats}\n")
    one, two = tmp_path / "one", tmp_path / "two"
    assert [leaf.config.repeats for leaf in leaves(Tasks([one]).find("t"))] == [1]
    assert [leaf.config.repeats for leaf in leaves(Tasks([one, two]).find("t"))] == [3]
    assert [leaf.config.repeats for leaf in leaves(Tasks([two, one]).find("t"))] == [1]


def test_a_format_is_picked_after_an_at_sign(tmp_path):
    (tmp_path / "t.yaml").write_text("task: t\nformats: {mcqa: null, cloze: null, generate: null}\n")
    kinds = [leaves(Tasks([tmp_path]).find(name))[0].config.output_type for name in ("t", "t@cloze", "t@generate")]
    assert kinds == ["multiple_choice", "multiple_choice", "generate_until"]


@pytest.mark.parametrize(
    ("files", "asked", "said"),
    [
        ({}, "outr", "no task, group or tag named 'outr'; did you mean 'outer'"),
        ({}, "zz*", "no task, group or tag named 'zz*'"),
        ({"g.yaml": "group: g\ntask: [a, gone]\n"}, "g", "g.yaml:2: task: no task, group or tag named 'gone'"),
        ({"g.yaml": "group: g\ntask: [a, inner, b]\n"}, "g", "b: the task is requested twice"),
        ({"g.yaml": "group: g\ntask: a\n"}, "g", "g.yaml:2: task: is 'a'; expected a list of tasks"),
        ({"g.yaml": "group: g\ntask: [3]\n"}, "g", "g.yaml:2: task: a member is 3; expected a name or a mapping"),
        (
            {"g.yaml": "group: g\ntask: [g]\n"},
            "g",
            ("g.yaml:1: group: groups contain each other; expected groups without a cycle"),
        ),
        (
            {"g.yaml": "group: g\ntask: [a]\nnum_fewshto: 1\n"},
            "g",
            "g.yaml:3: num_fewshto: no field of a group or task",
        ),
        ({"g.yaml": "group: g\ntask: [a]\nnum_fewshot: x\n"}, "g", "num_fewshot: is 'x'; expected an integer"),
        ({"g.yaml": "group: g\ntask: [{task: gone}]\n"}, "g", "g.yaml:2: task: no task, group or tag named 'gone'"),
        (
            {"g.yaml": "group: g\ntask: [a]\naggregate_metric_list: [{metric: acc, aggregation: max}]\n"},
            "g",
            "g.yaml:3: aggregate_metric_list[0].aggregation: is 'max'; expected mean",
        ),
        (
            {"g.yaml": "group: g\ntask: [a]\naggregate_metric_list: [{metric: acc}, {metric: f1, aggregation: max}]\n"},
            "g",
            "g.yaml:3: aggregate_metric_list[1].aggregation: is 'max'; expected mean",
        ),
        *(  # all of it found before a model is asked, and not at the end of the run
            ({"g.yaml": f"group: g\ntask: [a]\naggregate_metric_list: [{{metric: acc, {entry}}}]\n"}, "g", said)
            for entry, said in [
                ("weight_by_sise: false", "g.yaml:3: aggregate_metric_list[0]: no key of aggregate_metric_list named"),
                ("weight_by_size: 'no'", "[0].weight_by_size: is 'no'; expected true or false"),  # a text is true
                ("filter_list: {a: b}", "[0].filter_list: is {'a': 'b'}; expected a pipeline, or a list of them"),
                ("filter_list: [1]", "[0].filter_list: is [1]; expected a pipeline, or a list of them"),
                ("aggregation: 5", "[0].aggregation: is 5; expected mean"),
            ]
        ),
        (  # the mistake is in the group's file, not in the task's
            {"g.yaml": "group: g\ntask: [{task: a, doc_to_txt: x}]\n"},
            "g",
            "g.yaml:2: task: no field of a task named 'doc_to_txt'; did you mean 'doc_to_text'",
        ),
        (
            {"g.yaml": "group: g\ntask: [a]\naggregate_metric_list: [acc]\n"},
            "g",
            "expected a mapping with metric: NAME",
        ),
        (
            {"g.yaml": "group: g\ntask: [a]\naggregate_metric_list: [{aggregation: mean}]\n"},
            "g",
            "expected a mapping with metric: NAME",
        ),
        ({}, "t@mcqa", "no task, group or tag named 't'"),
        ({}, "a@mcqa", "the task has no formats, so none called 'mcqa'"),
    ],
)
def test_what_cannot_be_found_is_refused(home, files, asked, said):
    for name, text in files.items():
        (home / name).write_text(text)
    with pytest.raises(InputError) as caught:
        leaves(Tasks([home]).find(asked))
    assert said in str(caught.value)


def test_a_class_is_found_and_not_loaded(home):
    (leaf,) = leaves(Tasks([home]).find("written"))
    assert (leaf.name, str(leaf.code), leaf.config.repeats) == ("written", "!function code.Task", 1)


def test_a_member_that_is_listed_twice_is_one(home):
    (home / "g.yaml").write_text("group: g\ntask: [a, b, {task: a, repeats: 3}]\n")
    (group,) = Tasks([home]).find("g")
    assert [(leaf.name, leaf.config.repeats) for leaf in leaves([group])] == [("a", 3), ("b", 2)]  # the last, as there


def test_a_function_for_a_metric_of_a_group_is_the_name_of_no_number(home):
    (home / "g.yaml").write_text("group: g\ntask: [a]\naggregate_metric_list: [{metric: !function code.bleu}]\n")
    (group,) = Tasks([home]).find("g")
    assert group.aggregate_metric_list == [{"metric": "!function code.bleu"}]


def test_a_broken_file_is_passed_over_until_it_is_asked_for(home):
    assert "broken" not in Tasks([home]).heads
    with pytest.raises(InputError, match=r"broken\.yaml:2: is not valid YAML"):
        Tasks([home]).find(str(home / "broken.yaml"))
    with pytest.raises(InputError, match=r"notes\.yaml: task: has no task and no group"):
        Tasks([home]).find(str(home / "notes.yaml"))


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such folder; expected a folder of task files"):
        Tasks([tmp_path / "gone"])
    with pytest.raises(UnknownName):
        Tasks([tmp_path]).find("anything")


def test_an_unknown_name_lists_no_more_names_than_one_can_read(tmp_path):
    for number in range(101):
        (tmp_path / f"task{number}.yaml").write_text(f"task: task{number}\ndataset_path: json\n")
    with pytest.raises(UnknownName, match=r"named 'zzz'; calipers list tasks shows 101 names$"):
        Tasks([tmp_path]).find("zzz")
    with pytest.raises(UnknownName, match=r"named 'task'; did you mean 'task"):
        Tasks([tmp_path]).find("task")


@pytest.mark.parametrize("member", ["a", "{task: a, num_fewshot: 1}"])
def test_a_group_by_its_file_alone_says_where_its_tasks_could_come_from(tmp_path, member):
    (tmp_path / "g.yaml").write_text(f"group: g\ntask: [{member}]\n")
    with pytest.raises(InputError, match=r"named 'a'; known: \(none\); give the folder of the group's tasks with"):
        Tasks().find(str(tmp_path / "g.yaml"))


@pytest.mark.parametrize(
    "entry",
    [
        "{metric: exact_match, aggregation: !function code.average, weight_by_size: false}",  # as lingoly has it
        "{metric: exact_match, aggregation: mean, weight_by_size: truez}",  # as a group of score has it
    ],
)
def test_what_shipped_groups_say_is_taken_as_there(home, entry):
    (home / "g.yaml").write_text(f"group: g\ntask: [a]\naggregate_metric_list: [{entry}]\n")
    (group,) = Tasks([home]).find("g")
    (held,) = group.aggregate_metric_list
    assert held["aggregation"] == "mean"
    assert bool(held["weight_by_size"]) == ("truez" in entry)
