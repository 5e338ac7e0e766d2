import sys
from types import SimpleNamespace

import pytest
from systems.lm_eval.tasks.given import config

from calipers.errors import InputError
from calipers.systems.lm_eval.benchmarks import LoadedTasks, TaskRequest
from calipers.systems.lm_eval.tasks import TaskFile
from calipers.systems.lm_eval.tasks.documents import load_splits


@pytest.fixture
def library(monkeypatch):
    """A stand-in for the library ``datasets`` that records its calls."""
    asked = []

    def load_dataset(path, name=None, **kwargs):
        asked.append((path, kwargs))
        return {"test": [{"q": "a"}]}

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset, __version__="5.2.0"))
    return asked


def splits(trust=False, **fields):
    return load_splits(config(task="t", **fields), TaskFile(None, fields), trust=trust)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"dataset_path": "pandas"}, "pandas is a builder of the library datasets; expected json, csv"),
        ({"dataset_path": "hf://datasets/webdataset"}, "webdataset is a builder of the library"),
        ({"dataset_path": "generator"}, "generator is a builder"),
        ({"dataset_path": "quiz.py"}, "is 'quiz.py'; expected json"),
        ({"dataset_path": "../quiz"}, "is '../quiz'; expected json"),
        ({"dataset_path": "/srv/quiz"}, "is '/srv/quiz'"),
        ({"dataset_path": "a/b/c"}, "is 'a/b/c'"),
        ({"dataset_path": "https://example.org/quiz"}, "is 'https://example.org/quiz'"),
        ({"dataset_path": "script"}, "is 'script'"),  # a file of this name is here
        ({"dataset_path": "json", "data_files": "reference://x"}, "'reference://x' has the scheme reference"),
        ({"dataset_path": "json", "data_files": {"test": ["http://h/x"]}}, "has the scheme http; expected https or hf"),
        (
            {"dataset_path": "some/quiz", "data_files": "zip://x::https://h/y"},
            ("is a chain of several URLs; expected one URL"),
        ),
        ({"dataset_path": "some/quiz", "data_files": "filecache::hf"}, "is a chain of several URLs"),
        ({"dataset_path": "some/quiz", "data_files": "data:text,x"}, "has the scheme data"),
        ({"dataset_path": "some/quiz", "data_files": "x/file://y"}, "is a chain of several URLs"),
        ({"dataset_path": "some/quiz", "data_dir": "s3://x"}, "data_dir: 's3://x' has the scheme s3"),
        ({"dataset_path": "some/quiz", "storage_options": {}}, "'storage_options' may not be given to a dataset"),
        ({"dataset_path": "some/quiz", "cache_dir": "/x"}, "'cache_dir' may not be given to a dataset"),
        ({"dataset_path": "some/quiz", "sep": ";"}, "'sep' may not be given"),
    ],
)
def test_what_only_trust_allows_never_reaches_the_library(library, tmp_path, monkeypatch, fields, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script").write_text("1 / 0")
    given = {"dataset_path": fields.pop("dataset_path"), "dataset_kwargs": fields}
    with pytest.raises(InputError) as caught:
        splits(**given)
    assert said in str(caught.value)
    assert str(caught.value).endswith("run it with --trust")
    assert library == []
    assert splits(trust=True, **given)["test"] == [{"q": "a"}]


def test_a_dataset_of_the_hub_and_files_by_https_or_hf_need_no_trust(library):
    for path, kwargs in (
        ("xnli", {}),
        ("openai/gsm8k", {"revision": "main", "data_files": {"test": ["data/x.json", "y.json"]}, "streaming": False}),
        ("hf://datasets/some/quiz", {"data_dir": "part"}),
        ("json", {"data_files": "https://example.org/x.jsonl", "field": "rows"}),
        ("csv", {"data_files": {"test": "hf://datasets/some/quiz/x.csv"}, "sep": ";"}),
    ):
        assert splits(dataset_path=path, dataset_kwargs=kwargs)["test"] == [{"q": "a"}]
        assert library.pop() == (path, kwargs)


@pytest.mark.parametrize("version", ["3.6.0", "5.1.9", "none"])
def test_an_older_library_needs_trust(library, monkeypatch, version):
    monkeypatch.setattr(sys.modules["datasets"], "__version__", version)
    with pytest.raises(InputError, match=r"the library datasets is .* expected datasets>=5.2; else read the task"):
        splits(dataset_path="openai/gsm8k")
    assert library == []
    assert splits(trust=True, dataset_path="openai/gsm8k")["test"] == [{"q": "a"}]


def test_the_command_hands_its_trust_on(library, tmp_path):
    file = tmp_path / "task.yaml"
    file.write_text(
        "task: made\ndataset_path: pandas\ndataset_kwargs: {data_files: x.pkl}\ntest_split: test\n"
        "doc_to_text: q\ndoc_to_target: q\n"
    )
    with pytest.raises(InputError, match=r"task.yaml:2: dataset_path: pandas is a builder"):
        LoadedTasks().task(str(file), "made", TaskRequest())
    assert library == []
    assert LoadedTasks().task(str(file), "made", TaskRequest(trust=True)).docs == [{"q": "a"}]
