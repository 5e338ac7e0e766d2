"""The tasks found below a folder, and the cached index of an installed lm-evaluation-harness."""

import os
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from calipers.systems.lm_eval import benchmarks
from calipers.systems.lm_eval.benchmarks import LoadedTasks, TaskRequest, is_known, nodes_of
from calipers.systems.lm_eval.tasks.groups import Tasks, heads, indexed_heads, installed, is_task_file, leaves

FIELDS = "dataset_path: json\ntest_split: test\ndoc_to_text: q\ndoc_to_target: a\n"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("task: plain\n", "plain"),
        ("'task': quoted\n", "quoted"),  # read whole: its lines do not tell
        ("{task: flow, other: 1}\n", "flow"),
        ("# a note\n---\ntask: document\n", "document"),
        ("doc_to_text: |\n  task: no\n\n  group: no\ntask: after_text\n", "after_text"),
        ("task: &t anchored\nalias: *t\n", "anchored"),
        ("task:\n  on_the_next_line\n", "on_the_next_line"),
        ("process_docs: !function utils.f\ntask: with_function\n", "with_function"),
        ("\ufefftask: marked\n", "marked"),
        ("task: with.dots-and/more  \n\n# a note\n", "with.dots-and/more"),
        ("task: noted # here\n", "noted"),
        ("task: in\n  two lines\n", "in two lines"),
        ("task: yes\n", None),  # YAML's true
        ("task: ~\n", None),
        ("task: first\nother: 1\ntask: last\n", "last"),
        ("other: 1\n", None),
        ("task: {a: 1}\n", None),
    ],
)
def test_a_name_is_found_however_it_is_written(tmp_path, text, name):
    (tmp_path / "t.yaml").write_text(text)
    head = next(heads(tmp_path), None)
    assert (head and head.name) == name
    assert is_task_file(tmp_path / "t.yaml") is (name is not None)


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("tag: alone\n", ["alone"]),
        ("tag:\n  - first\n  - second\n", ["first", "second"]),
        ("tag:\n- first\n- second\n", ["first", "second"]),
        ("tag: [first, 'second']\n", ["first", "second"]),
        ("tag:\n  - first # why\n  - 2\n", ["first", "2"]),
        ("tag:\n", []),
    ],
)
def test_tags_are_found_however_they_are_written(tmp_path, text, tags):
    (tmp_path / "t.yaml").write_text(f"task: t\n{text}")
    assert [list(head.tags) for head in heads(tmp_path)] == [tags]


def test_a_file_that_includes_itself_is_indexed_all_the_same(tmp_path):
    (tmp_path / "a.yaml").write_text("include: b.yaml\ntask: a\n")
    (tmp_path / "b.yaml").write_text("include: a.yaml\ntag: b\n")
    assert "a" in [head.name for head in heads(tmp_path)]


def test_an_installed_harness_is_found_and_not_imported(tmp_path, monkeypatch):
    package = tmp_path / "lm_eval"
    (package / "tasks").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.delitem(sys.modules, "lm_eval", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert installed() == Path(package / "tasks")
    assert "lm_eval" not in sys.modules


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A fake installed library with three tasks, and an empty cache."""
    tasks = tmp_path / "site" / "lm_eval" / "tasks"
    tasks.mkdir(parents=True)
    (tasks.parent / "__init__.py").write_text("raise RuntimeError('imported')")
    for name in ("a", "b", "c"):
        (tasks / f"{name}.yaml").write_text(f"include: _base\ntask: {name}\ntag: all\n")
    (tasks / "_base").write_text(FIELDS)
    (tasks / "g.yaml").write_text("group: g\ntask: [a, b, c]\n")
    monkeypatch.delitem(sys.modules, "lm_eval", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    benchmarks._tasks.cache_clear()
    yield tasks
    benchmarks._tasks.cache_clear()


def kept_file(tmp_path):
    (path,) = (tmp_path / "cache").rglob("index-*")
    return path


def test_an_index_is_kept_and_read_again(package, tmp_path):
    before = indexed_heads(package)
    assert [head.name for head in before] == ["a", "b", "c", "g"]
    path = kept_file(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    kept = msgspec.json.decode(path.read_bytes())
    kept["heads"][0][2] = "from_the_file"
    path.write_bytes(msgspec.json.encode(kept))
    assert next((head.name, head.path) for head in indexed_heads(package)) == ("from_the_file", package / "a.yaml")


def test_what_changed_in_the_library_is_seen(package):
    indexed_heads(package)
    (package / "d.yaml").write_text("task: d\n")
    assert "d" in [head.name for head in indexed_heads(package)]
    (package / "_base").write_text(FIELDS + "tag: new\n")
    (package / "d.yaml").write_text("include: _base\ntask: d\n")
    assert [list(head.tags) for head in indexed_heads(package) if head.name == "d"] == [["new"]]


def spoilt(change):
    def spoil(path):
        kept = msgspec.json.decode(path.read_bytes())
        kept["heads"][0][2] = "wrong"
        change(kept)
        path.write_bytes(msgspec.json.encode(kept))

    return spoil


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-20]),
        lambda path: path.write_bytes(b"\xff\xfe"),
        lambda path: path.write_bytes(b"[" * 100_000),
        spoilt(lambda kept: kept.update(version="0.0.1")),
        spoilt(lambda kept: kept.update(form=0)),
        spoilt(lambda kept: kept.update(folder="/elsewhere")),
        spoilt(lambda kept: kept["heads"][0].__setitem__(0, "../../outside.yaml")),
        spoilt(lambda kept: kept["heads"][0].__setitem__(0, "/outside.yaml")),
        lambda path: (spoilt(lambda kept: None)(path), path.chmod(0o666)),  # anybody may have written it
        lambda path: (path.unlink(), path.mkdir()),
        lambda path: (path.unlink(), os.mkfifo(path)),
    ],
)
def test_a_kept_index_that_is_broken_or_not_ours_is_made_anew(package, tmp_path, spoil):
    indexed_heads(package)
    spoil(kept_file(tmp_path))
    for _ in range(2):
        assert [head.name for head in indexed_heads(package)] == ["a", "b", "c", "g"]


def test_where_nothing_can_be_kept_the_index_is_made_each_time(package, tmp_path):
    (tmp_path / "cache").write_text("a file")
    assert [head.name for head in indexed_heads(package)] == ["a", "b", "c", "g"]


def test_nothing_is_left_beside_a_kept_index(package, tmp_path):
    indexed_heads(package)
    (package / "d.yaml").write_text("task: d\n")
    indexed_heads(package)
    assert len(list(kept_file(tmp_path).parent.iterdir())) == 1


def test_several_commands_keep_an_index_at_once(package, tmp_path):
    with ThreadPoolExecutor(8) as pool:
        several = list(pool.map(lambda _: [head.name for head in indexed_heads(package)], range(40)))
    assert several == [["a", "b", "c", "g"]] * 40
    assert len(list(kept_file(tmp_path).parent.iterdir())) == 1


def test_a_task_file_by_its_path_needs_no_index(package, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(f"task: mine\n{FIELDS}")
    assert is_known(str(path))
    assert [leaf.name for leaf in leaves(nodes_of(str(path)))] == ["mine"]
    assert not (tmp_path / "cache").exists()
    assert [leaf.name for leaf in leaves(nodes_of("all"))] == ["a", "b", "c"]
    assert kept_file(tmp_path).is_file()


def test_a_name_is_known_by_the_index_alone(package):
    (package / "h.yaml").write_text("group: h\ntask: [absent]\n")
    names = {name: is_known(name) for name in ("a", "all", "g", "h", "?", "a@format", "absent", "x*")}
    assert names == {
        "a": True,
        "all": True,
        "g": True,
        "h": True,
        "?": True,
        "a@format": True,
        "absent": False,
        "x*": False,
    }


def test_a_task_that_was_written_since_is_found(package):
    assert not is_known("later")
    (package / "later.yaml").write_text(f"task: later\n{FIELDS}")
    assert is_known("later")


def test_a_group_is_resolved_once_for_all_its_tasks(package, tmp_path):
    (tmp_path / "docs.jsonl").write_text('{"q": "1", "a": "1"}\n')
    (package / "_base").write_text(f"{FIELDS}dataset_kwargs: {{data_files: {{test: {tmp_path / 'docs.jsonl'}}}}}\n")
    tasks = LoadedTasks()
    assert tasks.task("g", "a", TaskRequest()).config.task == "a"
    (package / "g.yaml").unlink()
    (package / "c.yaml").unlink()
    assert [tasks.task("g", name, TaskRequest()).config.task for name in ("b", "c")] == ["b", "c"]
    assert [node.name for node in tasks.nodes("g", ())] == ["g"]


def test_a_folder_of_the_user_hides_the_library(package, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "a.yaml").write_text(f"task: a\n{FIELDS}")
    found = Tasks([mine], library=package)
    assert (found.heads["a"].path.parent, found.heads["b"].path.parent) == (mine, Path(package))
