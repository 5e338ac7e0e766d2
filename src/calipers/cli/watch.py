"""The progress of a run: live lines on a terminal, otherwise a plain line every ten seconds.

It shows only our own words and numbers: no prompt and no completion.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, TextIO, cast

from calipers.reports.untrusted_text import clean, guarded, is_terminal, plain
from calipers.rollouts.record import OUTCOMES

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live as Display

    from calipers.running.loop import Status
    from calipers.running.watcher import Live

REDRAW = 0.25  # seconds between two pictures on a terminal
REPORT = 10.0  # seconds between two lines anywhere else
SETTLING_IN = 1.0  # seconds before which a rate says nothing


@dataclass(frozen=True, slots=True)
class State:
    """The progress of a run."""

    planned: int  # rollouts
    done: int  # rollouts, those of an earlier start among them
    outcomes: Mapping[str, int]  # outcome -> rollouts
    spent: float | None  # dollars, None when nobody says what a call costs
    elapsed: float  # seconds since this start
    headline: Live | None = None
    in_flight: int = 0
    limit: int = 0  # calls that may be in flight now
    waiting: str = ""  # the reason for waiting, such as "rate limit: 12 s"


class Watch:
    """Shows states of progress, at a readable rate.

    A state takes time to make: call ``due`` first. The title tells several runs apart.
    """

    def __init__(
        self, title: str = "", stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._title = clean(title)
        self._stream = _Stream(stream or sys.stderr)  # None if it is closed
        self._drawn = self._stream.isatty()
        self._every = REDRAW if self._drawn else REPORT
        self._clock = clock
        self._next = clock() if self._drawn else clock() + REPORT
        self._first: State | None = None  # the rate counts from here: what an earlier start did took none of our time
        self._last: State | None = None
        self._shown: State | None = None
        self._display: Display | None = None

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        begun = self._last is not None and (self._last.done or error is None)  # else the error says all there is
        if self._last is not None and begun and (self._last is not self._shown or self._last.done < self._last.planned):
            self._show(self._last, over=True)
        if self._display is not None:
            self._display.stop()

    def due(self) -> bool:
        """Whether to make another state: the first, from which the rate counts, and one per interval."""
        return self._stream.alive and (self._first is None or self._clock() >= self._next)

    def tick(self, state: State) -> None:
        """Keep a state, and show it if an update is due; the last state is shown at the end."""
        self._first = self._first or state
        self._last = state
        if self.due():
            self._show(state)
            self._next = self._clock() + self._every

    def show(self, status: Status, headline: Live | None) -> None:
        """Keep the status of a run's loop as a state."""
        pause = status.pace.held
        waiting = f"the last requests ({status.stopped})" if status.stopped else ""
        waiting += "; Ctrl-C again drops them" if status.stopped == "interrupted" else ""
        again = f"{status.waiting:,} to retry after {status.trouble}" if status.waiting else ""
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
                waiting=waiting or (f"rate limit: {math.ceil(pause)} s" if pause else again),
            )
        )

    def _show(self, state: State, over: bool = False) -> None:
        self._shown = state
        over = over or state.done >= state.planned
        progress, rest = _progress(self._first or state, state, over), _rest(state, over)
        headline = _headline(state.headline, over)
        if self._drawn:
            self._draw(progress, headline, rest, state)
        else:
            line = ", ".join(filter(None, (*progress, headline, *rest)))
            self._stream.write(guarded(f"{self._title}: {line}\n" if self._title else f"{line}\n"))
            self._stream.flush()

    def _draw(self, progress: Sequence[str], headline: str, rest: Sequence[str], state: State) -> None:
        from rich.console import Console
        from rich.live import Live as Display

        if self._display is None:
            console = Console(file=cast(TextIO, self._stream), highlight=False, emoji=False, markup=False)
            # standard output may be data on its way to a file: it is left alone
            self._display = Display(console=console, auto_refresh=False, redirect_stdout=False)
            self._display.start()
        console = self._display.console
        under = [headline, "  ".join(rest)]
        picture = _picture(self._title, state.done / max(state.planned, 1), "  ".join(progress), under, console)
        self._display.update(picture, refresh=True)


class _Stream:
    """A stream that ignores a closed pipe: the run continues, and later text is dropped.

    rich alone would end the process at a closed pipe and lose its standard output.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.encoding = getattr(stream, "encoding", None) or "ascii"

    @property
    def alive(self) -> bool:
        """Whether the stream can still be written."""
        return self._stream is not None

    def isatty(self) -> bool:
        return self._stream is not None and is_terminal(self._stream)

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


def _picture(title: str, share: float, progress: str, under: Sequence[str], console: Console) -> RenderableType:
    """The bar with its numbers, the headline under it, and the rest under that."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    def line(text: str, style: str) -> Text:
        shown = text if console.encoding.startswith("utf") else plain(text)
        return Text(shown, style, no_wrap=True, overflow="ellipsis")

    bar = Table.grid(padding=(0, 1), expand=False)
    bar.add_row(ProgressBar(1.0, share, width=max(8, min(30, console.width - 50))), line(progress, "bold"))
    above = [line(title, "bold")] if title else []
    return Group(*above, bar, *(line(text, style) for text, style in zip(under, ("cyan", "dim"), strict=True) if text))


def _progress(first: State, now: State, over: bool) -> list[str]:
    """Rollouts done and planned, the rate, and the remaining or the total time."""
    share = f" ({100 * now.done // now.planned} %)" if now.planned else ""
    parts = [f"{now.done:,}/{now.planned:,}{share}"]
    speed = _speed(first, now)
    if speed:
        parts.append(f"{60 * speed:.2g}/min" if speed < 1 else f"{speed:,.{1 if speed < 100 else 0}f}/s")
    if over:
        parts.append(f"in {_clock_time(now.elapsed)}")
    elif speed:
        parts.append(f"ETA {_clock_time((now.planned - now.done) / speed)}")
    return parts


def _headline(live: Live | None, over: bool) -> str:
    """The metric that is watched, ``pass@1 0.62 [0.55, 0.69] valid at any stopping time (210 of 500 tasks)``."""
    if live is None:
        return ""
    name = clean(live.metric)
    lacking = "interval" if live.value is not None else "value" if over else "value yet"
    why = f" (no {lacking}: {clean(live.why, 200)})" if live.why else ""
    if live.value is None:
        return f"{name}{why}"
    if live.interval is None:
        return f"{name} {live.value:.4g}{why}"
    low, high = live.interval
    tasks = f"({live.settled:,} of {live.planned:,} tasks)"
    if live.settled == live.planned:
        return f"{name} {live.value:.4f} {tasks}"
    places = 2 if high - low >= 0.1 else 3
    return f"{name} {live.value:.{places}f} [{low:.{places}f}, {high:.{places}f}] valid at any stopping time {tasks}"


def _rest(state: State, over: bool) -> list[str]:
    """The other outcomes, the cost, the requests in flight, and the reason for waiting."""
    known = [word for word in OUTCOMES if state.outcomes.get(word)]
    parts = [f"{state.outcomes[word]:,} {word}" for word in known if word != "scored"]
    if state.spent is not None:
        parts.append(f"${state.spent:,.2f}" if state.spent >= 1 or not state.spent else f"${state.spent:.4f}")
    if over:
        return parts
    if state.in_flight:
        parts.append(f"{state.in_flight:,} of {max(state.limit, state.in_flight):,} in flight")
    if state.waiting:
        parts.insert(0, f"waiting: {clean(state.waiting)}")  # first, so that a narrow terminal does not cut it off
    return parts


def _speed(first: State, now: State) -> float | None:
    """Rollouts per second since this start; None while it is too early to tell."""
    seconds = now.elapsed - first.elapsed
    return (now.done - first.done) / seconds if seconds >= SETTLING_IN and now.done > first.done else None


def _clock_time(seconds: float) -> str:
    """Whole seconds, rounded up, as a clock shows them.

    >>> _clock_time(75), _clock_time(7383.2)
    ('1:15', '2:03:04')
    """
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
