"""Calls of our functions in other processes."""

from __future__ import annotations

import os

import pytest

from calipers.formats import lines
from calipers.formats.lines import ChildProcess, kept_processes


def called(way):
    child = ChildProcess(way, {})
    try:
        return child.result()
    finally:
        child.stop()


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_process_is_kept_for_the_next_call_and_ends_with_the_block():
    with kept_processes():
        pid = called("os:getpid")
        assert pid != os.getpid()
        assert called("os:getpid") == pid
        assert is_alive(pid)
    assert not is_alive(pid)


def test_no_process_is_kept_without_the_block():
    assert not is_alive(called("os:getpid"))


def test_a_process_that_is_stopped_at_work_is_not_kept():
    with kept_processes():
        child = ChildProcess("signal:pause", {})
        child.stop()
        assert called("os:getpid") != os.getpid()


def test_a_call_is_made_here_if_the_kept_process_has_died():
    with kept_processes():
        pid = called("os:getpid")
        os.kill(pid, 9)
        assert called("os:getpid") == os.getpid()


@pytest.mark.parametrize("code", ["raise SystemExit(9)", "import os; os.kill(os.getpid(), 9)"])
def test_a_call_is_made_here_if_no_process_starts(monkeypatch, code):
    monkeypatch.setattr(lines, "_CHILD", code)
    assert called("os:getpid") == os.getpid()
