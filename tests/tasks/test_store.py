import hashlib
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from tasks.given import benchmark, row
from waiting import PATIENCE

from calipers.errors import InputError
from calipers.tasks import store
from calipers.tasks.jsonl import NotThere, read_suite


@pytest.fixture(autouse=True)
def _project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVSYS_WORKSPACE", raising=False)


def test_versions_of_one_benchmark(tmp_path):
    place = benchmark(tmp_path, row("a"))
    first = store.publish(place)
    again = store.publish(str(place))
    benchmark(tmp_path, row("a"), row("b"))
    second = store.publish(place)
    assert [(one.version, one.status, one.tasks) for one in (first, again, second)] == [
        (1, "created", 1),
        (1, "unchanged", 1),
        (2, "updated", 2),
    ]
    assert first.id == again.id != second.id
    assert first.name == "arith"
    assert second.sha256 == hashlib.sha256((place / "tasks.jsonl").read_bytes()).hexdigest()
    assert [len(read_suite(store.pull(one.id)).tasks) for one in (first, second)] == [1, 2]
    assert (tmp_path / ".calipers" / ".gitignore").read_text() == "*\n"


def test_other_metadata_beside_the_same_tasks_is_a_new_version(tmp_path):
    """EvSys would call it unchanged, because it compares only the tasks."""
    first = store.publish(benchmark(tmp_path, metadata="name: arith\nsplits: [a]"))
    second = store.publish(benchmark(tmp_path, metadata="name: arith\nsplits: [b]"))
    assert (second.version, second.status) == (2, "updated")
    assert second.sha256 == first.sha256
    assert read_suite(store.pull(second.id)).metadata == {"name": "arith", "splits": ["b"]}


def test_only_the_latest_version_is_compared(tmp_path):
    for rows in ([row("a")], [row("b")], [row("a")]):
        last = store.publish(benchmark(tmp_path, *rows))
    assert (last.version, last.status) == (3, "updated")


def test_a_name_is_the_latest_version_or_the_one_it_says(tmp_path):
    ids = [store.publish(benchmark(tmp_path, row(task))).id for task in "ab"]
    assert store.find("arith") == ids[1]
    assert [store.find(f"arith@{version}") for version in (1, 2)] == ids
    assert store.names() == ["arith"]


def test_names_that_look_alike_are_kept_apart(tmp_path):
    names = ["a/b", "a_b", "a b", "../../x", "é", "v1@2", "-", "x" * 300]
    ids = {}
    for name in names:
        ids[name] = store.publish(benchmark(tmp_path, metadata=f"name: {json.dumps(name)}")).id
    assert len(set(ids.values())) == len(names)
    assert {name: store.find(name) for name in names} == ids
    assert store.names() == sorted(names)
    assert all(store.pull(one).resolve().is_relative_to(tmp_path / ".calipers") for one in ids.values())


def test_an_empty_store_says_what_else_a_benchmark_may_be():
    with pytest.raises(NotThere, match=r"^no benchmark named 'gsm8k' in this project; expected a directory with "):
        store.find("gsm8k")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("aritj", "no benchmark named 'aritj' in this project; did you mean 'arith'?"),
        ("zzzzz", "no benchmark named 'zzzzz' in this project; known: arith"),
        ("arith@9", "no benchmark named 'arith@9' in this project; its versions are 1"),
        ("arith@../../v1", "no benchmark named 'arith@../../v1' in this project; its versions are 1"),
    ],
)
def test_an_unknown_name_says_the_nearest(tmp_path, name, said):
    store.publish(benchmark(tmp_path))
    with pytest.raises(FileNotFoundError) as caught:
        store.find(name)
    assert isinstance(caught.value, InputError)
    assert str(caught.value) == said


@pytest.mark.parametrize("id", ["", "x", "arith-00000000.v1", "../arith", "/etc/passwd", "a.v0", "..", "."])
def test_an_unknown_id_is_not_found(tmp_path, id):
    store.publish(benchmark(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"^benchmark .* not found"):
        store.pull(id)


def test_a_store_elsewhere(tmp_path):
    done = store.publish(benchmark(tmp_path), tmp_path / "shared")
    assert store.find("arith", tmp_path / "shared") == done.id
    assert not (tmp_path / ".calipers").exists()
    with pytest.raises(NotThere):
        store.pull(done.id)


@pytest.mark.parametrize(
    "spec", ["arith", "arith@1", "arith/tasks.jsonl", "calipers-id"], ids=["path", "name", "file", "id"]
)
def test_a_benchmark_by_what_names_it(tmp_path, spec):
    done = store.publish(benchmark(tmp_path))
    suite = store.load_suite(done.id if spec == "calipers-id" else spec)
    assert suite.sha256 == done.sha256
    assert suite.name == ("tasks" if spec.endswith("jsonl") else "arith")  # not "v1", the name of its directory


def test_a_name_in_the_store_where_no_path_is(tmp_path):
    store.publish(benchmark(tmp_path / "deep"))
    assert store.load_suite("arith").name == "arith"
    with pytest.raises(NotThere, match=r"^deep/arit: no such file or directory"):
        store.load_suite("deep/arit")
    with pytest.raises(NotThere, match=r"^no benchmark named 'arit' in this project; did you mean 'arith'\?$"):
        store.load_suite("arit")


def test_what_cannot_be_published_leaves_nothing_behind(tmp_path):
    with pytest.raises(NotThere, match=r"^benchmark dir not found: .*; expected a directory with tasks\.jsonl$"):
        store.publish(tmp_path / "absent")
    with pytest.raises(InputError, match=r"tasks\.jsonl:1: malformed json"):
        store.publish(benchmark(tmp_path, "{"))
    assert not (tmp_path / ".calipers").exists()


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / ".calipers").write_text("a file")
    with pytest.raises(
        InputError, match=(r"^\.calipers: cannot be written \(.*\); expected " r"a writable place to publish to$")
    ):
        store.publish(benchmark(tmp_path))


def test_a_version_somebody_damaged(tmp_path):
    done = store.publish(benchmark(tmp_path))
    record = store.pull(done.id) / "published.json"
    record.write_text("{")
    with pytest.raises(InputError, match=r"published\.json: cannot be read \(.*\); delete this version$"):
        store.find("arith")
    record.unlink()  # not a published version any more, so the next one is the second
    assert store.publish(benchmark(tmp_path)).version == 2


def test_publishers_at_the_same_time_get_versions_of_their_own(tmp_path):
    places = [benchmark(tmp_path / str(n), row(f"t{n}"), metadata="name: shared") for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(store.publish, places))
    assert sorted(one.version for one in done) == list(range(1, 9))
    assert [one.status for one in done].count("created") == 1
    for one, place in zip(done, places):
        assert (store.pull(one.id) / "tasks.jsonl").read_bytes() == (place / "tasks.jsonl").read_bytes()
    assert not list(tmp_path.glob(".calipers/benchmarks/*/.new-*"))


def test_the_same_benchmark_published_by_many_is_one_version(tmp_path):
    place = benchmark(tmp_path)
    program = "import sys; from calipers.tasks.store import publish; print(publish(sys.argv[1]).status)"
    running = [
        subprocess.Popen([sys.executable, "-c", program, str(place)], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    said = sorted(process.communicate(timeout=PATIENCE)[0].strip() for process in running)
    assert said == ["created", "unchanged", "unchanged", "unchanged"]
