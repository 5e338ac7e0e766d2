"""Limits of time, memory, processes, disk and output; and that no process is left afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid

import pytest
from isolate.captive import alive, captive, said

from calipers.isolate import Limits, run

SHORT = Limits(seconds=0.25)  # for programs that would never end: however slow the machine is, they are still there


@pytest.fixture
def marker():
    return f"marker-{uuid.uuid4().hex}"


@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import time; time.sleep(1000)",
        """
        import signal, time
        for number in set(signal.valid_signals()) - {9, 19}:
            signal.signal(number, signal.SIG_IGN)
        while True: time.sleep(1000)
        """,
        """
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                while True: pass
            os._exit(0)
        time.sleep(1000)
        """,
        "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",  # asleep for ever
        """
        import sys, time
        sys.stdout.close(); sys.stderr.close()
        time.sleep(1000)
        """,
    ],
)
def test_the_deadline_ends_everything(mechanism, marker, code):
    ran = captive(code, mechanism, marker, limits=SHORT)
    assert (ran.timed_out, ran.exit_code) == (True, None)
    assert alive(marker) == []


def test_nothing_outlives_the_program(mechanism, marker):
    code = """
        import os, signal, time
        for _ in range(5):
            if os.fork() == 0:
                os.setsid()
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                for stream in range(3):
                    os.close(stream)
                if os.fork() == 0:
                    time.sleep(1000)
                os._exit(0)
        print("done")
    """
    assert said(code, mechanism, marker) == ["done"]
    assert alive(marker) == []


def test_nothing_outlives_whoever_started_it(mechanism, marker):
    code = (
        "import sys; from calipers.isolate import run, Limits; from calipers.isolate.launch import attempt;"
        f"run(['/bin/sh', '-c', 'echo here >&2; sleep 1000; true', '{marker}'], limits=Limits(seconds=1000),"
        f" mechanism=attempt('{mechanism.name}'))"
    )
    starter = subprocess.Popen([sys.executable, "-c", code])
    _wait_until(lambda: len(alive(marker)) > 1)  # the starter itself, and the shell
    starter.kill()
    starter.wait()
    _wait_until(lambda: alive(marker) == [])


def test_a_fork_bomb_stays_small(mechanism, marker):
    code = """
        import os, sys, time
        made = 0
        while True:
            try:
                if os.fork() == 0:
                    time.sleep(1000)
                made += 1
            except OSError:
                break
        print(made)
    """
    assert said(code, mechanism, marker, limits=Limits(processes=8)) == ["7"]  # and itself
    assert alive(marker) == []


def test_a_wild_fork_bomb_ends_at_the_deadline(mechanism, marker):
    ran = captive(
        """
        import os
        while True:
            try: os.fork()
            except OSError: pass
        """,
        mechanism,
        marker,
        limits=SHORT,
    )
    assert ran.timed_out
    assert alive(marker) == []


def test_threads_are_counted(mechanism):
    code = """
        import threading
        wait, made = threading.Event(), 0
        try:
            for made in range(1000):
                threading.Thread(target=wait.wait, daemon=True).start()
        except RuntimeError:
            print(made)
    """
    assert said(code, mechanism, limits=Limits(processes=8, memory_mb=2048)) == ["7"]


def test_one_process_has_so_much_memory(mechanism):
    code = """
        try:
            bytearray(200 << 20)
        except MemoryError:
            print("no more")
    """
    assert said(code, mechanism, limits=Limits(memory_mb=128)) == ["no more"]


def test_all_processes_together_have_no_more(mechanism, marker):
    code = """
        import os, time
        for _ in range(8):
            if os.fork() == 0:
                held = bytearray(b"x") * (60 << 20)
                time.sleep(1000)
        time.sleep(1000)
    """
    ran = captive(code, mechanism, marker, limits=Limits(memory_mb=128, seconds=60))
    assert (ran.stopped, ran.exit_code) == ("memory", None)
    assert alive(marker) == []


@pytest.mark.parametrize("place", ["/tmp", "/app", "/dev/shm"])
def test_the_disk_fills_up(mechanism, place):
    code = """
        import errno, os, sys
        written = 0
        for number in range(100):
            try:
                with open(f"{sys.argv[1]}/{number}", "wb", 0) as file:
                    for _ in range(4):
                        written += file.write(bytes(1 << 20))
            except OSError as error:
                print(written >> 20, errno.errorcode[error.errno])
                break
    """
    assert said(code, mechanism, place, limits=Limits(disk_mb=8), folders=["/app"]) == ["8 ENOSPC"]


def test_a_file_grows_no_larger_than_the_disk(mechanism):
    ran = run(["truncate", "-s", "20M", "/tmp/a"], limits=Limits(disk_mb=8), mechanism=mechanism)
    assert ran.exit_code == -signal.SIGXFSZ


@pytest.mark.parametrize("stream", [1, 2])
def test_output_is_cut(mechanism, stream):
    code = """
        import os, sys
        for _ in range(200):
            os.write(int(sys.argv[1]), b"x" * 100_000)
    """
    ran = captive(code, mechanism, str(stream), limits=Limits(output_bytes=1000))
    assert ran.cut
    assert [len(ran.stdout), len(ran.stderr)][stream - 1] == 1000
    assert ran.exit_code == 0


def test_endless_output_is_cut_and_ended(mechanism):
    ran = run(["/bin/sh", "-c", "yes"], limits=Limits(seconds=0.5, output_bytes=1000), mechanism=mechanism)
    assert (ran.cut, ran.timed_out, len(ran.stdout)) == (True, True, 1000)


def test_no_file_and_no_pipe_is_left_here(mechanism, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    captive("print(1)", mechanism)
    open_before = set(os.listdir("/proc/self/fd"))
    captive("while True: print(1)", mechanism, limits=SHORT, files={"tests/a": b"x"})
    assert set(os.listdir("/proc/self/fd")) == open_before
    assert list(tmp_path.iterdir()) == []


def _wait_until(holds):
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)
