"""What EvSys has pulled is found by its id, if it is whole."""

import json
import os

import pytest
from tasks.given import row

from calipers.errors import InputError
from calipers.tasks import store


@pytest.fixture(autouse=True)
def _project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVSYS_WORKSPACE", raising=False)


META = {"id": "b7", "version": 3, "n_rows": 2, "format": "harbor_task", "transform": None, "complete": True}


def cache(root, **meta):
    folder = root / "benchmarks"
    folder.mkdir(parents=True)
    (folder / "b7.jsonl").write_text(f"{json.dumps(row(1))}\n\n{json.dumps(row(2))}\n")
    (folder / "b7.meta.json").write_text(json.dumps(META | meta))
    return folder


@pytest.mark.parametrize("root", [".evsys", "elsewhere"])
def test_evsys_cache_is_read_too(tmp_path, monkeypatch, root):
    cache(tmp_path / root)
    if root != ".evsys":
        monkeypatch.setenv("EVSYS_WORKSPACE", str(tmp_path / root))
    assert [task.id for task in store.load_suite("b7").tasks] == ["1", "2"]
    assert store.pull("b7").samefile(tmp_path / root / "benchmarks" / "b7.jsonl")


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        ({"complete": False}, "b7.jsonl: it is incomplete: 2 rows of 2; pull the benchmark again"),
        ({"n_rows": 500}, "b7.jsonl: it is incomplete: 2 rows of 500; pull the benchmark again"),
        ({"format": "chat_messages"}, "b7.meta.json: its rows are chat_messages; expected harbor_task"),
        ({"complete": "yes"}, "b7.meta.json: cannot be read (Expected `bool`, got `str` - at `$.complete`)"),
    ],
)
def test_a_cache_that_is_not_whole_is_refused(tmp_path, meta, said):
    cache(tmp_path / ".evsys", **meta)
    with pytest.raises(InputError) as caught:
        store.pull("b7")
    assert str(caught.value).startswith(os.path.join(".evsys", "benchmarks", said))


def test_a_cache_without_its_meta_is_refused(tmp_path):
    (cache(tmp_path / ".evsys") / "b7.meta.json").unlink()
    with pytest.raises(InputError, match=r"b7\.meta\.json: cannot be read \(No such file or directory\)"):
        store.pull("b7")
