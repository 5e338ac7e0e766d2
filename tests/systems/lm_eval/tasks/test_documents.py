import sys
from pathlib import Path

import pytest
from systems.lm_eval.tasks.given import config

from calipers.errors import InputError, PluginError
from calipers.systems.lm_eval.tasks.documents import load_splits, processed
from calipers.systems.lm_eval.tasks.task_file import TaskFile


def splits(path=None, **fields):
    return load_splits(config(task="t", **fields), TaskFile(path, fields))


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text(f'{{"q": "{name}"}}\n')
    (tmp_path / "c.jsonl").write_text('{"other": 1}\n{"q": "c"}\n')
    return tmp_path


@pytest.mark.parametrize(
    ("files", "split", "found"),
    [
        ("a.jsonl", "train", ["a"]),  # a path alone is the split train
        (["a.jsonl", "b.jsonl"], "train", ["a", "b"]),
        ("[ab].jsonl", "train", ["a", "b"]),
        ({"test": "b.jsonl", "dev": ["a.jsonl"]}, "test", ["b"]),
    ],
)
def test_data_files(data, files, split, found):
    rows = splits(dataset_path="json", dataset_kwargs={"data_files": files})[split]
    assert [row["q"] for row in rows] == found


def test_every_row_has_every_column(data):
    rows = splits(dataset_path="json", dataset_kwargs={"data_files": ["a.jsonl", "c.jsonl"]})["train"]
    assert rows == [{"q": "a", "other": None}, {"q": None, "other": 1}, {"q": "c", "other": None}]


def test_a_path_is_looked_for_here_and_then_beside_the_task(data, tmp_path):
    home = tmp_path / "tasks"
    home.mkdir()
    (home / "mine.jsonl").write_text('{"q": "mine"}\n')
    (home / "a.jsonl").write_text('{"q": "not this one"}\n')
    fields = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"x": "mine.jsonl", "y": "a.jsonl"}}}
    found = splits(home / "t.yaml", **fields)
    assert (found["x"], found["y"]) == ([{"q": "mine"}], [{"q": "a"}])


def test_a_folder_has_the_splits_that_its_names_tell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    for name in ("train-00.csv", "my_test.csv", "valid.csv", "notes.md"):
        (tmp_path / "data" / name).write_text(f"q\n{name}\n")
    for fields in ({"dataset_path": "data"}, {"dataset_path": "csv", "dataset_kwargs": {"data_dir": "data"}}):
        found = splits(**fields)
        assert sorted(found.readers) == ["test", "train", "validation"]
        assert found["test"] == [{"q": "my_test.csv"}]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "no dataset_path; expected one"),
        ({"dataset_path": "json"}, "no data_files; expected files"),
        (
            {"dataset_path": "json", "dataset_kwargs": {"data_files": "gone.jsonl"}},
            "no file gone.jsonl; expected it in .",
        ),
        ({"dataset_path": "json", "dataset_kwargs": {"data_files": {"a": 3}}}, "data_files: is 3; expected a path"),
        ({"dataset_path": "json", "dataset_kwargs": {"data_files": "a.jsonl", "feild": "x"}}, "did you mean 'field'"),
        ({"dataset_path": "json", "dataset_kwargs": {"data_dir": "gone"}}, "no folder gone"),
    ],
)
def test_data_that_is_not_there_is_refused(data, fields, said):
    with pytest.raises(InputError) as caught:
        splits(**fields)["train"]
    assert said in str(caught.value)


def test_a_split_that_is_not_there_is_refused_with_those_that_are(data):
    found = splits(dataset_path="json", dataset_kwargs={"data_files": {"dev": "a.jsonl", "train": "b.jsonl"}})
    with pytest.raises(InputError, match=r"dataset_path: the dataset has no split 'test'; it has dev, train$"):
        found["test"]


def test_a_library_that_is_there_and_broken_is_not_said_to_be_missing(tmp_path, monkeypatch):
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "__init__.py").write_text("import a_library_that_is_not_there\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "datasets", raising=False)
    with pytest.raises(InputError) as caught:
        splits(dataset_path="org/name")
    assert "datasets is installed but cannot be imported (No module named 'a_library" in str(caught.value)
    with pytest.raises(PluginError, match="the library datasets is installed but cannot be imported"):
        processed([{"q": 1}], lambda docs: docs.map(str), "here")


def test_a_dataset_of_the_hub_needs_the_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    for fields in (
        {"dataset_path": "openai/gsm8k"},
        {"dataset_path": "json", "dataset_kwargs": {"data_files": "https://example.org/x.jsonl"}},
    ):
        with pytest.raises(InputError, match=r"is a dataset of the hub; install calipers\[hf\]"):
            splits(**fields)


@pytest.mark.filterwarnings("ignore")  # the library's own, where it is installed
def test_the_library_reads_what_we_do_not(data):
    """The real loading code, on local data."""
    pytest.importorskip("datasets")
    from calipers.systems.lm_eval.tasks.documents import _library

    made = config(task="t", dataset_path="json")
    kwargs = {"data_files": {"test": str(data / "a.jsonl")}, "trust_remote_code": True}
    assert _library(made, kwargs, "here")["test"] == [{"q": "a"}]
    with pytest.raises(InputError, match="json cannot be loaded"):
        _library(made, {"data_files": str(data / "gone.jsonl")}, "here")


def test_a_dataset_of_the_tasks_own_making():
    def make(size, version=1, **rest):
        return {"test": [{"n": n} for n in range(size * version)], "rest": [rest]}

    fields = {"custom_dataset": make, "metadata": {"version": 2, "note": "x"}, "dataset_kwargs": {"size": 2}}
    found = splits(**fields)
    assert (found["test"], found["rest"]) == ([{"n": n} for n in range(4)], [{"note": "x"}])
    with pytest.raises(PluginError, match="make failed: TypeError"):
        splits(custom_dataset=make)
    with pytest.raises(PluginError, match="returns a list; expected a mapping of splits"):
        splits(custom_dataset=lambda: [])


@pytest.mark.filterwarnings("ignore")  # the library's own, where it is installed
def test_documents_are_processed_by_a_function_of_the_task():
    rows = [{"q": "a"}, {"q": "b"}]
    assert processed(rows, None, "here") is rows
    assert processed(rows, lambda docs: [{**doc, "n": 1} for doc in docs], "here") == [
        {"q": "a", "n": 1},
        {"q": "b", "n": 1},
    ]


def test_a_function_that_expects_the_librarys_dataset_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(PluginError, match=r"here: .* expects a datasets.Dataset; install calipers\[hf\]"):
        processed([{"q": 1}], lambda docs: docs.map(dict), "here")
    with pytest.raises(PluginError, match=r"here: failed: ZeroDivisionError"):
        processed([{"q": 1}], lambda docs: 1 / 0, "here")
    with pytest.raises(PluginError, match=r"here: returns a int; expected documents"):
        processed([{"q": 1}], lambda docs: 3, "here")


@pytest.mark.filterwarnings("ignore")  # the library's own, where it is installed
def test_with_the_library_a_function_gets_its_dataset():
    pytest.importorskip("datasets")
    found = processed([{"q": "a"}, {"q": "b"}], lambda docs: docs.filter(lambda doc: doc["q"] == "b"), "here")
    assert found == [{"q": "b"}]


def test_a_folder_is_named_once_where_it_is_both(data):
    asked = {"dataset_path": "json", "dataset_kwargs": {"data_files": "gone.jsonl"}}
    with pytest.raises(InputError, match=r"no file gone.jsonl; expected it in \.$"):
        splits(Path("task.yaml"), **asked)["train"]
