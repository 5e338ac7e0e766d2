"""EvSys' cache: a pulled benchmark is found by its id if it is complete."""

import json
import os
from types import SimpleNamespace

import pytest
from tasks.given import benchmark, row

from calipers import Benchmark
from calipers.errors import CalipersError, InputError
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


RECORDS = [
    {"id": "x", "name": "bench", "version": 2},
    {"id": "y", "name": "bench", "version": 11},
    {"id": "z", "name": "bench"},  # without a version, it counts as version 1
    {"id": "o", "name": "other", "version": 99},
]


class Listing:
    """A store of EvSys that lists its benchmarks; a subclass returns one."""

    def __init__(self, records=RECORDS):
        self.records, self.calls = records, []

    def list_benchmarks(self, project_id=None):
        return self.records


class Pulling(Listing):
    def pull(self, id):
        self.calls.append(id)
        return self.answer


class Paging(Listing):
    """A store like EvSys' own, which returns pages of rows with payloads."""

    def __init__(self, rows=3):
        super().__init__()
        self.meta = {"id": "y", "version": 11, "n_rows": rows, "format": "harbor_task"}
        self.rows = [{"idx": number, "payload": row(f"t{number}")} for number in range(rows)]

    def get_benchmark(self, id):
        return self.meta if id == "y" else None

    def get_benchmark_rows(self, id, *, limit, offset):
        self.calls.append(offset)
        return self.rows[offset : offset + limit]


@pytest.mark.parametrize("form", ["file", "directory", "object"])
def test_a_store_that_lists_and_pulls(tmp_path, form):
    folder = benchmark(tmp_path, row(1), row(2))
    answers = {"file": str(folder / "tasks.jsonl"), "directory": folder, "object": SimpleNamespace(path=str(folder))}
    store = Pulling()
    store.answer = answers[form]
    loaded = Benchmark.load({"name": "bench"}, store=store)
    assert (store.calls, loaded.name, [task.task_id for task in loaded.tasks]) == (["y"], "bench", [1, 2])
    assert Benchmark.load({"id": "x", "name": "called"}, store=store).name == "called"
    assert store.calls == ["y", "x"]


def test_an_id_needs_no_list(tmp_path):
    store = SimpleNamespace(pull_benchmark=lambda id: benchmark(tmp_path))
    assert Benchmark.load({"id": "b"}, store=store).name == "b"
    with pytest.raises(TypeError, match=r"without list_benchmarks\(\); give an id, not a name"):
        Benchmark.load({"name": "b"}, store=store)


def test_a_store_of_rows_is_pulled_into_the_cache_once(tmp_path):
    store = Paging(rows=501)
    for _ in range(2):
        assert len(Benchmark.load({"name": "bench"}, store=store).tasks) == 501
    assert store.calls == [0, 500]
    folder = tmp_path / ".evsys"
    assert (folder / ".gitignore").read_text() == "*\n"
    assert json.loads((folder / "benchmarks" / "y.meta.json").read_text()) == {
        **{"id": "y", "n_rows": 501, "complete": True, "version": 11, "format": "harbor_task", "transform": None},
    }
    assert len(Benchmark.load({"id": "y"}).tasks) == 501  # found in the cache, without the store
    store.meta["n_rows"] = 502  # the store has more rows now
    store.rows.append({"payload": row("new")})
    assert len(Benchmark.load({"id": "y"}, store=store).tasks) == 502
    assert store.calls == [0, 500, 0, 500]


def test_two_that_pull_one_benchmark_at_once_do_not_write_into_each_other(tmp_path):
    slow, quick = Paging(rows=501), Paging(rows=501)
    pages = slow.get_benchmark_rows

    def meanwhile(id, *, limit, offset):
        if offset:  # another process pulls the benchmark between two pages of this one
            Benchmark.load({"id": "y"}, store=quick)
        return pages(id, limit=limit, offset=offset)

    slow.get_benchmark_rows = meanwhile
    assert len(Benchmark.load({"id": "y"}, store=slow).tasks) == 501
    assert len((tmp_path / ".evsys" / "benchmarks" / "y.jsonl").read_bytes().splitlines()) == 501


def test_a_store_that_gives_fewer_rows_than_it_says_is_refused(tmp_path):
    store = Paging(rows=3)
    store.rows.pop()
    with pytest.raises(
        InputError, match=(r"^the store returned 2 rows of benchmark y; " r"expected 3, the number it reports$")
    ):
        Benchmark.load({"id": "y"}, store=store)
    assert list((tmp_path / ".evsys" / "benchmarks").iterdir()) == []


@pytest.mark.parametrize(
    ("store", "spec", "kind", "message"),
    [
        (
            Pulling(),
            {"name": "benhc"},
            FileNotFoundError,
            "no benchmark named 'benhc' in this project; did you mean 'be",
        ),
        (Pulling([]), {"name": "b"}, FileNotFoundError, "no benchmark named 'b' in this project; it has none"),
        (Pulling(None), {"name": "b"}, FileNotFoundError, "no benchmark named 'b' in this project; it has none"),
        (Paging(), {"id": "absent"}, FileNotFoundError, "benchmark absent not found"),
        (
            Pulling(5),
            {"name": "b"},
            TypeError,
            "list_benchmarks() returned 5; expected list_benchmarks(), which returns a l",
        ),
        (
            Pulling(["b"]),
            {"name": "b"},
            TypeError,
            "list_benchmarks() returned ['b']; expected list_benchmarks(), which ",
        ),
        (
            Pulling([{"name": "b"}]),
            {"name": "b"},
            TypeError,
            "list_benchmarks() returned a record of 'b' without an id; ",
        ),
        (
            Pulling([{"name": "b", "version": "new"}]),
            {"name": "b"},
            TypeError,
            "list_benchmarks() returned the version 'new'; expected",
        ),
        (
            Listing(),
            {"id": "y"},
            TypeError,
            "the store is a Listing; expected a path, or an object with find(name) and ",
        ),
    ],
)
def test_what_a_store_has_not(store, spec, kind, message):
    with pytest.raises(kind) as caught:
        Benchmark.load(spec, store=store)
    assert isinstance(caught.value, CalipersError)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        (None, FileNotFoundError, "benchmark y not found"),
        (
            7,
            TypeError,
            "pull('y') returned 7; expected the path of a directory with tasks.jsonl, of a file of tasks, or an ",
        ),
        (SimpleNamespace(path=7), TypeError, "pull('y') returned namespace(path=7); expected the path of a directory"),
    ],
)
def test_what_a_store_gives_is_a_path(answer, kind, message):
    store = Pulling()
    store.answer = answer
    with pytest.raises(kind) as caught:
        Benchmark.load({"name": "bench"}, store=store)
    assert isinstance(caught.value, CalipersError)
    assert str(caught.value).startswith(message)


def test_rows_and_ids_of_a_store_are_checked(tmp_path):
    store = Paging()
    store.rows = [1, 2]
    with pytest.raises(TypeError, match=r"get_benchmark_rows\('y'\) returned \[1, 2\]; expected"):
        Benchmark.load({"id": "y"}, store=store)
    assert list((tmp_path / ".evsys" / "benchmarks").iterdir()) == []
    store.get_benchmark = lambda id: {}
    with pytest.raises(InputError, match=r"the benchmark's id is '\.\./y'; expected letters"):
        Benchmark.load({"id": "../y"}, store=store)
    store.get_benchmark = lambda id: "y"
    with pytest.raises(TypeError, match=r"get_benchmark\('y'\) returned 'y'; expected"):
        Benchmark.load({"id": "y"}, store=store)
