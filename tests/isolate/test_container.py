"""Containers: what is visible inside and what is not, and that nothing is left of them."""

import gzip
import io
import os
import shlex
import shutil
import subprocess
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from isolate.captive import as_ordinary_user
from rooms import needs_rooms
from waiting import until

from calipers.isolate import container as containers
from calipers.isolate import limits
from calipers.isolate.container import CAPABILITY_NUMBERS, MOST_HEARD, Container, unpack
from calipers.isolate.limits import CONTAINER, tidy

pytestmark = needs_rooms


@pytest.fixture
def container():
    made = Container()
    made.start()
    yield made
    made.stop()


HOME = os.path.expanduser("~root")


def said(container, command, **more):
    ran = container.run(command, **more)
    return ran.code, ran.stdout.decode().strip()


def test_a_command_runs_where_it_is_told(container):
    assert said(container, "pwd", cwd="/tmp") == (0, "/tmp")
    assert said(container, "echo $A", env={"A": "b c"}) == (0, "b c")
    assert said(container, "exit 3")[0] == 3
    assert said(container, "id -un", user="nobody") == (0, "nobody")


@pytest.mark.skipif(shutil.which("bash") is None, reason="this machine has no bash to lend")
@pytest.mark.parametrize(
    ("command", "printed"),
    [
        ("[[ abc == a* ]] && echo yes", "yes"),
        ("set -o pipefail; false | true || echo failed", "failed"),
        ("a=(1 2 3); echo ${#a[@]} \"$(printf '%s' 'it is')\"", "3 it is"),
        # a script without a first line that names its shell is run by the shell that was asked to
        ("printf 'echo ${BASH_VERSION:+bash}' > /tmp/s; chmod +x /tmp/s; /tmp/s", "bash"),
    ],
)
@pytest.mark.parametrize("user", [None, "nobody"])
def test_commands_are_for_bash_as_in_harbor(container, command, printed, user):
    assert said(container, command, cwd="/tmp", user=user) == (0, printed)


def test_the_machine_stays_as_it_is(container):
    assert said(container, "touch /etc/calipers-was-here && rm -f /etc/hostname && ls /etc/calipers-was-here")[0] == 0
    assert not os.path.exists("/etc/calipers-was-here")


def test_what_is_hidden_is_hidden(tmp_path):
    (tmp_path / "secret").write_text("the solution")
    container = Container(hidden=[tmp_path])
    container.start()
    try:
        assert said(container, f"ls {tmp_path} 2>/dev/null | wc -l") == (0, "0")
        assert said(container, "ls /home | wc -l") == (0, "0")
    finally:
        container.stop()


def test_rights_are_those_of_a_container(container):
    for command in ("mount -t tmpfs x /mnt", "mknod /dev/disk b 8 0", "echo 1 > /proc/sys/kernel/panic"):
        assert said(container, f"{command} 2>/dev/null")[0] != 0, command


STATUS = "grep -E '^(Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs)' /proc/self/status | cut -f2 | tr '\\n' ' '"
NONE, OURS = "0" * 16, f"{sum(1 << number for number in CAPABILITY_NUMBERS.values()):016x}"


@pytest.mark.parametrize(("user", "held"), [(None, OURS), ("nobody", NONE)])
def test_a_command_has_these_rights_and_can_get_no_others(container, user, held):
    assert said(container, STATUS, cwd="/", user=user) == (0, f"{NONE} {held} {held} {OURS} {NONE} 0")


def test_a_command_holds_nothing_of_ours(container):
    """Neither a pipe of another command, nor the channel to the supervisor, nor a way out by a folder."""
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(container.run, "until [ -e /tmp/end ]; do sleep 0.01; done") for _ in range(3)]
        until(lambda: sum("/tmp/end" in command for command in container._commands()) == 3)
        assert said(container, "ls /proc/$$/fd; touch /tmp/end", cwd="/") == (0, "0\n1\n2")
        assert [one.result().code for one in waiting] == [0, 0, 0]


def test_process_1_hears_nothing_from_inside_and_tells_nothing(tmp_path):
    container = Container(hidden=[tmp_path])
    container.start()
    try:
        assert said(container, "for number in 1 2 3 9 15 19; do kill -$number 1; done; echo here") == (0, "here")
        assert str(tmp_path) not in container.run("cat /proc/1/cmdline").stdout.decode()
        for look in (
            "head -c 1 /proc/1/environ",
            "head -c 1 /proc/1/maps",
            "head -c 1 /proc/1/fd/0",
            "ls /proc/1/cwd/",
        ):
            assert b"Permission denied" in container.run(look).stderr, look
    finally:
        container.stop()


SPY = """
import os
seen, got = set(), []
def words(number):
    with open(f"/proc/{number}/cmdline", "rb") as file:
        return file.read()
ours = words(1)
looks = {
    "memory": lambda number: open(f"/proc/{number}/mem", "rb").close(),
    "environment": lambda number: open(f"/proc/{number}/environ", "rb").read(),
    "descriptors": lambda number: os.readlink(f"/proc/{number}/fd/0"),
    "files": lambda number: os.listdir(f"/proc/{number}/cwd"),
}
while len(seen) < 3:
    for number in os.listdir("/proc"):
        for name, look in looks.items() if number.isdecimal() and number != "1" else ():
            try:
                if words(number) == ours:
                    seen.add(number)
                    look(number)
                    got += [name] if words(number) == ours else []
            except OSError:
                pass
print(got)
"""


def test_who_starts_a_command_cannot_be_looked_at(container):
    """Until exec, a command's process is a copy of the supervisor, which has other commands in its memory."""
    with ThreadPoolExecutor(1) as pool:
        spy = pool.submit(said, container, f"python3 -ISc {shlex.quote(SPY)}")
        slow = {"PATH": "/none:" * 1500 + "/usr/bin:/bin"}  # to search takes a while, with no rights left
        until(lambda: spy.done() or container.run("true", env=slow).code)
        assert spy.result() == (0, "[]")


def test_commands_side_by_side_have_each_their_own_end(container):
    with ThreadPoolExecutor(8) as pool:
        ended = list(pool.map(lambda number: said(container, f"echo {number}; exit {number}"), range(40)))
    assert ended == [(number, str(number)) for number in range(40)]


def test_a_room_that_is_stopped_ends_its_commands(container):
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(container.run, "sleep 1000")
        until(lambda: "sleep 1000" in container._commands())
        container.stop()
        assert waiting.result().code == 137
    assert container.run("true").stderr == b"the room is closed\n"


ORDINARY = """
from calipers.isolate.container import Container
container = Container(network=False, memory=200, files=8)
container.start()
for command in (STATUS, "ulimit -c; ulimit -d; cat /proc/self/oom_score_adj", "grep -c : /proc/net/dev",
                "mount -t tmpfs x /mnt", "echo x > /proc/sys/kernel/panic", "head -c 9M /dev/zero > /tmp/a"):
    ran = container.run(command, cwd="/")
    print(ran.code, *ran.stdout.decode().split())
print(container.run("sleep 1000", timeout=0.1).timed_out, container.sweep(), container.tampered())
container.stop()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests are those of an ordinary user already")
def test_an_ordinary_user_has_rooms_too():
    rights, bounds, network, *refused, last = as_ordinary_user(ORDINARY.replace("STATUS", repr(STATUS)), "unshare")
    assert rights == f"0 {NONE} {OURS} {OURS} {OURS} {NONE} 0"
    assert (bounds, network) == (f"0 0 {200 << 10} 1000", "0 1")
    assert [line.split()[0] != "0" for line in refused] == [True, True, True]
    assert last == "True [] []"


def test_no_network_is_none():
    container = Container(network=False)
    container.start()
    try:
        assert said(container, "cat /proc/net/dev | grep -c : ") == (0, "1")  # lo alone
    finally:
        container.stop()


def test_time_is_up(container):
    ran = container.run("echo before; sleep 30; echo after", timeout=0.9)
    assert (ran.timed_out, ran.stdout) == (True, b"before\n")
    assert container.sweep() == []


def test_what_is_left_running_is_named_and_ended(container):
    container.run("(setsid sleep 77 > /dev/null 2>&1 &); until ps -eo args= | grep -qx 'sleep 77'; do sleep 0.01; done")
    assert container.sweep() == ["sleep 77"]
    assert container.sweep() == []


def test_a_child_that_holds_the_pipe_holds_nobody_up(container):
    assert container.run("sleep 50 & echo done").stdout == b"done\n"


def test_files_go_in_and_come_out(container, tmp_path):
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "deep" / "a").write_text("1")
    (tmp_path / "b").write_text("2")
    container.put(tmp_path / "in", "/data")
    container.put(tmp_path / "b", "/data/renamed")
    assert said(container, "cat /data/deep/a /data/renamed") == (0, "12")
    container.run("ln -s /etc/passwd /data/link; ln -s ../../../../escape /data/up")
    container.take("/data", tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["deep", "renamed"]  # no way out by a link
    assert (tmp_path / "out" / "deep" / "a").read_text() == "1"
    container.take("/data/renamed", tmp_path / "c")
    assert (tmp_path / "c").read_text() == "2"
    with pytest.raises(FileNotFoundError):
        container.take("/data/absent", tmp_path / "d")


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("true", []),
        ("python3 -c 'import json'; touch /usr/bin/new-tool", []),  # to install something is no fault
        ("echo x > /usr/bin/env", ["/usr/bin/env"]),
        ("rm /usr/bin/env", ["/usr/bin/env"]),
        ("echo /evil.so > /etc/ld.so.preload", ["/etc/ld.so.preload"]),
        ("cp /usr/bin/false /usr/bin/tar.new; mv /usr/bin/tar.new /usr/bin/tar", ["/usr/bin/tar"]),  # brings tests in
        (
            "mkdir -p ~root/.local/lib/python3.11/site-packages; cd ~root/.local/lib/python3.11/site-packages;"
            "echo 'import os' > a.pth; mkdir pytest; echo 1 > module.py",
            [f"{HOME}/.local/lib/python3.11/site-packages/{name}" for name in ("a.pth", "pytest")],
        ),
        # from outside, the link would lead to the machine's own folder, where nothing was changed
        ("cp -r /usr/local/sbin /s; rm -rf /usr/local/sbin; ln -s /usr/sbin /usr/local/sbin", ["/usr/local/sbin"]),
    ],
)
def test_tools_of_the_judge(container, command, found):
    container.run(command)
    assert container.tampered() == found


def test_nothing_is_left(tmp_path):
    container = Container()
    container.start()
    folder, groups = Path(container._folder), container._cgroups._paths
    container.run("sleep 88 > /dev/null 2>&1 &")
    container.stop()
    container.stop()  # twice does no harm
    assert not folder.exists()
    assert str(folder) not in Path("/proc/mounts").read_text()
    assert not any(group.exists() for group in groups)


@pytest.mark.parametrize(
    "bomb",
    [
        "bash -c 'f() { f | f & }; f'; sleep 1",
        "trap '' TERM HUP INT; f() { f & f & }; f; sleep 1",  # deaf, and never resting
    ],
)
def test_a_room_full_of_processes_can_be_cleared_and_used_again(monkeypatch, bomb):
    for place, name, few in ((limits, "PROCESSES", 320), (containers, "PROCESSES", 320), (containers, "CROWD", 288)):
        monkeypatch.setattr(place, name, few)  # a thousand of them would slow down every other test
    container = Container()
    container.start()
    try:
        assert b"fork" in container.run(bomb, timeout=2).stderr  # which was refused at some point
        assert said(container, "echo in") == (0, "in")  # there is a place for us
        container.sweep()
        assert container.sweep() == []
        assert said(container, "for n in 1 2 3; do sleep 0 & done; wait; echo fine") == (0, "fine")
    finally:
        container.stop()


def test_orphans_leave_no_trace(container):
    assert said(container, "for n in 1 2 3 4 5; do (true &); done; sleep 0.1; ps -eo stat= | grep -c Z") == (1, "0")


def test_memory_is_limited():
    container = Container(memory=200)
    container.start()
    try:
        assert said(container, "python3 -c 'bytearray(100 << 20)' && echo fine") == (0, "fine")
        assert "MemoryError" in container.run("python3 -c 'bytearray(300 << 20)'").stderr.decode()
    finally:
        container.stop()


def test_files_are_limited():
    container = Container(files=8)
    container.start()
    try:
        assert "No space left" in container.run("head -c 9M /dev/zero > /tmp/a").stderr.decode()
        assert container.run("head -c 1M /dev/zero > /etc/b").code == 1  # /tmp and all else are one disk
    finally:
        container.stop()


def test_more_than_can_be_kept_is_not_brought_out(container, tmp_path, monkeypatch):
    assert containers.MOST_TAKEN == 1024 << 20
    monkeypatch.setattr(containers, "MOST_TAKEN", 16 << 20)  # a thousand would slow down every other test
    container.run("mkdir /data; truncate -s 1T /data/endless; yes | head -c 20000000")
    with pytest.raises(OSError, match="/data contains more than 16 MB; it is not copied out of the room"):
        container.take("/data", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def archive_of(path, size, headers):
    """An archive of a folder with a file ``a``, which has more headers and no content."""
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        folder, file = tarfile.TarInfo("."), tarfile.TarInfo("a")
        folder.type, file.size, file.pax_headers = tarfile.DIRTYPE, size, headers
        tar.addfile(folder)
        tar.addfile(file, io.BytesIO(bytes(size)))
    return path.read_bytes()


SPARSE = {
    **{"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.name": "a", "GNU.sparse.numblocks": "1"},
    **{"GNU.sparse.size": str(64 << 20), "GNU.sparse.map": f"{64 << 20},0"},
}


@pytest.mark.parametrize(
    ("size", "headers", "change"),
    [
        (0, SPARSE, bytes),  # 64 MB of nothing
        (20 << 20, {}, gzip.compress),
        (5, {"GNU.sparse.major": "x", "GNU.sparse.minor": "0", "GNU.sparse.size": "x"}, bytes),
        (5, {"path": "a\0b"}, bytes),
        (5, {}, lambda data: b"no archive" * 100),
        (5, {}, lambda data: data[:1030]),
    ],
    ids=["sparse", "compressed", "number", "null", "nonsense", "half"],
)
def test_an_archive_that_a_program_made_does_no_harm(tmp_path, monkeypatch, size, headers, change):
    """The agent may replace the ``tar`` with which its files are brought out."""
    monkeypatch.setattr(containers, "MOST_TAKEN", 16 << 20)
    archive = tmp_path / "made.tar"
    archive.write_bytes(change(archive_of(archive, size, headers)))
    with pytest.raises(OSError, match=r"the files have more than 16 MB|the archive cannot be read"):
        unpack(archive, tmp_path / "out")
    assert sum(file.stat().st_size for file in (tmp_path / "out").rglob("*") if file.is_file()) <= 16 << 20


def test_what_is_printed_is_kept_up_to_a_limit(container):
    assert len(container.run(f"yes | head -c {MOST_HEARD + 5}").stdout) == MOST_HEARD


def test_what_a_killed_process_left_is_cleared_away(tmp_path):
    gone = subprocess.Popen(["true"])
    gone.wait()
    for name in (f"calipers-room-{gone.pid}-abc_1", f"calipers-room-{os.getpid()}-abc_1", "calipers-room-mine"):
        (tmp_path / name).mkdir()
    tidy(tmp_path, CONTAINER)
    assert not (tmp_path / f"calipers-room-{gone.pid}-abc_1").exists()
    assert len(list(tmp_path.iterdir())) == 2  # of those who live, and of those who are not ours
