import io
import re
import subprocess
import sys

import pytest

from calipers.cli.live import State, Watch, _fitted, _parts
from calipers.clients.pace import Pace
from calipers.reports.untrusted_text import width
from calipers.running.loop import Status
from calipers.running.watcher import Live


class Clock:
    """A clock that a test moves forward."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    return Terminal()


HEADLINE = Live(0.617, (0.55, 0.694), 210, 500, "pass@1")


def state(done=250, elapsed=50.0, **others):
    return State(
        **{"planned": 1_000, "done": done, "outcomes": {"scored": done}, "spent": None, "elapsed": elapsed, **others}
    )


def watched(clock, stream, *states, step=10.0):
    """The content of a stream after these states, each reported ``step`` seconds after the previous one."""
    with Watch(stream=stream, clock=clock) as watch:
        for one in states:
            watch.tick(one)
            clock.now += step
    return stream.getvalue()


def lines(clock, *states, step=10.0):
    return watched(clock, io.StringIO(), *states, step=step).splitlines()


def pictured(text):
    """The lines that were written to a terminal, without control sequences."""
    return re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", text).replace("\r", "\n").splitlines()


def going(clock, *states):
    """The last line of a run in progress."""
    stream = io.StringIO()
    watch = Watch(stream=stream, clock=clock)
    for one in states:
        clock.now += 10
        watch.tick(one)
    return stream.getvalue().splitlines()[-1]


def test_everything_on_one_plain_line(clock):
    told = state(done=450, spent=1.2345, headline=HEADLINE, retries=12)
    assert going(clock, state(elapsed=0.0), told) == (
        "450/1,000 (45 %), 4.0/s, 2:18 left, $1.23, 12 retries, pass@1 0.62 [0.55, 0.69]"
    )


def test_parts_are_dropped_in_one_order():
    """From all parts to the number of rollouts alone; every line is shorter than the previous one."""
    many = state(
        done=450,
        outcomes={"client_failed": 3, "scored": 435, "refused": 12},
        spent=1.2345,
        headline=Live(0.617, (0.55, 0.694), 210, 500, "mean(column=exact_match_of_letters)"),
        in_flight=48,
        limit=64,
        waiting="3 to retry after http_503",
        pause="3 to retry",
        retries=12,
    )
    parts = _parts(state(elapsed=0.0), many, over=False)
    steps = list(dict.fromkeys(_fitted(parts, room, ", ") for room in range(300, 0, -1)))
    numbers = "450/1,000, 4.0/s, 2:18 left"
    metric = "mean(column=exact_match_of_letters) 0.62 [0.55, 0.69]"
    short = "mean(column=exact_match… 0.62 [0.55, 0.69]"
    waits = "waiting: 3 to retry after http_503, $1.23, 12 retries"
    others, flying = "12 refused, 3 client_failed", "48 of 64 in flight"
    percent, sure = "450/1,000 (45 %), 4.0/s, 2:18 left", "valid at any stopping time (210 of 500 tasks)"
    assert steps == [
        f"{percent}, {waits}, {metric} {sure}, {others}, {flying}",
        f"{percent}, {waits}, {metric} (210 of 500 tasks), {others}, {flying}",
        f"{percent}, {waits}, {metric} (210 of 500 tasks), {others}",
        f"{percent}, {waits}, {metric}, {others}",
        f"{percent}, {waits}, {metric}",
        f"{numbers}, {waits}, {metric}",
        f"{numbers}, {waits}, {short}",
        f"{numbers}, 3 to retry, $1.23, 12 retries, {short}",
        f"{numbers}, 3 to retry, $1.23, {short}",
        f"{numbers}, 3 to retry, $1.23",
        f"{numbers}, 3 to retry",
        "450/1,000, 4.0/s, 3 to retry",
        "450/1,000, 3 to retry",
        "450/1,000",
    ]


@pytest.mark.parametrize("metric", ["pass@1", "mean(column=exact_match_of_the_letters)", "正解率" * 30, "x" * 500])
@pytest.mark.parametrize("waiting", ["", "rate limit: 12 s", "the last requests (" + "y" * 90 + ")"])
@pytest.mark.parametrize("planned", [1_000, 123_456_789])
def test_no_line_is_wider_than_80_columns(clock, terminal, monkeypatch, metric, waiting, planned):
    monkeypatch.setenv("COLUMNS", "80")
    told = state(
        planned=planned,
        outcomes={"client_failed": 3_000, "scored": 250, "refused": 12, "truncated": 4_321, "verifier_failed": 9},
        spent=12_345.678,
        headline=Live(0.617, (0.55, 0.694), 210, 500, metric),
        in_flight=48,
        limit=64,
        waiting=waiting,
        retries=12_345,
    )
    shown = [*lines(clock, state(0, 0.0), told), *pictured(watched(clock, terminal, state(0, 0.0), told))]
    assert len(shown) > 4
    assert [line for line in shown if width(line) > 80] == []
    assert any(line.startswith("250/") for line in shown)
    assert any("250/" in line and not line.startswith("250/") for line in shown)


def test_retries_that_the_loop_made_are_counted(clock):
    stream = io.StringIO()
    watch = Watch(stream=stream, clock=clock)
    status = Status(planned=8, began=clock.now, pace=Pace(16, clock), retries=1)
    for _ in range(2):
        clock.now += 10
        watch.show(status, None)
        status.retries += 1
    assert stream.getvalue() == "0/8 (0 %), 1 retry\n0/8 (0 %), 2 retries\n"


def test_a_line_every_ten_seconds_and_one_at_the_end(clock):
    told = [state(done=number, elapsed=float(number)) for number in range(26)]
    shown = lines(clock, *told, step=1.0)
    assert [line.split("/")[0] for line in shown] == ["10", "20", "25"]


def test_the_last_line_is_not_said_twice(clock):
    assert lines(clock, state(0, 0.0), state(1_000, 10.0)) == ["1,000/1,000 (100 %), 100/s, in 0:10"]
    assert lines(clock) == []


def test_a_run_that_ended_early_promises_nothing_more(clock):
    assert lines(clock, state(0, 0.0), state(100, 10.0)) == [
        "100/1,000 (10 %), 10.0/s, 1:30 left",
        "100/1,000 (10 %), 10.0/s, in 0:10",
    ]


def test_a_quick_run_has_its_line_too(clock):
    (line,) = lines(clock, state(0, 0.0), state(1_000, 2.5), step=0.1)
    assert line == "1,000/1,000 (100 %), 400/s, in 0:03"


@pytest.mark.parametrize(
    ("states", "said"),
    [
        (
            [state(900, 0.0), state(950, 10.0)],
            "950/1,000 (95 %), 5.0/s, 0:10 left",
        ),  # 900 of them before the run was resumed
        ([state(900, 0.0), state(900, 10.0)], "900/1,000 (90 %)"),  # no progress yet, so no rate and no remaining time
        ([state(0, 0.0), state(1, 0.2)], "1/1,000 (0 %)"),  # too early for a rate
        ([state(0, 0.0), state(1, 7384.0)], "1/1,000 (0 %), 0.0081/min, 2049:03:36 left"),
        ([state(0, 0.0, planned=0)], "0/0, in 0:00"),
        ([state(spent=0.00123)], "250/1,000 (25 %), $0.0012"),
        ([state(spent=0.0)], "250/1,000 (25 %), $0.00"),
        ([state(1_000, waiting="rate limit")], "1,000/1,000 (100 %), in 0:50"),  # a finished run does not wait
    ],
)
def test_how_far_and_how_fast(clock, states, said):
    assert going(clock, *states) == said


@pytest.mark.parametrize(
    ("live", "said"),
    [
        (HEADLINE, "pass@1 0.62 [0.55, 0.69] valid at any stopping time (210 of 500 tasks)"),
        (
            Live(0.617, (0.6, 0.63), 9, 10, "pass@1"),
            "pass@1 0.617 [0.600, 0.630] valid at any stopping time (9 of 10 tasks)",
        ),
        (Live(0.617, (0.617, 0.617), 10, 10, "pass@1"), "pass@1 0.6170 (10 of 10 tasks)"),
        (
            Live(1.75, None, 2, 9, "mean_reward", "rewards leave [0, 1]"),
            "mean_reward 1.75 (no interval: rewards leave [0, 1])",
        ),
        (Live(None, None, 0, 9, "pass@1", "no task has settled"), "pass@1 (no value yet: no task has settled)"),
        (
            Live(0.5, (0.4, 0.6), 2, 9, "a\x1b[2Jb"),
            "a?[2Jb 0.50 [0.40, 0.60] valid at any stopping time (2 of 9 tasks)",
        ),
    ],
)
def test_the_headline(clock, live, said):
    assert (
        _parts(state(), state(headline=live), over=False)["metric"][0].replace("\N{REPLACEMENT CHARACTER}", "?") == said
    )
    assert going(clock, state(headline=live)).startswith(f"250/1,000 (25 %), {said.partition(' valid')[0]}")


def test_a_terminal_is_redrawn_four_times_a_second_at_most(clock, terminal):
    told = [state(done=number, elapsed=number / 100, headline=HEADLINE) for number in range(200)]
    text = watched(clock, terminal, *told, step=0.01)
    assert 6 <= text.count("valid at any stopping time") <= 12  # two seconds, and the picture that stays
    assert "199/1,000 (19 %)" in text


def test_a_terminal_shows_a_bar_and_two_lines(clock, terminal):
    outcomes = {"scored": 400, "refused": 12}
    text = watched(clock, terminal, state(0, 0.0), state(450, 10.0, outcomes=outcomes, headline=HEADLINE, spent=2.0))
    bar, headline, rest = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", text).splitlines()[-3:]
    assert bar.startswith("━")
    assert bar.endswith("450/1,000 (45 %)  45.0/s  in 0:10  $2.00")
    assert headline == "pass@1 0.62 [0.55, 0.69] valid at any stopping time (210 of 500 tasks)"
    assert rest == "12 refused"
    assert text.endswith("\x1b[?25h")  # the cursor is back


def test_a_narrow_terminal_cuts_lines_and_wraps_none(clock, terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    text = watched(clock, terminal, state(headline=HEADLINE, waiting="x" * 100))
    assert "…" in text
    assert text.count("\n") == 2 + 1 + 2  # three lines, and two final lines that stay


def test_a_terminal_that_knows_ascii_only(clock, terminal):
    terminal.encoding = "ascii"
    text = watched(clock, terminal, state(headline=Live(0.5, None, 1, 9, "é", "no spread")))
    assert text.isascii()


def test_the_terminal_is_left_in_order_when_the_run_fails(clock, terminal):
    def run():
        with Watch(stream=terminal, clock=clock) as watch:
            watch.tick(state(headline=HEADLINE))
            raise KeyboardInterrupt

    stderr = sys.stderr
    with pytest.raises(KeyboardInterrupt):
        run()
    assert terminal.getvalue().endswith("\x1b[?25h")
    assert sys.stderr is stderr


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_nobody_reads_any_more_and_the_run_goes_on(clock, monkeypatch, kind):
    class Gone(kind):
        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setenv("TERM", "xterm")
    stderr = sys.stderr
    with Watch(stream=Gone(), clock=clock) as watch:
        for done in (1, 2, 3):
            watch.tick(state(done))
            clock.now += 10
        assert not watch.due()
    assert sys.stderr is stderr


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_a_title_says_which_run_it_is(clock, monkeypatch, kind):
    monkeypatch.setenv("TERM", "xterm")
    stream = kind()
    with Watch("arith, replay/a.jsonl", stream, clock) as watch:
        watch.tick(state())
    assert "arith, replay/a.jsonl" in stream.getvalue().splitlines()[0]


def test_a_title_is_on_a_line_above_until_another_run_has_a_line(clock):
    """Beside the title, the numbers would have no room."""
    stream = io.StringIO()
    first, second = (Watch(title, stream, clock) for title in ("a, " + "x" * 100, "b"))
    for watch in (first, first, second, first):
        clock.now += 10
        watch.tick(state())
    number, title = "250/1,000 (25 %)", "a, " + "x" * 76 + "?"  # of an ASCII stream
    assert stream.getvalue().splitlines() == [title, number, number, "b", number, title, number]
    assert len(title) == 80


def test_a_loop_that_says_where_it_stands(clock):
    stream = io.StringIO()
    watch = Watch(stream=stream, clock=clock)
    status = Status(planned=8, began=clock.now, pace=Pace(16, clock))
    watch.show(status, None)
    status.outcomes.update({"scored": 4, "empty": 2})
    status.pace.in_flight, status.spent = 2, 0.5
    clock.now += 10
    watch.show(status, HEADLINE)
    status.stopped = "width(pass@1) < 0.05 is reached"
    clock.now += 10
    watch.show(status, None)
    assert stream.getvalue().splitlines() == [
        "6/8 (75 %), 36/min, 0:04 left, $0.5000, pass@1 0.62 [0.55, 0.69], 2 empty",
        "6/8, 18/min, 0:07 left, the last requests, $0.5000",
    ]


def test_who_has_interrupted_it_is_told_how_to_end_it_at_once(clock):
    stream = io.StringIO()
    watch = Watch(stream=stream, clock=clock)
    status = Status(planned=8, began=clock.now, pace=Pace(16, clock), stopped="interrupted")
    clock.now += 10
    watch.show(status, None)
    assert stream.getvalue() == "0/8 (0 %), waiting: the last requests (interrupted); Ctrl-C again drops them\n"


def test_what_has_no_value_at_the_end_will_have_none(clock):
    stream = io.StringIO()
    with Watch(stream=stream, clock=clock) as watch:
        status = Status(planned=2, began=clock.now, pace=Pace(16, clock))
        status.outcomes["client_failed"] = 2
        watch.show(status, Live(None, None, 0, 2, "pass@1", "no task has settled"))
    assert stream.getvalue().endswith(", pass@1 (no value: no task has settled), 2 client_failed\n")


def test_calls_that_wait_for_their_next_try_are_no_silence(clock):
    """While a server is down for an hour, progress says so; without a message the run would seem to hang."""
    stream = io.StringIO()
    watch = Watch(stream=stream, clock=clock)
    status = Status(planned=8, began=clock.now, pace=Pace(16, clock), waiting=3, trouble="http_503")
    clock.now += 10
    watch.show(status, None)
    assert stream.getvalue() == "0/8 (0 %), waiting: 3 to retry after http_503\n"


def test_a_state_is_asked_for_only_when_it_would_be_shown(clock):
    watch = Watch(stream=io.StringIO(), clock=clock)
    assert watch.due()  # the first state, from which the rate is measured
    watch.tick(state(0, 0.0))
    assert not watch.due()
    clock.now += 10
    assert watch.due()


def test_rich_is_for_terminals_only():
    code = (
        "import io, sys\n"
        "from calipers.cli.live import State, Watch\n"
        "with Watch(stream=io.StringIO()) as watch: watch.tick(State(2, 1, {}, None, 1.0))\n"
        "sys.exit(', '.join({'rich', 'numpy'} & {*sys.modules}) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
