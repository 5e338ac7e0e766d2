"""The memory of a tree of processes, measured from outside: every process counts, and shared memory once."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from textwrap import dedent

import pytest

from calipers.isolate.limits import Meter, below, children, memory_share, most_memory

MB = 1 << 20


@contextmanager
def started(code):
    """A Python process that has come to the end of some code, and what is below it; it waits there."""
    whole = f"import os, sys, threading, time\n{dedent(code)}\nsys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", whole], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            for _ in range(5):
                assert process.stdout.readline() == b"here\n"
            yield process.pid
        finally:
            for pid in [*below(process.pid)]:
                subprocess.run(["kill", "-9", str(pid)], check=False)


APART = """
def start():
    for _ in range(5):
        if os.fork() == 0:
            held = bytearray(b"x") * (40 << 20)
            os.write(1, b"here\\n")
            time.sleep(1000)
threads = [threading.Thread(target=start)]
threads[0].start()
threads[0].join()
"""
IN_THREADS = """
def start():
    if os.fork() == 0:
        held = bytearray(b"x") * (40 << 20)
        os.write(1, b"here\\n")
        time.sleep(1000)
    time.sleep(1000)
for _ in range(5):
    threading.Thread(target=start, daemon=True).start()
"""
SHARED = """
held = bytearray(b"x") * (40 << 20)
for _ in range(5):
    if os.fork() == 0:
        os.write(1, b"here\\n")
        time.sleep(1000)
"""


@pytest.mark.parametrize("code", [APART, IN_THREADS])
def test_children_of_every_thread_are_found_and_counted(code):
    with started(code) as pid:
        assert len(children(pid)) == 5
        every = [*below(pid)]
        assert len(every) == 6
        assert sum(map(most_memory, every)) > 200 * MB
        assert sum(map(memory_share, every)) > 200 * MB
        assert Meter(pid, 200 * MB, []).over(ready=True)
        assert not Meter(pid, 2000 * MB, []).over(ready=True)


def test_what_a_fork_shares_counts_once():
    with started(SHARED) as pid:
        every = [*below(pid)]
        assert sum(map(most_memory, every)) > 240 * MB
        assert 40 * MB < sum(map(memory_share, every)) < 120 * MB
        assert not Meter(pid, 120 * MB, []).over(ready=True)


def test_a_process_that_is_gone_holds_nothing():
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
        assert children(process.pid) == []
        assert (most_memory(process.pid), memory_share(process.pid)) == (0, 0)
        assert not Meter(process.pid, 0, ["/tmp"]).over(ready=True)
