"""``calipers watch``: watch a training run; exit 0 no alarm, 1 an alarm, 2 wrong input, 3 nothing readable."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calipers.cli import options
from calipers.cli.output import (
    Target,
    listeners_of,
    print_err,
    print_note,
    print_notes,
    show,
    targets,
    write,
    write_json,
)
from calipers.errors import InputError, UnknownName
from calipers.reports.untrusted_text import clean, is_terminal, safe_json

if TYPE_CHECKING:
    from calipers.analyses.watch.document import Watched
    from calipers.analyses.watch.monitor import Raised
    from calipers.analyses.watch.watch import RunWatch

ALARMS = "Alarms"  # a group of options
FORMATS = (*options.FORMATS, "junit")
EVALS = "evals"  # the folder in the state with the rollouts from evaluations of checkpoints


@click.command(cls=options.GroupedCommand)
@click.argument("path", type=click.Path())
@options.option(
    ALARMS,
    "--alarm alarms",
    "'ALARM > NUMBER'|NAME",
    "Alarm, such as 'drop(pass@1) > 0.02', 'rise(X) > d', 'rate(truncated) > 0.05', "
    "'mean(output_tokens) > 1.2 * base', 'diverge(reward, judge) > 0.02' or 'share(zero_variance) > 0.8'; "
    "X[split=eval] is one split, and diverge() may compare two. The presets rl and eval are several alarms; may be "
    "repeated.  [default: rl]",
    multiple=True,
)
@options.option(
    ALARMS,
    "--false-alarms",
    "CHANCE",
    "Highest chance of any false alarm, over all alarms and all planned steps together.  [default: 0.05]",
    type=click.FloatRange(0, 0.5, min_open=True),
)
@options.option(
    ALARMS,
    "--steps",
    "N",
    "Planned number of steps; it is fixed before the first look.  [default: 1000]",
    type=click.IntRange(1, 10_000_000),
)
@options.option(
    ALARMS,
    "--accept",
    "STEP",
    "Accept what changed at this step: later steps are compared with it.",
    type=click.IntRange(0),
)
@options.option(
    ALARMS, "--base", "STEP", "Step from which changes are shown.  [default: the first]", type=click.IntRange(0)
)
@options.option(
    ALARMS,
    "--difficulty",
    "COLUMN",
    "Column with another model's pass rate on each prompt; a drop is then measured against it.",
)
@options.flag(ALARMS, "--once", "Look once and exit, for CI.  [default: look until interrupted]")
@options.option(
    ALARMS, "--every", "SECONDS", "Time between two looks.", type=click.FloatRange(0.05, 86_400), default=2.0
)
@options.option(
    ALARMS,
    "--eval evaluation",
    "COMMAND",
    "Run this command for each new checkpoint folder in PATH, without a shell, one at a time; {name}, {path} and "
    "{out} stand for the checkpoint's name, its path and the folder that the rollouts must go to.",
)
@options.flag(ALARMS, "--best", "Show the best step without its luck, and which steps may be best.")
@options.option(ALARMS, "--metric", "NAME", "Metric of --best, such as pass@1.  [default: the reward]")
@options.option(
    ALARMS, "--state", "DIR", "Folder for the state of the watch.  [default: PATH/.calipers-watch]", type=click.Path()
)
@options.columns
@options.reward()
@options.reward_range
@options.cluster
@options.confidence(None)
@options.option(
    options.OUTPUT,
    "--notify",
    "COMMAND|URL",
    "Run this command, or post to this http(s):// URL, when an alarm is raised, with the alarm as JSON; may be "
    "repeated.",
    multiple=True,
)
@options.option(
    options.OUTPUT,
    "--log trackers",
    "NAME[=TARGET]",
    "Also send each alarm to wandb, mlflow or tensorboard, if it is installed; may be repeated.",
    multiple=True,
)
@options.file_option(options.OUTPUT, "--junit", "Also write the alarms as JUnit XML to this file.")
@options.out
@options.shape(*FORMATS)
def watch(
    path: str,
    alarms: tuple[str, ...],
    accept: int | None,
    once: bool,
    every: float,
    evaluation: str | None,
    best: bool,
    metric: str | None,
    state: str | None,
    columns: tuple[str, ...],
    truth: dict[str, float] | None,
    reward: str | None,
    notify: tuple[str, ...],
    trackers: tuple[str, ...],
    junit: str | None,
    out: str | None,
    shape: str,
    **settings: Any,
) -> None:
    """Watch a training run in the folder PATH: curves with bands, alarms, and the best checkpoint.

    PATH is a folder where a file of rollouts appears for each step, in any format that calipers score reads. Exit
    code: 0 no alarm, 1 an alarm, 2 wrong input, 3 nothing readable.
    """
    if metric is not None and not best:
        raise InputError.at("--metric", "is the metric of --best", "add --best")
    if best and shape == "junit":
        raise InputError.at("--format junit", "has alarms, not steps", "--junit FILE writes them beside --best")
    files = targets((junit, out))
    from calipers.analyses.watch import alarms_of
    from calipers.analyses.watch.watch import RunWatch
    from calipers.formats import Named

    command = None
    if evaluation is not None:
        from calipers.running.checkpoints import evaluation_command

        command = evaluation_command(evaluation)
    listeners = listeners_of(notify)
    senders = _trackers(trackers)
    evals = os.path.join(state or os.path.join(path, ".calipers-watch"), EVALS)
    watching = RunWatch(
        path,
        {**settings, "alarms": alarms_of(alarms) if alarms else None},
        state=state,
        columns=Named(options.roles(columns), truth),
        reward=reward,
        folders=[evals] if command is not None else [],
    )
    notifier = _Notifier(listeners, senders, watching)
    try:
        with _stopping() as stopped:
            if once or best or accept is not None:
                _evaluate_new(command, path, evals, stopped)
                notifier.notify(watching.look(settled=True))
                if accept is not None:
                    watching.accept(accept)
            else:
                _follow(watching, notifier, every, stopped, command, evals)
        result = watching.result()
        if best:
            from calipers.analyses.watch.best import best_steps

            best_page = best_steps(path, watching.steps_read(), metric, watching.settings.confidence)
            _write(files, junit, out, result)
            show(best_page.page(), shape)
            print_notes([*best_page.notes, *result.notes])
            return
    finally:
        watching.close()
    _write(files, junit, out, result)
    _show(result, shape)
    print_notes(result.notes)
    if result.exit_code:
        raise click.exceptions.Exit(result.exit_code)


def _trackers(texts: Sequence[str]) -> list[Any]:
    if not texts:
        return []
    from calipers.names import ALARM_TRACKERS

    senders = []
    for text in texts:
        name, _, target = text.partition("=")
        if name not in ALARM_TRACKERS.entries:
            raise InputError.at("--log", str(UnknownName.of("tracker", name, ALARM_TRACKERS.entries)))
        senders.append(ALARM_TRACKERS.load(name)(target or None))
    return senders


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """An event that SIGINT (Ctrl-C) or SIGTERM sets; a second signal raises KeyboardInterrupt."""
    stopped = threading.Event()

    def stop(number: int, frame: object) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()

    old = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


class _Notifier:
    """Sends each alarm to the listeners of ``--notify`` and the trackers of ``--log``."""

    def __init__(self, listeners: Sequence[Any], senders: Sequence[Any], watching: RunWatch) -> None:
        self._listeners, self._senders, self._watching = listeners, senders, watching

    def notify(self, raised: Sequence[Raised]) -> None:
        """Send alarms that were just raised; a failure becomes a note, and the watch continues."""
        for alarm in raised:
            for send in self._senders:
                try:
                    print_note(send(alarm, self._watching.path))
                except InputError as error:
                    print_note(str(error))
            if self._listeners:
                self._notify_listeners(alarm)

    def _notify_listeners(self, raised: Raised) -> None:
        from dataclasses import asdict

        from calipers.running.notify import LIMIT, NotNotified

        # the rollouts are not sent, because some systems name tasks by their prompts
        alarm = {**asdict(raised), "rollouts": [], "sentence": raised.words}
        message = {"schema": "calipers.watch_alarm/1", "path": self._watching.path, "alarm": alarm}
        text = safe_json(json.dumps(message, ensure_ascii=False)).encode()
        for target in self._listeners:
            try:
                target.tell(text, [], LIMIT)
            except (NotNotified, InputError) as error:
                print_note(f"--notify {target.name}: {error}")


def _evaluate_new(command: Any, path: str, evals: str, stopped: threading.Event) -> None:
    """Evaluate every new checkpoint, one after the other; a failure becomes a note, and the watch continues."""
    if command is None:
        return
    from calipers.running.checkpoints import evaluate, new_checkpoints

    for checkpoint in list(new_checkpoints(Path(path), Path(evals))):
        if stopped.is_set():
            return
        if problem := evaluate(command, checkpoint, Path(evals), stopped.is_set):
            print_note(problem)


def _follow(
    watching: RunWatch, notifier: _Notifier, every: float, stopped: threading.Event, command: Any, evals: str
) -> None:
    """Look again and again until ``stopped`` is set, and show each change."""

    def progress() -> tuple[int, int]:
        return watching.monitor.taken, len(watching.notes) + len(watching.monitor.notes)

    shown = None
    with _Screen() as screen:
        while True:
            _evaluate_new(command, watching.path, evals, stopped)
            notifier.notify(watching.look(settled=False))
            if progress() != shown:
                screen.show(watching.result())
                shown = progress()
            if stopped.wait(every):
                return


class _Screen:
    """The page of a watch: redrawn at each change on a terminal; elsewhere a line per change on standard error."""

    def __init__(self) -> None:
        self._drawn = all(stream is not None and is_terminal(stream) for stream in (sys.stdout, sys.stderr))
        self._live: Any = None
        self._notes = 0  # the number of notes that have been printed

    def __enter__(self) -> _Screen:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, result: Watched) -> None:
        """Show the current result of the watch."""
        if self._drawn:
            self._draw(result)
            return
        last = result.last_step
        at = "" if last is None else f"step {last}: "
        print_err(clean(f"{at}{result.headline()}", None))
        print_notes(result.notes[self._notes :])
        self._notes = len(result.notes)

    def _draw(self, result: Watched) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        from calipers.reports.terminal import render

        if self._live is None:
            console = Console(file=sys.stderr, highlight=False, emoji=False, markup=False)
            self._live = Live(console=console, auto_refresh=False, transient=True, vertical_overflow="ellipsis")
            self._live.start()
        self._live.update(Text(render(result.page()), no_wrap=True), refresh=True)


def _write(files: dict[str, Target], junit: str | None, out: str | None, result: Watched) -> None:
    if junit is not None:
        from calipers.analyses.watch.document import junit_page

        files[junit].write(junit_page(result).encode())
    if out is not None:
        write_json(files[out], result)


def _show(result: Watched, shape: str) -> None:
    if shape == "junit":
        from calipers.analyses.watch.document import junit_page

        write(junit_page(result))
        return
    show(result.page(), shape)
