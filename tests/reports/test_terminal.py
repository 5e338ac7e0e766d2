import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reports.shown import HARMFUL, estimate, group, hostile, result

import calipers
from calipers.reports import terminal
from calipers.reports.document import Picture
from calipers.reports.result import document
from calipers.reports.terminal import drawn

ARITH = str(files("calipers") / "examples" / "arith.jsonl")
ANSI = re.compile(r"\x1b\[[0-9;]*m")
SECONDS = 120
UNIT = st.floats(0, 1)
PROGRAM = "from calipers.cli import main; main()"


def render(made, **shown):
    return terminal.render(document(made, **shown))


def on_a_terminal(columns, *arguments, **environment):
    """The output of the command on a terminal with ``columns`` columns, with escape sequences."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdout=slave,
        stderr=subprocess.PIPE,
        env={**kept, "TERM": "xterm-256color", **environment},
    )
    os.close(slave)
    printed = b""
    try:
        while more := os.read(master, 1 << 16):
            printed += more
    except OSError:  # raised on Linux when the last writer has closed
        pass
    os.close(master)
    said = process.communicate(timeout=SECONDS)[1]
    assert [line for line in said.splitlines() if not line.startswith(b"warning: ")] == []  # rollouts are missing
    assert process.returncode == 0
    return printed.decode().replace("\r\n", "\n")


def test_a_terminal_shows_the_same_in_colour():
    arguments = ("score", ARITH, "--by", "difficulty", "--metric", "pass@3", "--metric", "mean(column=f1)")
    coloured = on_a_terminal(100, *arguments)
    assert "\x1b[94m" in coloured  # intervals are blue
    assert "\x1b[1mtiny-calculator passes" in coloured
    plain = render(calipers.score(ARITH, ["pass@3", "mean(column=f1)"], by="difficulty"))
    assert ANSI.sub("", coloured) == plain


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize(
    "arguments",
    [
        ("score", ARITH, "--by", "difficulty"),
        ("compare", ARITH, ARITH.replace("arith.jsonl", "arith_next.jsonl"), "--by", "difficulty"),
        ("items", ARITH.replace("arith.jsonl", "calculators.csv"), "--limit", "3"),
        ("list", "verifiers"),
        ("explain", "pass@4"),
    ],
)
def test_a_terminal_is_not_overrun(columns, arguments):
    shown = ANSI.sub("", on_a_terminal(columns, *arguments))
    inputs = [line for line in shown.splitlines() if line.startswith(ARITH)]
    assert [line for line in shown.splitlines() if len(line) > columns and line not in inputs] == []


def test_no_color_means_none():
    assert not re.search(r"\x1b\[\d*(3[0-7]|9[0-7])m", on_a_terminal(100, "score", ARITH, NO_COLOR="1"))


def test_a_dumb_terminal_gets_plain_lines():
    assert "\x1b" not in on_a_terminal(100, "score", ARITH, TERM="dumb")


def test_the_whole_page():
    bounded = estimate(bounds=(0.7, 0.8), undefined_tasks=1)
    lonely = estimate(1.0, stderr=None, interval=None, method=None, why="one task says nothing about others")
    made = group({"pass@3": bounded, "pass@1": lonely}, dataset="sums", model="m")
    assert render(result(made), details=True).splitlines() == [
        "sums · m",
        "4 tasks; 12 planned = 9 scored + 1 refused + 2 client_failed; 2 missing (excluded)",
        "",
        "metric     value  ± stderr  95 % interval     0                   1  n",
        "─" * 88,
        "pass@3 ↑  0.7500    0.2500  0.3000 to 0.9500  ······├────────●───┤·  4 tasks, 12 samples",
        "  unbiased estimate: probability of a pass in 3 samples (Chen et al. 2021); 1 task has fewer than 3",
        "    samples; 0.7000 to 0.8000 if all missing samples failed / passed",
        "pass@1 ↑  1.0000         –                                           4 tasks, 12 samples",
        "  unbiased estimate: probability of a pass in 3 samples (Chen et al. 2021); no interval: at least",
        "    two tasks are needed",
        "",
        "rollouts.jsonl: native, 12 rollouts",
        f"native definitions; missing rollouts excluded; seed 0; digest {result(made).digest[:23]}…",
    ]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_a_stream_without_our_signs_gets_their_likes(encoding):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    terminal.show(document(result(group(model="größe 🙂"))), stream)
    stream.flush()
    text = stream.buffer.getvalue().decode("ascii")
    assert ".....|--------o--|." in text
    assert "…" not in text


def test_utf8_keeps_them():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="UTF-8")
    terminal.show(document(result(group(model="größe 🙂"))), stream)
    stream.flush()
    assert "größe 🙂" in stream.buffer.getvalue().decode()


def test_nothing_a_file_says_reaches_the_terminal():
    text = render(hostile())
    assert "evil\ufffd[31m" in text
    assert [character for character in HARMFUL if character in text] == []
    assert "\nline" not in text  # a name cannot begin a new line


@pytest.mark.parametrize(
    ("value", "interval", "expected"),
    [
        (0.0, (0.0, 1.0), "●───────────────────┤"),
        (0.0, (0.0, 0.0), "●····················"),
        (0.5, (0.45, 0.55), "·········├●┤·········"),
        (0.5, (0.49, 0.51), "··········●··········"),
        (0.5, (-0.1, 0.6), ""),  # not inside the axis from 0 to 1
        (1.5, (0.5, 1.0), ""),
        (float("nan"), (0.0, 1.0), ""),
    ],
)
def test_a_picture(value, interval, expected):
    assert drawn(Picture(value, *interval)) == expected


@given(st.tuples(UNIT, UNIT, UNIT).map(sorted))
def test_every_picture_is_as_wide_as_its_axis(places):
    low, value, high = places
    line = drawn(Picture(value, low, high))
    assert len(line) == 21
    assert line.count("●") == 1
    assert set(line) <= set("·├─●┤")
