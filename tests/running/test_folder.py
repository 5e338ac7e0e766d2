import asyncio
import json
import os
import random
import signal
import stat
import subprocess

import pytest
from forks import FORKS, PROGRAM
from hypothesis import given
from hypothesis import strategies as st

from calipers.clients.secrets import Secrets
from calipers.errors import InputError, LogError
from calipers.running.folder import Folder, Past, fingerprint
from calipers.running.log import is_at

IDENTITY = {"model": "openai/m", "tasks": "ab" * 32, "sampling": {"temperature": 0, "stop": ["\n"]}}
TORN = "rollouts.jsonl: the last line was cut off by a crash and is dropped; its rollout will run again"


def untouched(data):
    return data


def plan(tasks=("a", "b"), samples=2, **more):
    rows = [{"task": task, "metadata": {"level": 1}} for task in tasks]
    return {"dataset": "d", "model": "openai/m", "samples": samples, "tasks": rows, "created_at": "then", **more}


def opened(path, identity=IDENTITY, asked=None, scrub=untouched):
    return Folder.open(path, identity, asked or plan(), scrub)


def refused(path, *arguments):
    with pytest.raises(InputError) as caught:
        opened(path, *arguments)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(str(path))
    return text.removeprefix(str(path))


def record(task="a", sample=0, attempt=1, **more):
    return json.dumps({"task": task, "sample": sample, "attempt": attempt, "outcome": "scored", "reward": 1.0, **more})


def planned(path):
    found = json.loads((path / "plan.json").read_bytes())
    return {row["task"]: row.get("samples", found["samples"]) for row in found["tasks"]}


def test_a_new_run_says_what_was_asked(tmp_path):
    path = tmp_path / "runs" / "deep"
    with opened(path, asked=plan(settings={"seed": {"value": 3, "from": "default"}})) as folder:
        assert (folder.history, folder.notes) == ({}, [])
    text = (path / "plan.json").read_text()
    assert json.loads(text) == {
        "schema": "calipers.plan/1",
        **plan(settings={"seed": {"value": 3, "from": "default"}}),
        "identity": IDENTITY,
        "fingerprint": fingerprint(IDENTITY),
    }
    assert '\n  {"task":"b","metadata":{"level":1}}\n' in text  # a line for each task


def test_the_log_is_there_when_it_is_asked_for(tmp_path):
    async def append(folder):
        await folder.log.append(record().encode())

    with opened(tmp_path) as folder:
        assert not (tmp_path / "rollouts.jsonl").exists()
        asyncio.run(append(folder))  # leaving the context closes the log
    with opened(tmp_path) as folder:
        assert folder.history == {("a", 0): Past(1, "scored", 1.0, None)}


@pytest.mark.parametrize(
    ("identity", "said"),
    [
        ({**IDENTITY, "model": "openai/n"}, "model: openai/m here, openai/n requested"),
        ({**IDENTITY, "tasks": "cd" * 32}, "tasks: abababababab... here, cdcdcdcdcdcd... requested"),
        (
            {**IDENTITY, "sampling": {"temperature": 0.5, "stop": []}},
            'sampling.temperature: 0 here, 0.5 requested; sampling.stop: ["\\n"] here, [] requested',
        ),
        ({**IDENTITY, "sampling": {"stop": ["\n"]}}, "sampling.temperature: 0 here, nothing requested"),
        ({**IDENTITY, "system": ""}, 'system: nothing here, "" requested'),
        ({**IDENTITY, "sampling": {"temperature": False, "stop": ["\n"]}}, "temperature: 0 here, false requested"),
        ({**IDENTITY, "model": "a\nb"}, 'model: openai/m here, "a\\nb" requested'),
        ({**IDENTITY, "sampling": None}, 'sampling: {"temperature": 0, "stop": ["\\n"]} here, null requested'),
        ({**IDENTITY, **{f"key{n}": n for n in range(20)}}, "key11: nothing here, 11 requested; and 8 more"),
    ],
)
def test_another_run_is_refused_key_by_key(tmp_path, identity, said):
    opened(tmp_path).close()
    before = (tmp_path / "plan.json").read_bytes()
    text = refused(tmp_path, identity)
    assert text.startswith(": contains a different run: ")
    assert text.endswith(f"{said}; choose another --out")
    assert (tmp_path / "plan.json").read_bytes() == before
    opened(tmp_path).close()  # the failed attempt has released the lock


def test_long_texts_are_shown_where_they_part(tmp_path):
    opened(tmp_path, {"system": "x" * 500 + "one" + "y" * 90}).close()
    text = refused(tmp_path, {"system": "x" * 500 + "two" + "y" * 90})
    shown = f"system: ...{'x' * 10}one{'y' * 47}... here, ...{'x' * 10}two{'y' * 47}... requested"
    assert text == f": contains a different run: {shown}; choose another --out"


@pytest.mark.parametrize(
    ("first", "second", "expected", "kept"),
    [
        (plan("ab", 2), plan("ab", 2), {"a": 2, "b": 2}, 0),
        (plan("ab", 2), plan("abc", 4), {"a": 4, "b": 4, "c": 4}, 0),  # the plan has grown
        (plan("ab", 4), plan("ab", 2), {"a": 4, "b": 4}, 4),
        (plan("abc", 2), plan("dba", 2), {"a": 2, "b": 2, "c": 2, "d": 2}, 2),  # the earlier order is kept
        (plan("abc", 1), plan("a", 3), {"a": 3, "b": 1, "c": 1}, 2),  # not 3 of each: no command has requested that
    ],
)
def test_what_was_planned_stays_planned(tmp_path, first, second, expected, kept):
    opened(tmp_path, asked={**first, "created_at": "early"}).close()
    with opened(tmp_path, asked={**second, "created_at": "late", "git": "new"}) as folder:
        notes = folder.notes
    assert planned(tmp_path) == expected
    assert list(planned(tmp_path)) == list(expected)
    written = json.loads((tmp_path / "plan.json").read_bytes())
    assert (written["created_at"], written["git"]) == ("early", "new")
    assert [row["metadata"] for row in written["tasks"]] == [{"level": 1}] * len(expected)
    more = f"plan.json: {kept} rollouts that this command does not ask for stay planned; choose another"
    assert notes == ([f"{more} --out for a smaller run"] if kept else [])
    opened(tmp_path, asked=second).close()  # and once again
    assert planned(tmp_path) == expected


THREE = [record("a", 0, prompt="é\n"), record("a", 1, usage={"cost_usd": 1}), record("b", 0)]
WHOLE = "".join(line + "\n" for line in THREE).encode()


def test_a_log_cut_off_at_any_byte_is_mended(tmp_path):
    opened(tmp_path).close()
    log = tmp_path / "rollouts.jsonl"
    for end in range(len(WHOLE) + 1):
        log.write_bytes(WHOLE[:end])
        with opened(tmp_path) as folder:
            history, notes = folder.history, folder.notes
        lines = WHOLE[:end].count(b"\n")
        assert log.read_bytes() == b"".join(WHOLE.splitlines(keepends=True)[:lines])
        assert [*history] == [("a", 0), ("a", 1), ("b", 0)][:lines]
        assert notes == ([] if WHOLE[:end].endswith(b"\n") or end == 0 else [TORN])


@given(
    lines=st.integers(0, 3),
    tail=st.one_of(
        st.binary(max_size=50).map(lambda data: data.replace(b"\n", b"")),
        st.integers(0, 300_000).map(bytes),  # a power failure may leave a file that is longer than the written bytes
    ),
    newline=st.booleans(),
)
def test_whatever_a_crash_leaves_behind_the_last_line(tmp_path_factory, lines, tail, newline):
    path = tmp_path_factory.mktemp("run")
    opened(path).close()
    kept = b"".join(WHOLE.splitlines(keepends=True)[:lines])
    torn = b"{" + tail + (b"\n" if newline else b"")
    (path / "rollouts.jsonl").write_bytes(kept + torn)
    with opened(path) as folder:
        assert (len(folder.history), folder.notes) == (lines, [TORN])
    assert (path / "rollouts.jsonl").read_bytes() == kept


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["{", record()], ":1: is not a record (Input data was truncated); fix the line, or remove it to run its"),
        ([record(), "\0\0", record("b")], ":2: is not a record"),
        ([record(), "", record("b"), "[]", record("c")], ":4: is not a record (Expected `object`, got `array`)"),
        (
            [record(), record("b", sample="x"), record("c")],
            ":2: is not a record (Expected `int`, got `str` - at `$.sample`",
        ),
        ([record() + record("b"), record("c")], ":1: is not a record"),
        ([record(), "", record()], ":3: task 'a' sample 0 attempt 1 also appears in an earlier line; expected"),
        (
            [record(), record("b"), record()],
            (":3: task 'a' sample 0 attempt 1 also appears in an earlier line; expected"),
        ),
    ],
)
def test_what_no_crash_leaves_is_an_error(tmp_path, lines, said):
    opened(tmp_path).close()
    content = "".join(line + "\n" for line in lines)
    (tmp_path / "rollouts.jsonl").write_text(content)
    assert refused(tmp_path).startswith("/rollouts.jsonl" + said)
    assert (tmp_path / "rollouts.jsonl").read_text() == content


# Appends a record after another, saying aloud how many are on disk, until somebody ends it.
APPENDING = """
import asyncio, json, sys
from pathlib import Path
from calipers.running.folder import Folder

async def main():
    with Folder.open(Path(sys.argv[1]), {}, {"samples": 1, "tasks": []}, lambda data: data) as folder:
        first = len(folder.history)
        print("begun", flush=True)
        number = first
        while True:
            for _ in range(50):
                record = {"task": str(number), "sample": 0, "outcome": "scored", "reward": 1, "text": "x" * 3000}
                await folder.log.append(json.dumps(record).encode())
                number += 1
            print(first + folder.log.written, flush=True)

asyncio.run(main())
"""


def appending(path):
    child = FORKS.begin((APPENDING, str(path)), path.parent, dict(os.environ), PROGRAM)
    assert child.stdout.readline() == b"begun\n"
    return child


def test_killed_at_any_moment_nothing_finished_is_lost(tmp_path):
    chance, finished, path = random.Random(0), 0, tmp_path / "run"
    for _ in range(12):
        child = appending(path)
        for _ in range(chance.randrange(1, 40)):
            finished = max(finished, int(child.stdout.readline()))
        child.send_signal(signal.SIGKILL)
        said, _ = child.communicate()
        finished = max([finished, *(int(line) for line in said.split(b"\n")[:-1])])
        with Folder.open(path, {}, {"samples": 1, "tasks": []}, untouched) as folder:
            history = folder.history
        assert len(history) >= finished
        assert [*history] == [(str(number), 0) for number in range(len(history))]  # each exactly once
    assert finished > 0


def test_one_process_at_a_time(tmp_path):
    child = appending(tmp_path)
    try:
        text = refused(tmp_path)
        assert text == f": another process is running it (pid {child.pid}); wait for it, or choose another --out"
    finally:
        child.kill()
        child.communicate()
    assert (tmp_path / ".lock").read_text() == str(child.pid)  # the lock of a dead process is free
    with Folder.open(tmp_path, {}, {"samples": 1, "tasks": []}, untouched):
        assert f"(pid {os.getpid()})" in refused(tmp_path)


def test_a_run_that_could_not_begin_takes_nothing_from_the_next_process(tmp_path):
    """As soon as the lock is released, another process may begin the same run in these files."""
    path = tmp_path / "new" / "run"
    others: list[Folder] = []

    class Left(Folder):
        def close(self):
            super().close()
            if not others:
                others.append(opened(path))

    folder = Left.open(path, IDENTITY, plan(), untouched)
    assert folder.log.path.exists()
    folder.abandon()
    with others[0] as other:
        other.log.put(record().encode())
    assert (path / "rollouts.jsonl").read_text() == record() + "\n"
    assert planned(path) == {"a": 2, "b": 2}


def test_a_child_does_not_inherit_the_lock(tmp_path):
    with opened(tmp_path):
        child = subprocess.Popen(["sleep", "60"])
    try:
        opened(tmp_path).close()
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (
            "rollouts.jsonl",
            record(),
            ": contains a rollouts.jsonl that is not from a run; expected none, or plan.json beside it",
        ),
        ("plan.json", "{", "/plan.json: is not the plan of a run (Input data was truncated)"),
        (
            "plan.json",
            '{"schema":"calipers.plan/2"}',
            "/plan.json: schema is 'calipers.plan/2'; expected 'calipers.plan/1'",
        ),
        ("plan.json", '{"tasks":[]}', "/plan.json: schema is ''"),
        (
            "plan.json",
            '{"schema":"calipers.plan/1","samples":1}',
            "/plan.json: is not the plan of a run (Object missing",
        ),
        (
            "plan.json",
            '{"schema":"calipers.plan/1","samples":1,"tasks":[{"task":"a","metadata":[]}]}',
            "/plan.json: the metadata of task 'a' is not an object; expected an object or null",
        ),
    ],
)
def test_a_directory_of_something_else(tmp_path, name, content, said):
    (tmp_path / name).write_text(content)
    assert refused(tmp_path).startswith(said)
    assert (tmp_path / name).read_text() == content


def test_a_file_is_no_directory(tmp_path):
    (tmp_path / "file").write_text("")
    assert refused(tmp_path / "file").startswith(": is a file, or is inside one")
    assert refused(tmp_path / "file" / "run").startswith(": is a file, or is inside one")


def test_no_key_is_written_anywhere(tmp_path):
    secrets = Secrets()
    secrets.add("sk-verysecret")
    leaky = {**IDENTITY, "headers": "Bearer sk-verysecret"}
    asked = plan(settings={"key": {"value": "sk-verysecret", "from": "command line"}}, samples=123456)

    async def append(folder):
        await folder.log.append(record(error="sk-verysecret").encode())

    with opened(tmp_path, leaky, asked, secrets.scrub_bytes) as folder:
        asyncio.run(append(folder))
        folder.write("result.json", b'{"why":"sk-verysecret"}')
        folder.write("report.html", b"<p>sk-verysecret")
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert written.keys() == {".lock", "plan.json", "rollouts.jsonl", "result.json", "report.html"}
    assert not [name for name, content in written.items() if b"verysecret" in content]
    secrets.add("123456")  # the plan has it as a number
    secrets.add("another-key")
    rotated = {**IDENTITY, "headers": "Bearer another-key"}
    with opened(tmp_path, rotated, asked, secrets.scrub_bytes) as folder:  # with another key it is the same run
        assert len(folder.history) == 1
    assert planned(tmp_path) == {"a": 123456, "b": 123456}


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    with opened(tmp_path) as folder:
        folder.write("result.json", b"old")
        (tmp_path / ".result.json.new").mkdir()  # a directory with the name of the temporary file
        with pytest.raises(LogError, match=r"result\.json: cannot be written \(Is a directory\)"):
            folder.write("result.json", b"new")
        assert (tmp_path / "result.json").read_bytes() == b"old"
        (tmp_path / ".result.json.new").rmdir()
        folder.write("result.json", b"new")
    assert (tmp_path / "result.json").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".new")] == []


def test_a_log_that_failed_is_said_once_on_leaving(tmp_path):
    async def append(folder):
        (tmp_path / "rollouts.jsonl").symlink_to("/dev/full")
        await folder.log.append(b"{}")

    async def append_and_fail(folder):
        await append(folder)
        raise KeyError

    with pytest.raises(LogError, match="No space left"), opened(tmp_path) as folder:
        asyncio.run(append(folder))
    (tmp_path / "rollouts.jsonl").unlink()
    with pytest.raises(KeyError), opened(tmp_path) as folder:  # the first error is the one that is raised
        asyncio.run(append_and_fail(folder))


def test_new_tasks_stand_behind_those_planned_before(tmp_path):
    """A reader that sees the tasks in the order of the plan, and later more of them, has seen the first ones first."""
    with opened(tmp_path, asked=plan(["m", "c"])):
        pass
    with opened(tmp_path, asked=plan(["a", "c", "b", "m"])):
        pass
    tasks = [task["task"] for task in json.loads((tmp_path / "plan.json").read_bytes())["tasks"]]
    assert tasks == ["m", "c", "a", "b"]


FILES = (".lock", "plan.json", "rollouts.jsonl", "x")


def modes(path):
    return {
        name: stat.S_IMODE((path / name).stat().st_mode) for name in (".", ".lock", "plan.json", "rollouts.jsonl", "x")
    }


@pytest.fixture
def usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_a_run_is_its_users_alone(tmp_path, usual_umask):
    with opened(tmp_path / "runs" / "r") as folder:
        folder.log.put(record().encode())
        folder.write("x", b"1")
    private = dict.fromkeys(FILES, 0o600)
    assert modes(tmp_path / "runs" / "r") == {".": 0o700, **private}
    assert stat.S_IMODE((tmp_path / "runs").stat().st_mode) == 0o755


@pytest.mark.parametrize(("given", "files"), [(0o750, 0o640), (0o755, 0o644), (0o777, 0o644)])
def test_a_folder_that_is_there_keeps_its_mode_and_its_files_follow(tmp_path, usual_umask, given, files):
    place = tmp_path / "r"
    place.mkdir()
    place.chmod(given)
    with opened(place) as folder:
        folder.log.put(record().encode())
        folder.write("x", b"1")
    assert modes(place) == {".": given, **dict.fromkeys(FILES, files)}


def test_a_lock_that_was_removed_while_one_waited_for_it_is_none(tmp_path):
    """A process that opened the lock file before its holder removed it has a lock that others cannot see."""
    path = tmp_path / "lock"
    with open(path, "wb") as file:
        assert is_at(file.fileno(), path)
        path.unlink()
        assert not is_at(file.fileno(), path)
        path.touch()
        assert not is_at(file.fileno(), path)
