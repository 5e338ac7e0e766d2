import sys
from types import ModuleType

import pytest

from calipers.errors import InputError, PluginError
from calipers.systems.lm_eval.tasks.task_file import Function, load_function, refuse_untrusted, with_functions


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
        ("f = 3\n", "has nothing to call of that name"),
        ("def g(): pass\n", "has nothing to call of that name"),
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
    with pytest.raises(PluginError, match="leads out of the task's folder"):
        load_function(Function("utils", "f", tmp_path / "task"), "here")


def test_the_working_directory_is_no_place_to_import_from(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    (tmp_path / "lurking_module.py").write_text("def f(): pass\n")
    (tmp_path / "task").mkdir()
    with pytest.raises(PluginError, match="No module named 'lurking_module'"):
        load_function(Function("lurking_module", "f", tmp_path / "task"), "here")
