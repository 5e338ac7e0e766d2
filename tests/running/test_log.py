import asyncio
import json
import os
import re
import shutil
import threading
from pathlib import Path

import pytest
from forks import FORKS, PROGRAM
from hypothesis import given
from hypothesis import strategies as st
from waiting import PATIENCE

from calipers.clients.secrets import Secrets
from calipers.errors import LogError
from calipers.running.log import MOST_BYTES, MOST_LINES, Log, scrubbed


def untouched(data):
    return data


class Gate:
    """A scrubber that blocks until it is opened, which looks like a slow disk to the log."""

    def __init__(self):
        self.batches, self._reached, self._opened = [], threading.Event(), threading.Event()

    def __call__(self, data):
        self.batches.append(data)
        self._reached.set()
        assert self._opened.wait(PATIENCE)
        return data

    def reached(self):
        assert self._reached.wait(PATIENCE)

    def open(self):
        self._opened.set()


async def turns():
    """Let all other tasks and threads run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_lines_in_their_order_and_flushed_means_on_disk(tmp_path):
    async def main():
        log = Log(tmp_path / "log", untouched)
        for number in range(1000):
            await log.append(b"%d" % number)
        await log.flush()
        seen = (tmp_path / "log").read_bytes()
        assert log.written == 1000
        await log.append(b"last")
        await log.close()
        return seen, log.written

    seen, written = asyncio.run(main())
    assert seen == b"".join(b"%d\n" % number for number in range(1000))
    assert (tmp_path / "log").read_bytes() == seen + b"last\n"
    assert written == 1001


def test_a_log_is_continued_never_begun_again(tmp_path):
    async def main(line):
        log = Log(tmp_path / "log", untouched)
        await log.append(line)
        await log.close()

    asyncio.run(main(b"one"))
    asyncio.run(main(b"two"))
    assert (tmp_path / "log").read_bytes() == b"one\ntwo\n"


def test_nobody_waits_for_the_disk_and_what_gathers_is_written_together(tmp_path):
    async def main():
        gate = Gate()
        log = Log(tmp_path / "log", gate)
        await log.append(b"first")  # an idle log writes it at once
        gate.reached()
        for number in range(500):
            await log.append(b"%d" % number)
        assert log.written == 0
        gate.open()
        await log.close()
        return gate.batches

    first, rest = asyncio.run(main())
    assert first == b"first\n"
    assert rest.count(b"\n") == 500


@pytest.mark.parametrize(
    ("lines", "size"),
    [(MOST_LINES, 1), (1, MOST_BYTES)],
    ids=["many", "large"],
)
def test_a_disk_far_behind_is_waited_for(tmp_path, lines, size):
    async def main():
        gate = Gate()
        log = Log(tmp_path / "log", gate)
        for _ in range(lines):
            await log.append(b"x" * size)
        gate.reached()
        waiting = [asyncio.create_task(log.append(b"y")) for _ in range(3)]
        await turns()
        assert not any(task.done() for task in waiting)
        gate.open()
        await asyncio.gather(*waiting)
        await log.close()
        return log.written

    assert asyncio.run(main()) == lines + 3


def test_a_flush_that_is_given_up_harms_nobody(tmp_path):
    async def main():
        gate = Gate()
        log = Log(tmp_path / "log", gate)
        await log.append(b"one")
        gate.reached()
        given_up, kept = asyncio.create_task(log.flush()), asyncio.create_task(log.flush())
        await turns()
        given_up.cancel()
        gate.open()
        await kept
        await log.close()
        assert given_up.cancelled()

    asyncio.run(main())
    assert (tmp_path / "log").read_bytes() == b"one\n"


def test_a_log_outlives_the_loop_it_was_opened_in(tmp_path):
    gate = Gate()

    async def begin():
        log = Log(tmp_path / "log", gate)
        await log.append(b"one")
        gate.reached()
        asyncio.create_task(log.flush())  # noqa: RUF006 - its loop is closed under it
        await turns()
        return log

    log = asyncio.run(begin())
    gate.open()
    log.shut()
    log.shut()  # closing it twice is not an error
    assert (tmp_path / "log").read_bytes() == b"one\n"
    with pytest.raises(ValueError, match="is closed"):
        asyncio.run(log.append(b"two"))


def test_a_scrubber_that_fails_keeps_nobody_waiting(tmp_path):
    def broken(data):
        raise ZeroDivisionError

    async def main():
        log = Log(tmp_path / "log", broken)
        await log.append(b"one")
        with pytest.raises(ZeroDivisionError):
            await log.flush()
        with pytest.raises(ZeroDivisionError):
            await log.append(b"two")
        with pytest.raises(ZeroDivisionError):
            await log.close()

    asyncio.run(main())
    assert (tmp_path / "log").read_bytes() == b""


def test_a_place_that_cannot_be_written(tmp_path):
    with pytest.raises(LogError, match=r"log: cannot be written \(No such file or directory\)"):
        Log(tmp_path / "nowhere" / "log", untouched)


# Appends lines of 100 bytes in batches, until the file cannot grow; says what it was told, as JSON.
FILLING = """
import asyncio, json, resource, sys
from pathlib import Path
from calipers.errors import LogError
from calipers.running.log import Log

path, batch, limit = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

async def main():
    log, said = Log(path, lambda data: data), []
    try:
        for start in range(0, 100_000, batch):
            for number in range(start, start + batch):
                await log.append(b"%099d" % number)
            await log.flush()
    except LogError as error:
        said.append(str(error))
        code = error.exit_code
    for later in (log.append(b"later"), log.flush(), log.close()):
        try:
            await later
        except LogError as error:
            said.append(str(error))
    print(json.dumps([said, code, log.written]))

asyncio.run(main())
"""


def filled(path, batch, limit=0):
    arguments = (FILLING, str(path), str(batch), str(limit))
    done = FORKS.run(arguments, path.parent, dict(os.environ), module=PROGRAM)
    assert done.code == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_a_file_that_may_not_grow_keeps_its_whole_lines(tmp_path, batch):
    path = tmp_path / "log"
    said, code, written = filled(path, batch, limit=10_050)  # one half of a line more than a hundred lines
    assert path.read_bytes() == b"".join(b"%099d\n" % number for number in range(100))
    assert written == 100
    assert code == 3
    assert len(said) == 4  # the error of the first append, and of each later one
    assert set(said) == {
        f"{path}: cannot be written (File too large); what was finished before is kept: "
        "raise the limit on the size of a file and run the same command again"
    }


def replace_by_copy(path):
    """What an editor does when it saves a file."""
    copy = path.with_name("copy")
    shutil.copy(path, copy)
    os.replace(copy, path)


def move(path):
    os.rename(path, path.with_name("moved"))


def replace_with_backup(path):
    """What an editor does that keeps a backup: the file under the old name is the new one."""
    move(path)
    shutil.copy(path.with_name("moved"), path)


@pytest.mark.parametrize(
    "damage", [lambda path: shutil.rmtree(path.parent), Path.unlink, replace_by_copy, move, replace_with_backup]
)
def test_a_log_that_was_removed_or_replaced_is_told(tmp_path, damage):
    path = tmp_path / "r" / "log"
    path.parent.mkdir()
    log = Log(path, untouched)

    async def write():
        await log.append(b"1")
        await log.flush()
        damage(path)
        await log.append(b"2")
        await log.flush()

    with pytest.raises(LogError, match=r"log: was removed, moved or replaced while it was written"):
        asyncio.run(write())
    assert log.written == 1


def test_user_code_may_change_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    async def write():
        log = Log(Path("log"), untouched)
        monkeypatch.chdir("/")
        await log.append(b"1")
        await log.close()

    asyncio.run(write())
    assert (tmp_path / "log").read_bytes() == b"1\n"


def test_a_full_disk_keeps_its_whole_lines(tiny_disk):
    path = tiny_disk / "log"
    said, _, written = filled(path, 50)
    content = path.read_bytes()
    assert content == b"".join(b"%099d\n" % number for number in range(len(content) // 100))
    assert written == len(content) // 100
    assert 600 < written <= 655
    assert "(No space left on device); what was finished before is kept: free some space and run the same" in said[0]


KEY = "sk-verysecret"


@pytest.mark.parametrize(
    ("key", "line", "expected"),
    [
        (KEY, {"error": f"Bearer {KEY} refused"}, {"error": "Bearer [secret] refused"}),
        (KEY, {"metadata": {KEY: [KEY, 1]}}, {"metadata": {"[secret]": ["[secret]", 1]}}),
        # some servers accept any key; none of these may make the log unreadable
        ("123456", {"usage": {"input_tokens": 1234567}}, {"usage": {"input_tokens": 1234567}}),
        ("reward", {"reward": 1, "completion": "reward"}, {"reward": 1, "completion": "[secret]"}),
        ("scored", {"outcome": "scored", "error": "scored"}, {"outcome": "scored", "error": "[secret]"}),
        ('a"b"c"d', {"error": 'a"b"c"d!'}, {"error": "[secret]!"}),
    ],
)
def test_keys_are_taken_out_and_records_stay_records(tmp_path, key, line, expected):
    async def main():
        secrets = Secrets()
        log = Log(tmp_path / "log", secrets.scrub_bytes)
        secrets.add(key)  # a client adds its key after the log was opened
        await log.append(b'{"task":"a"}')
        await log.append(json.dumps(line).encode())
        await log.close()

    asyncio.run(main())
    first, second = (tmp_path / "log").read_bytes().splitlines()
    assert json.loads(first) == {"task": "a"}
    assert json.loads(second) == expected


def test_what_is_no_json_is_scrubbed_as_it_is():
    assert scrubbed(b"<p>key-of-mine</p>", lambda data: data.replace(b"key-of-mine", b"*")) == b"<p>*</p>"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text("abcd12", max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abcd", max_size=9), inner, max_size=3),
)


@given(st.dictionaries(st.sampled_from(["task", "outcome", "error", "metadata"]), JSON), st.text("abcd12", min_size=2))
def test_no_text_of_a_record_holds_the_key(record, key):
    clean = json.loads(scrubbed(json.dumps(record).encode(), lambda data: data.replace(key.encode(), b"*")))
    assert clean.keys() == record.keys()
    texts = re.findall(r'"[^"]*"', json.dumps([value for name, value in clean.items() if name != "outcome"]))
    assert not any(key in text for text in texts)
