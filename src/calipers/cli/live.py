"""The progress of a run: live lines on a terminal, otherwise a plain line of 80 columns every ten seconds.

Progress contains no prompt and no completion. Lines are not wrapped: without room, their parts are shortened or dropped
in the order of `DROPPED`.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Final, TextIO, cast

from calipers.reports.untrusted_text import clean, guarded, is_terminal, plain, width
from calipers.rollouts.record import OUTCOMES

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live as Display

    from calipers.running.loop import Status
    from calipers.running.watcher import Live

REDRAW = 0.25  # seconds between updates on a terminal
REPORT = 10.0  # seconds between lines elsewhere
SETTLING_IN = 1.0  # seconds before a rate is meaningful
COLUMNS = 80  # width of a line that is not on a terminal
LONGEST_NAME = 24  # characters of a metric's name on a line with little room
LEAST_BAR, LONGEST_BAR, BESIDE_BAR = 8, 30, 62  # widths of the bar, and the room for the numbers beside it

Parts = dict[str, list[str]]
"""The parts of a line in their order: name -> its possible texts, the longest first."""

DROPPED: Final = (
    *("metric", "in_flight", "metric", "outcomes", "done", "metric"),  # details first, so that the numbers still fit
    *("waiting", "retries", "metric", "spent", "left", "rate", "waiting"),
)
"""The parts to shorten, in this order, until the line fits; a part without a shorter text is dropped."""


@dataclass(frozen=True, slots=True)
class State:
    """The progress of a run."""

    planned: int  # number of rollouts
    done: int  # number of finished rollouts, including those before the run was resumed
    outcomes: Mapping[str, int]  # outcome -> number of rollouts
    spent: float | None  # dollars; None if prices are unknown
    elapsed: float  # seconds since the run was started or resumed
    headline: Live | None = None
    in_flight: int = 0
    limit: int = 0  # the number of calls that may be in flight now
    waiting: str = ""  # the reason for waiting, such as "rate limit: 12 s"
    pause: str = ""  # a shorter text for ``waiting``
    retries: int = 0  # number of retried requests since the run was started or resumed


class Watch:
    """Shows states of progress at a readable rate.

    Computing a state takes time, so call ``due`` first. The title above the lines distinguishes several runs. Runs that
    progress at the same time are not drawn; each prints plain lines.
    """

    _latest: ClassVar[Watch | None] = None  # the watch that printed the last plain line
    _lock: ClassVar[threading.Lock] = threading.Lock()  # for plain lines

    def __init__(
        self,
        title: str = "",
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        drawn: bool = True,
    ) -> None:
        self._title = clean(title, COLUMNS)
        self._stream = _Stream(stream or sys.stderr)  # None if it is closed
        self._drawn = drawn and self._stream.isatty()
        self._every = REDRAW if self._drawn else REPORT
        self._clock = clock
        self._next = clock() if self._drawn else clock() + REPORT
        self._first: State | None = None  # the rate is measured from here, without rollouts from before a resume
        self._last: State | None = None
        self._shown: State | None = None
        self._display: Display | None = None

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        last = self._last
        # without a finished rollout, an error message is enough
        if last is not None and (last.done or error is None) and (last is not self._shown or last.done < last.planned):
            self._show(last, over=True)
        if self._display is not None:
            self._display.stop()

    def due(self) -> bool:
        """Whether to compute another state: the first one, and one per interval."""
        return self._stream.alive and (self._first is None or self._clock() >= self._next)

    def tick(self, state: State) -> None:
        """Keep a state, and show it if an update is due; the last state is shown at the end."""
        self._first = self._first or state
        self._last = state
        if self.due():
            self._show(state)
            self._next = self._clock() + self._every

    def show(self, status: Status, headline: Live | None) -> None:
        """Keep the status of a run's loop as a state, and show it if an update is due."""
        held_back = status.pace.pause
        waiting, pause = "", ""
        if status.stopped:
            waiting, pause = f"the last requests ({status.stopped})", "the last requests"
            waiting += "; Ctrl-C again drops them" if status.stopped == "interrupted" else ""
        elif held_back:
            waiting = pause = f"rate limit: {math.ceil(held_back)} s"
        elif status.waiting:
            waiting, pause = f"{status.waiting:,} to retry after {status.trouble}", f"{status.waiting:,} to retry"
        self.tick(
            State(
                planned=status.planned,
                done=status.done,
                outcomes=dict(status.outcomes),
                spent=status.spent,
                elapsed=self._clock() - status.began,
                headline=headline,
                in_flight=status.pace.in_flight,
                limit=status.pace.limit,
                waiting=waiting,
                pause=pause,
                retries=status.retries,
            )
        )

    def _show(self, state: State, over: bool = False) -> None:
        self._shown = state
        over = over or state.done >= state.planned
        parts = _parts(self._first or state, state, over)
        if self._drawn:
            self._draw(parts, state)
            return
        with Watch._lock:  # so that no other run writes between a title and its line
            if self._title and Watch._latest is not self:
                self._stream.write(guarded(f"{self._title}\n"))
                Watch._latest = self
            self._stream.write(guarded(f"{_fitted(parts, COLUMNS, ', ')}\n"))
            self._stream.flush()

    def _draw(self, parts: Parts, state: State) -> None:
        from rich.console import Console
        from rich.live import Live as Display

        if self._display is None:
            console = Console(file=cast(TextIO, self._stream), highlight=False, emoji=False, markup=False)
            # standard output is not redirected, because it may be data for a file
            self._display = Display(console=console, auto_refresh=False, redirect_stdout=False)
            self._display.start()
        picture = _picture(self._title, state.done / max(state.planned, 1), parts, self._display.console)
        self._display.update(picture, refresh=True)


class _Stream:
    """A stream that ignores a closed pipe: the run continues, and later text is dropped.

    rich by itself would end the process at a closed pipe and lose its standard output.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.encoding = getattr(stream, "encoding", None) or "ascii"

    @property
    def alive(self) -> bool:
        """Whether the stream can still be written."""
        return self._stream is not None

    def isatty(self) -> bool:
        return is_terminal(self._stream)

    def write(self, text: str) -> int:
        self._do(lambda stream: stream.write(text.encode(self.encoding, "replace").decode(self.encoding)))
        return len(text)

    def flush(self) -> None:
        self._do(lambda stream: stream.flush())

    def _do(self, act: Callable[[TextIO], object]) -> None:
        try:
            if self._stream is not None:
                act(self._stream)
        except OSError:
            self._stream = None


def _picture(title: str, share: float, parts: Parts, console: Console) -> RenderableType:
    """The bar with its numbers, the metric below it, and the other parts below the metric."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    def line(text: str, style: str) -> Text:
        shown = text if console.encoding.startswith("utf") else plain(text)
        return Text(shown, style, no_wrap=True, overflow="ellipsis")

    def named_parts(*names: str) -> Parts:
        return {name: parts[name] for name in names if name in parts}

    length = max(LEAST_BAR, min(LONGEST_BAR, console.width - BESIDE_BAR))
    numbers = _fitted(named_parts("done", "rate", "left", "spent", "retries"), console.width - length - 1, "  ")
    bar = Table.grid(padding=(0, 1), expand=False)
    bar.add_row(ProgressBar(1.0, share, width=length), line(numbers, "bold"))
    below_bar = [(named_parts("metric"), "cyan"), (named_parts("waiting", "outcomes", "in_flight"), "dim")]
    lines = [line(_fitted(below, console.width, "  "), style) for below, style in below_bar if below]
    return Group(*([line(title, "bold")] if title else []), bar, *lines)


def _parts(first: State, now: State, over: bool) -> Parts:
    """The parts that a line may show."""
    speed, done = _speed(first, now), f"{now.done:,}/{now.planned:,}"
    failed = [f"{now.outcomes[word]:,} {word}" for word in OUTCOMES if word != "scored" and now.outcomes.get(word)]
    parts: Parts = {"done": [f"{done} ({100 * now.done // now.planned} %)", done] if now.planned else [done, done]}
    if speed:
        parts["rate"] = [f"{60 * speed:.2g}/min" if speed < 1 else f"{speed:,.{1 if speed < 100 else 0}f}/s"]
    if over:
        parts["left"] = [f"in {_clock_time(now.elapsed)}"]
    elif speed:
        parts["left"] = [f"{_clock_time((now.planned - now.done) / speed)} left"]
    if now.waiting and not over:
        parts["waiting"] = [f"waiting: {clean(now.waiting)}", clean(now.pause or now.waiting)]
    if now.spent is not None:
        parts["spent"] = [f"${now.spent:,.2f}" if now.spent >= 1 or not now.spent else f"${now.spent:.4f}"]
    if now.retries:
        parts["retries"] = [f"{now.retries:,} {'retry' if now.retries == 1 else 'retries'}"]
    if now.headline is not None:
        parts["metric"] = _headline(now.headline, over)
    if failed:
        parts["outcomes"] = [", ".join(failed)]
    if now.in_flight and not over:
        parts["in_flight"] = [f"{now.in_flight:,} of {max(now.limit, now.in_flight):,} in flight"]
    return parts


def _fitted(parts: Parts, room: int, separator: str) -> str:
    """The parts on a line of ``room`` columns; the last part is never dropped, even if it is wider."""
    line = ""
    for name in ("", *DROPPED):
        if name in parts:
            parts = {**parts, name: parts[name][1:]}
        line = separator.join(forms[0] for forms in parts.values() if forms) or line
        if width(line) <= room:
            break
    return line


def _headline(live: Live, over: bool) -> list[str]:
    """The first metric as four texts, the longest first.

    The longest is ``pass@1 0.62 [0.55, 0.69] valid at any stopping time (210 of 500 tasks)``. All keep the interval,
    because a value alone would look too certain.
    """
    name, short = clean(live.metric), clean(live.metric, LONGEST_NAME)
    lacking = "interval" if live.value is not None else "value" if over else "value yet"
    why = f" (no {lacking}: {clean(live.why, 200)})" if live.why else ""
    value = "" if live.value is None else f" {live.value:.4g}"
    validity = tasks = ""
    if live.value is not None and live.interval is not None:
        low, high = live.interval
        places = 2 if high - low >= 0.1 else 3
        tasks = f" ({live.settled:,} of {live.planned:,} tasks)"
        if live.settled == live.planned:
            value, why = f" {live.value:.4f}", ""
        else:
            value, why = f" {live.value:.{places}f} [{low:.{places}f}, {high:.{places}f}]", ""
            validity = " valid at any stopping time"
    return [
        f"{name}{value}{validity}{tasks}{why}",
        f"{name}{value}{tasks}",
        f"{name}{value}" if value else f"{name}: no {lacking}",
        f"{short}{value}" if value else f"{short}: no {lacking}",
    ]


def _speed(first: State, now: State) -> float | None:
    """Rollouts per second since the first state; None if that is too recent for a rate."""
    seconds = now.elapsed - first.elapsed
    return (now.done - first.done) / seconds if seconds >= SETTLING_IN and now.done > first.done else None


def _clock_time(seconds: float) -> str:
    """A duration in whole seconds, rounded up, in the format of a clock.

    >>> _clock_time(75), _clock_time(7383.2)
    ('1:15', '2:03:04')
    """
    minutes, whole_seconds = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{whole_seconds:02}" if hours else f"{minutes}:{whole_seconds:02}"
