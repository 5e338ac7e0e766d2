"""EvSys' Benchmark: how it is read, and the signatures of its page."""

import dataclasses
import inspect
import json

import pytest
from tasks.given import benchmark, row

from calipers.errors import InputError
from calipers.systems.evsys.benchmark import Benchmark, BenchmarkTaskResult
from calipers.tasks import store
from calipers.tasks.jsonl import harbor_task_from_dict


def test_from_dir(tmp_path):
    place = benchmark(tmp_path, "", row("a"), "", row(7, metadata={"k": 1}), metadata="name: sums\n")
    found = Benchmark.from_dir(str(place))
    assert [task.task_id for task in found.tasks] == ["a", 7]  # as they are
    assert (found.name, found.metadata, found.root) == ("sums", {"name": "sums"}, place)
    assert Benchmark.from_dir(benchmark(tmp_path, "", name="empty")).tasks == []


@pytest.mark.parametrize(
    ("rows", "python_error", "end"),
    [
        (
            ["", row(), "", "{"],
            ValueError,
            ":4: malformed json: Expecting property name enclosed in double quotes at column 2",
        ),
        ([{}], ValueError, ":1: 'task_id'"),
        ([row(verifier={})], ValueError, ":1: unknown verifier kind: None"),
        ([row(verifier={"kind": "in_process"})], ValueError, ":1: 'fn_name'"),
        ([row(metadata="abc")], ValueError, ':1: metadata is "abc"; expected an object'),
        ([row(metadata=5)], TypeError, ":1: metadata is 5; expected an object"),
        ([row(), [1]], TypeError, ":2: a task is [1]; expected a JSON object"),
        ([row(verifier=None)], AttributeError, ":1: verifier is null; expected an object with a kind"),
    ],
)
def test_a_bad_row(tmp_path, rows, python_error, end):
    place = benchmark(tmp_path, *rows)
    with pytest.raises(python_error) as caught:
        Benchmark.from_dir(place)
    assert isinstance(caught.value, InputError)
    assert str(caught.value) == f"{place}/tasks.jsonl{end}"


@pytest.mark.parametrize(
    ("verifier", "python_error", "said"),
    [
        ({"kind": "e2b"}, NotImplementedError, "task 'b': E2BVerifier cannot verify"),
        ({"kind": "in_process", "fn_name": "exact_mach"}, ValueError, "Unknown verifier fn 'exact_mach'"),
    ],
)
def test_a_verifier_that_cannot_be_called_is_shown_where_it_stands(tmp_path, verifier, python_error, said):
    place = benchmark(tmp_path, row("a"), "", row("b", verifier=verifier))
    bench = Benchmark.from_dir(place)
    with pytest.raises(python_error) as caught:
        bench.score(None)  # it is not even looked at
    assert str(caught.value).startswith(f"{place}/tasks.jsonl:3: {said}")
    bench.tasks.reverse()  # the file no longer says where a task stands
    with pytest.raises(python_error) as caught:
        bench.score(None)
    assert str(caught.value).startswith(said)


def test_a_verifier_of_ours_says_where_it_works(tmp_path):
    place = benchmark(tmp_path, row("a", verifier={"kind": "in_process", "fn_name": "numeric_match", "expected": 4}))
    with pytest.raises(ValueError, match=r"\(numeric_match works in calipers run and calipers\.evaluate\)$"):
        Benchmark.from_dir(place).score(None)


def test_rows_that_evsys_cannot_read(tmp_path):
    """EvSys cuts a row at U+2028, and takes a byte order mark for a character of it."""
    place = benchmark(tmp_path, "\ufeff" + json.dumps(row("a\u2028b"), ensure_ascii=False))
    assert Benchmark.from_dir(place).tasks[0].task_id == "a\u2028b"


def test_what_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"^benchmark dir not found: ") as caught:
        Benchmark.from_dir(tmp_path / "absent")
    assert isinstance(caught.value, InputError)
    with pytest.raises(FileNotFoundError, match=r"^benchmark missing tasks\.jsonl: "):
        Benchmark.from_dir(tmp_path)
    with pytest.raises(InputError, match="must be a mapping at the top level"):
        Benchmark.from_dir(benchmark(tmp_path, metadata="- a"))


def test_from_iterable():
    task, about = harbor_task_from_dict(row("a")), {"k": []}
    found = Benchmark.from_iterable("b", [task, row("b")], metadata=about)
    assert found.tasks[0] is task
    assert found.tasks[1] == harbor_task_from_dict(row("b"))
    assert found.metadata == about
    assert found.metadata is not about
    assert found.root is None
    with pytest.raises(KeyError, match=r"^'task_id'$"):
        Benchmark.from_iterable("b", [{}])
    with pytest.raises(TypeError, match=r"^a task is 5; expected a JSON object$"):
        Benchmark.from_iterable("b", [5])


@pytest.mark.parametrize("spec", [{}, {"path": ""}, {"id": None, "name": "", "metrics": ["avg"]}])
def test_a_spec_that_names_nothing(spec):
    assert Benchmark.load(spec) is None


@pytest.mark.parametrize("where", ["project", "path", "object"])
def test_load_by_path_id_and_name(tmp_path, monkeypatch, where):
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "shared"
    shelf = {"project": None, "path": root, "object": store}[where]
    place = benchmark(tmp_path, metadata="name: sums\nsplit: test")
    done = store.publish(place, root if where == "path" else None)
    tasks = Benchmark.from_dir(place).tasks
    for spec, name in (
        ({"path": place, "id": "x"}, "sums"),  # path, then id, then name
        ({"id": done.id}, done.id),
        ({"id": done.id, "name": "label"}, "label"),
        ({"name": "sums"}, "sums"),
        ({"name": "sums@1"}, "sums@1"),
    ):
        found = Benchmark.load(spec, store=shelf)
        assert (found.name, found.tasks, found.metadata["split"]) == (name, tasks, "test")


def test_load_what_nobody_has(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"^no benchmark named 'n' in this project"):
        Benchmark.load({"name": "n"})
    with pytest.raises(FileNotFoundError, match=r"^benchmark 7 not found"):
        Benchmark.load({"id": 7})
    with pytest.raises(TypeError, match=r"^the store is a int; expected a path, or an object with find"):
        Benchmark.load({"id": 7}, store=5)
    with pytest.raises(TypeError, match=r"^the benchmark is 'arith'; expected a mapping"):
        Benchmark.load("arith")


def test_load_from_evsys_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("EVSYS_WORKSPACE", str(tmp_path))
    folder = tmp_path / "benchmarks"
    folder.mkdir()
    (folder / "b7.jsonl").write_text(json.dumps(row()))
    (folder / "b7.meta.json").write_text('{"complete": true, "n_rows": 1}')
    found = Benchmark.load({"id": "b7", "name": "label"})
    assert (found.name, len(found.tasks), found.metadata, found.root) == ("label", 1, {}, None)


def defaults(function):
    """The parameters of a function with their defaults, and which are keywords only."""
    found = inspect.signature(function).parameters.values()
    return {one.name: ... if one.default is one.empty else one.default for one in found}, [
        one.name for one in found if one.kind is one.POSITIONAL_OR_KEYWORD
    ]


def test_the_page_of_evsys():
    """Every attribute, parameter and default of EvSys' Benchmark page."""
    assert [(one.name, one.default is dataclasses.MISSING) for one in dataclasses.fields(Benchmark)] == [
        ("name", True),
        ("tasks", True),
        ("metadata", True),
        ("root", False),
    ]
    empty = Benchmark("b", [])
    assert (empty.metadata, empty.root) == ({}, None)
    assert defaults(Benchmark.from_dir) == ({"path": ...}, ["path"])
    assert defaults(Benchmark.from_iterable) == ({"name": ..., "rows": ..., "metadata": None}, ["name", "rows"])
    assert defaults(Benchmark.load) == ({"spec": ..., "store": None}, ["spec"])
    asking = {"max_tokens": 512, "temperature": 0.0}
    scoring = {"breakdown_keys": None, "limit": None, "metrics": None, "num_samples": 1}
    assert defaults(Benchmark.score) == (
        {"self": ..., "client": ..., **asking, "stop": None, "prompt_builder": None, **scoring},
        ["self", "client"],
    )
    assert defaults(Benchmark.score_via_harbor) == (
        {
            **{"self": ..., "model_name": ..., "model_path": None, "model_client": "tinker", "workspace_dir": ...},
            **{"renderer_name": None, **asking, **scoring, "system_prompt": None},
            **{"n_concurrent": 8, "agent_import_path": None, "max_retries": 2, "_job_factory": None},
        },
        ["self"],
    )
    assert inspect.iscoroutinefunction(Benchmark.score_via_harbor)
    assert [one.name for one in dataclasses.fields(BenchmarkTaskResult)] == [
        *("task_id", "instruction", "model_output", "expected", "reward", "metadata")
    ]
