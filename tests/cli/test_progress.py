import io

import pytest

from calipers.cli.output import Progress


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    return Terminal()


def test_a_person_who_waits_sees_a_bar(terminal):
    with Progress(0, terminal) as progress:
        assert progress.wanted
        progress(50_000_000, 100_000_000)
    assert "reading" in terminal.getvalue()
    assert "50.0/100.0 MB" in terminal.getvalue()


def test_a_size_nobody_knows(terminal):
    with Progress(0, terminal) as progress:
        progress(50_000_000, 0)
    assert "50.0/? MB" in terminal.getvalue()


def test_quick_work_shows_nothing(terminal):
    with Progress(3600, terminal) as progress:
        progress(50, 100)
    assert terminal.getvalue() == ""


def test_the_bar_is_gone_when_reading_fails(terminal):
    def read():
        with Progress(0, terminal) as progress:
            progress(50, 100)
            raise ValueError("no rollout")

    with pytest.raises(ValueError, match="no rollout"):
        read()
    assert terminal.getvalue().rstrip().endswith("\x1b[2K")


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_a_file_and_a_dumb_terminal_see_nothing(monkeypatch, term):
    monkeypatch.setenv("TERM", term)
    stream = io.StringIO() if term == "xterm" else Terminal()
    with Progress(0, stream) as progress:
        assert not progress.wanted
        progress(50, 100)
    assert stream.getvalue() == ""
