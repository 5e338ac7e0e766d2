import sys
from types import ModuleType

import pytest

from calipers.errors import InputError, PluginError
from calipers.systems.lm_eval import tasks
from calipers.systems.lm_eval.tasks import (
    Function,
    load_function,
    read_task_file,
    refuse_untrusted,
    with_functions,
)


def written(folder, **files):
    for name, text in files.items():
        (folder / name.replace("_yaml", ".yaml")).write_text(text)
    return folder / "t.yaml"


def test_a_function_is_a_name_and_runs_nothing(tmp_path):
    (tmp_path / "utils.py").write_text("raise SystemExit('run')")
    path = written(
        tmp_path, t_yaml="task: t\nprocess_docs: !function utils.f\nmetric_list:\n  - metric: !function a.b.g\n"
    )
    values = read_task_file(path).values
    assert values["process_docs"] == Function("utils", "f", tmp_path)
    assert values["metric_list"] == [{"metric": Function("a.b", "g", tmp_path)}]
    assert str(values["process_docs"]) == "!function utils.f"


def test_a_function_of_an_included_file_is_looked_for_beside_that_file(tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "base").write_text("process_docs: !function utils.f\n")
    path = written(tmp_path, t_yaml="include: shared/base\ntask: t\n")
    assert read_task_file(path).values["process_docs"].folder == tmp_path / "shared"


def test_a_key_is_placed_where_it_stands_also_in_an_included_file(tmp_path):
    path = written(tmp_path, base="a: 1\nb: 2\n", t_yaml="include: base\ntask: t\n\nb: 3\n")
    file = read_task_file(path)
    assert file.location("b") == f"{path}:4: b"
    assert file.location("a") == f"{tmp_path}/base:1: a"
    assert file.location("absent") == f"{path}: absent"


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1, 2\n", ":2: is not valid YAML ("),
        ("a: b: c\n", ":1: is not valid YAML (mapping values are not allowed in this context"),
        ("- a\n", ": is a list; expected a mapping"),
        ("a: !!python/object/apply:os.system [ls]\n", ":1: is not valid YAML (could not determine a constructor"),
        ("a: !other b\n", ":1: is not valid YAML (could not determine a constructor"),
        ("a: !function utils\n", ":1: is not valid YAML (!function 'utils'; expected module.name"),
        ("a: !function ../x.f\n", ":1: is not valid YAML (!function"),
        ("a: 2024-13-45\n", ": is not valid YAML (month must be in 1..12"),
        ("a: &x [*x]\n", ":1: *x contains itself; expected values without a cycle"),
        (BOMB, ":8: its aliases expand to more than the limit; expected a task file"),
        (BOMB.replace("[", "{<<: [").replace("]", "]}"), ""),  # the same through merge keys
        ("a: " + "[" * 100_000, ":1: more than 64 levels deep; expected a task file"),
        ("include: absent\n", ":1: include: no file"),
        ("include: {a: b}\n", ":1: include: is {'a': 'b'}; expected a path or a list of paths"),
        ("include: t.yaml\n", ":1: include: t.yaml is included twice"),
    ],
)
def test_what_is_no_task_file_is_refused_with_its_line(tmp_path, text, said):
    path = written(tmp_path, t_yaml=text)
    with pytest.raises(InputError) as caught:
        read_task_file(path)
    assert str(caught.value).startswith(f"{path}{said}")


def test_an_alias_within_reason_is_followed(tmp_path):
    path = written(tmp_path, t_yaml="a: &a {x: 1}\nb: {<<: *a, y: 2}\nc: *a\n")
    assert read_task_file(path).values == {"a": {"x": 1}, "b": {"x": 1, "y": 2}, "c": {"x": 1}}


def test_a_file_too_large_or_in_no_unicode_is_refused(tmp_path, monkeypatch):
    path = written(tmp_path, t_yaml="a: bbbb\n")
    monkeypatch.setattr(tasks, "LARGEST", 4)
    with pytest.raises(InputError, match=r"larger than 0 MiB"):
        read_task_file(path)
    monkeypatch.undo()
    path.write_bytes(b"a: \xff\n")
    with pytest.raises(InputError, match=r"byte 4 is not UTF-8"):
        read_task_file(path)


def test_a_cycle_through_another_file_names_both(tmp_path):
    path = written(tmp_path, t_yaml="include: b.yaml\ntask: t\n", b_yaml="include: t.yaml\n")
    with pytest.raises(InputError, match=r"b\.yaml:1: include: t\.yaml is included twice, also by .*t\.yaml"):
        read_task_file(path)


def test_a_function_is_refused_until_it_is_trusted(tmp_path):
    value = [{"metric": "acc"}, {"metric": Function("utils", "f", tmp_path)}]
    with pytest.raises(InputError, match=r"t\.yaml:3: metric_list: is !function utils\.f, .*; .* run it with --trust$"):
        refuse_untrusted(value, "t.yaml:3: metric_list")
    refuse_untrusted([{"metric": "acc"}], "here")


def test_trusted_it_is_loaded_from_beside_its_file(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "deep.py").write_text("import beside\ndef f(doc): return beside.NAME + doc\n")
    (tmp_path / "sub" / "beside.py").write_text("NAME = 'x'\n")
    function = Function("sub.deep", "f", tmp_path)
    found = with_functions({"a": [function], "b": 1}, "here")
    assert (found["a"][0]("y"), found["b"]) == ("xy", 1)
    assert load_function(function, "here") is found["a"][0]  # its module is loaded once
    assert str(tmp_path / "sub") not in sys.path
    sys.modules.pop("beside")


def test_two_tasks_may_have_a_file_of_the_same_name(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "utils.py").write_text(f"def f(): return {name!r}\n")
    found = [load_function(Function("utils", "f", tmp_path / name), "here")() for name in ("one", "two")]
    assert found == ["one", "two"]


def test_what_is_not_beside_it_is_imported(tmp_path):
    import json

    assert load_function(Function("json", "dumps", tmp_path), "here") is json.dumps


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1/0\n", "cannot be loaded: ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)\n", "cannot be loaded: SystemExit: 3"),
        ("f = 3\n", "has no function of that name"),
        ("def g(): pass\n", "has no function of that name"),
        ("import lm_eval.api\n", "it imports lm_eval, which is not installed; it works only where"),
        ("import datasets\n", "it imports datasets, which is not installed; install calipers[hf]"),
    ],
)
def test_what_cannot_be_loaded_says_why(tmp_path, monkeypatch, text, said):
    for name in ("lm_eval", "datasets"):
        monkeypatch.setitem(sys.modules, name, None)
    (tmp_path / "utils.py").write_text(text)
    with pytest.raises(PluginError) as caught:
        load_function(Function("utils", "f", tmp_path), "t.yaml:3: process_docs")
    assert str(caught.value).startswith("t.yaml:3: process_docs: !function utils.f")
    assert said in str(caught.value)


def test_a_library_that_is_installed_is_not_said_to_be_missing(tmp_path, monkeypatch):
    library = ModuleType("datasets")
    monkeypatch.setitem(sys.modules, "datasets", library)
    (tmp_path / "utils.py").write_text("from datasets import load_metric\n")
    with pytest.raises(PluginError) as caught:
        load_function(Function("utils", "f", tmp_path), "t.yaml:3: process_docs")
    assert "not installed" not in str(caught.value)
    assert "ImportError: cannot import name 'load_metric' from 'datasets'" in str(caught.value)


def test_a_link_out_of_the_tasks_folder_is_not_followed(tmp_path):
    (tmp_path / "outside.py").write_text("def f(): pass\n")
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "utils.py").symlink_to(tmp_path / "outside.py")
    with pytest.raises(PluginError, match="is outside the task's folder"):
        load_function(Function("utils", "f", tmp_path / "task"), "here")


def test_the_working_directory_is_no_place_to_import_from(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    (tmp_path / "lurking_module.py").write_text("def f(): pass\n")
    (tmp_path / "task").mkdir()
    with pytest.raises(PluginError, match="No module named 'lurking_module'"):
        load_function(Function("lurking_module", "f", tmp_path / "task"), "here")
