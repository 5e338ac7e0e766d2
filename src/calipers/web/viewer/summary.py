"""Summaries of one run, or of two, from their indexes: sentence, number, ledger, report and tasks."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from calipers.analyses.compare.compare import compare
from calipers.analyses.compare.page import answer_to
from calipers.analyses.compare.source import CalledTable, ReadSource, json_text, read_source
from calipers.errors import InputError
from calipers.formats import BAD, Named
from calipers.formats.read import Input
from calipers.formats.run_folder import with_plan
from calipers.formats.source_facts import FACTS
from calipers.reports.figures import figure
from calipers.reports.sentences import money, places, to
from calipers.rollouts.column import Floats, Ints
from calipers.rollouts.table import assemble
from calipers.stats.estimate import Estimate
from calipers.typed import complete
from calipers.web import draw
from calipers.web.markup import Markup, element, visible
from calipers.web.page import ends_of, html
from calipers.web.pair_page import badge, pair_page
from calipers.web.pair_page import headline_of as pair_headline
from calipers.web.report_data import EVERY_TASK, STATES, PairData, RunData, runs_of
from calipers.web.run_page import answer, headline_of, run_page
from calipers.web.sections import ledger_bar
from calipers.web.viewer.index import Group, LogIndex, RunSource
from calipers.web.viewer.rollouts import LONGEST_SEARCH, PREVIEWED, GroupRows, open_log

SMALL = 32 << 20  # if a converted log has at most this many bytes, its source is read again, for all its data
DRAWN: Final = 64  # samples of a task whose states are shown
Hashes = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class View:
    """One run, which is a group of a source, with its index."""

    id: str
    source: RunSource
    index: LogIndex
    group: int
    version: int
    own: GroupRows

    @property
    def who(self) -> Group:
        """Agent, model and dataset."""
        return self.index.groups[self.group] if self.index.groups else (None, None, None)


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The summary of one run in the list of runs."""

    sentence: str
    detail: str
    metric: str
    value: float | None
    interval: tuple[float, float] | None
    planned: int
    missing: int
    finished: int | None  # finished rollouts of a run in progress; None for other runs
    cost: str
    strip: str  # HTML: the first metric with its interval on an axis
    bar: str  # HTML: the ledger as a bar
    axis: str  # HTML: the interval on an axis from 0 to 1; "" if it is not inside


def runs_in(source: RunSource, index: LogIndex) -> list[RunData]:
    """The runs of a source; InputError, with the reason, if they have no numbers."""
    return runs_of(read_of(source, index))


def read_of(source: RunSource, index: LogIndex) -> ReadSource:
    """The table of a source's rollouts, as a reader would return it."""
    if not len(index) and source.kind != "run":
        raise InputError.at(source.path, "no rollouts", "expected at least one")
    if (source.kind == "other" and index.state.end <= SMALL) or (source.kind == "log" and _is_converted(index.path)):
        return read_source(source.path, Named({}), [*index.slices, "answer"], None)
    parts = [index.part()] if len(index) else []
    if source.kind == "run":
        parts = with_plan(source.path, parts, [*index.slices])
    table = assemble(parts)
    return ReadSource(source.path, table, {}, {}, lambda: [Input(source.path, "native", "", len(index))])


def _is_converted(log: str) -> bool:
    """Whether a log was converted from another format, so that it has data that the index does not have."""
    with open(log, "rb") as file:
        return f'"{FACTS}"'.encode() in file.read(1 << 16)


def group_of(run: RunData) -> Group:
    """Agent, model and dataset of a run."""
    return run.group.agent, run.group.model, run.group.dataset


def summaries(source: RunSource, index: LogIndex) -> list[tuple[Group, RunSummary]]:
    """The summary of every group of a source."""
    return [(group_of(run), summary_of(run)) for run in runs_in(source, index)]


def summary_of(run: RunData) -> RunSummary:
    """The summary of a run, for the list of runs and for the strip above its rollouts."""
    verdict, ledger = answer(run), run.group.ledger
    metric, estimate = headline_of(run.group) or ("", None)
    progress = run.progress
    strip = _number(run, metric) if estimate is not None and progress is None else Markup("")
    return RunSummary(
        sentence=visible(verdict.sentence),
        detail=visible(verdict.detail),
        metric=metric,
        value=None if estimate is None or progress else estimate.value,
        interval=None if estimate is None or progress else estimate.interval,
        planned=ledger.planned,
        missing=ledger.gaps,
        finished=progress.finished if progress else None,
        cost=money(run.group.totals["cost_usd"]) if "cost_usd" in run.group.totals else "",
        strip=str(strip),
        bar=str(ledger_bar(run, 14)),
        axis="" if estimate is None or progress else str(_axis(metric, estimate)),
    )


def _axis(metric: str, estimate: Estimate) -> Markup:
    """The interval on an axis from 0 to 1, which all runs of a list share; empty if it is not inside the axis."""
    numbers = [estimate.value, *(estimate.interval or ())]
    if estimate.interval is None or not all(number is not None and 0 <= number <= 1 for number in numbers):
        return Markup("")
    digits = places(estimate.interval)
    label = f"{metric} {figure(estimate.value, digits)}, {to(estimate.interval, digits)}"
    return draw.interval_row(estimate.value, estimate.interval, None, draw.UNIT, label=label)


def _number(run: RunData, metric: str) -> Markup:
    """The first metric of a run, with its interval on an axis."""
    estimate = run.group.metrics[metric]
    digits = places(estimate.interval)
    scale = draw.scale_of(ends_of(estimate))
    label = f"{metric} {figure(estimate.value, digits)}" + (
        f", {to(estimate.interval, digits)}" if estimate.interval else ""
    )
    picture = draw.interval_row(estimate.value, estimate.interval, estimate.bounds, scale, label=label)
    return element(
        "div",
        element("span", metric, class_="metric"),
        element("span", to(estimate.interval, digits) if estimate.interval else "no interval", class_="ends"),
        element("b", figure(estimate.value, digits)),
        element("span", picture, class_="axis-cell"),
        class_="number",
    )


def report_of(view: View) -> str:
    """The report of a run, as `calipers report` makes it, but without texts, which the viewer shows."""
    return html(run_page(_run(view)))


def _run(view: View) -> RunData:
    return next(run for run in runs_in(view.source, view.index) if group_of(run) == view.who)


def _pair_data(first: View, second: View) -> PairData:
    """The comparison of two runs, the first of which is the baseline; InputError if they cannot be compared."""
    runs = [_run(view) for view in (first, second)]
    tables = [CalledTable(run.name, run.rollouts.table) for run in runs if run.rollouts is not None]
    return PairData(compare(*tables, flips=EVERY_TASK), *runs)


@dataclass(frozen=True, slots=True)
class PairSummary:
    """The verdict of two runs."""

    sentence: str
    detail: str
    badge: str  # HTML
    tasks: int


def pair_summary(first: View, second: View) -> PairSummary:
    """The verdict strip of two runs."""
    data = _pair_data(first, second)
    finding = pair_headline(data.comparison.contests[0].pairs[0])
    verdict = answer_to(finding, ("A", "B"), data.comparison)
    return PairSummary(verdict.sentence, verdict.detail, str(badge(finding.verdict)), finding.tasks)


def pair_report(first: View, second: View) -> str:
    """The report of two runs, without texts."""
    return html(pair_page(_pair_data(first, second)))


class _AnswerRow(msgspec.Struct):
    """The answer and the completion of a record."""

    answer: Any = None
    completion: Any = None


_ANSWER_ROW: Final = msgspec.json.Decoder(complete(_AnswerRow))


@dataclass(frozen=True, slots=True)
class TaskPair:
    """A task of both runs."""

    hash: int  # the hash of its name
    codes: tuple[int, int]  # its codes in the two indexes
    gain: float | None  # the second mean minus the first; None if either run has no number
    way: str  # better, worse or same


@dataclass(frozen=True, slots=True)
class RunPair:
    """The tasks of two runs, the largest losses first."""

    tasks: list[TaskPair]
    states: tuple[Callable[[int], list[str]], Callable[[int], list[str]]]  # code of a task -> its states, in each run


def run_pair(first: View, second: View) -> RunPair:
    """The tasks of both runs with the change of their means, the largest losses first."""
    (first_means, first_states), (second_means, second_states) = _means(first), _means(second)
    common, at_first, at_second = _common_tasks(first, second)
    gains = second_means[at_second] - first_means[at_first]
    known = np.isfinite(gains)
    tasks = []
    for at in np.argsort(np.where(known, gains, np.inf), kind="stable").tolist():
        gain = float(gains[at]) if known[at] else None
        way = "same" if gain is None or abs(gain) < 1e-12 else "better" if gain > 0 else "worse"
        tasks.append(TaskPair(int(common[at]), (int(at_first[at]), int(at_second[at])), gain, way))
    return RunPair(tasks, (first_states, second_states))


def _common_tasks(first: View, second: View) -> tuple[Hashes, Ints, Ints]:
    """The hashes of the common tasks, sorted, and their codes in the first and in the second run."""
    first_hashes, second_hashes = first.index.columns["hash"], second.index.columns["hash"]
    common, at_first, at_second = np.intersect1d(first_hashes, second_hashes, return_indices=True)
    return common, at_first, at_second


def _means(view: View) -> tuple[Floats, Callable[[int], list[str]]]:
    """The mean of each task's numbers, [T], NaN for a task without any; and a function for the states of a task."""
    index, own = view.index, view.own
    rows, task, size = own.rows, index.columns["task"][own.rows], index.tasks
    given = own.numbers.given[rows]
    counts = np.bincount(task[given], minlength=size)
    sums = np.bincount(task[given], weights=own.numbers.values[rows][given], minlength=size)
    means = np.divide(sums, counts, out=np.full(size, np.nan), where=counts > 0)
    order = np.lexsort((index.columns["sample"][rows], task))
    starts = np.searchsorted(task[order], np.arange(size + 1))

    def states(code: int) -> list[str]:
        chosen = rows[order[starts[code] : min(starts[code + 1], starts[code] + DRAWN)]]
        return [STATES[state] for state in own.states[chosen].tolist()]

    return means, states


def other_answers(first: View, second: View, cancelled: threading.Event) -> tuple[frozenset[int], bool]:
    """The hashes of the tasks whose most frequent answer differs between the two runs.

    The second value is whether both logs were read completely; reading stops after `LONGEST_SEARCH` seconds.
    """
    deadline = monotonic() + LONGEST_SEARCH
    first_answers, first_complete = usual_answers(first, cancelled, deadline)
    second_answers, second_complete = usual_answers(second, cancelled, deadline)
    common, at_first, at_second = _common_tasks(first, second)
    in_first, in_second = first_answers[at_first], second_answers[at_second]
    differs = (in_first != in_second) & (in_first != 0) & (in_second != 0)
    return frozenset(common[differs].tolist()), first_complete and second_complete


def usual_answers(view: View, cancelled: threading.Event, deadline: float) -> tuple[Hashes, bool]:
    """A hash of the most frequent answer of each task (the first of several), [T]; 0 for a task without an answer.

    A record without an answer counts with its completion; a record that is too large for the list is not read. The
    second value is whether the log was read completely.
    """
    usual = np.zeros(view.index.tasks, dtype=np.uint64)
    columns, rows = view.index.columns, view.own.rows
    rows = rows[columns["length"][rows] <= PREVIEWED]
    rows = rows[np.lexsort((columns["sample"][rows], columns["task"][rows]))]
    tasks = columns["task"][rows]
    ends = np.flatnonzero(np.diff(tasks, append=-1)) + 1
    begin = 0
    with open_log(view.index.path) as file:
        for end in ends.tolist():
            if cancelled.is_set() or monotonic() > deadline:
                return usual, False
            answers = Counter[bytes]()
            for row in rows[begin:end].tolist():
                line = os.pread(file.fileno(), int(columns["length"][row]), int(columns["start"][row]))
                if answer_bytes := _answer(line):
                    answers[answer_bytes] += 1
            if answers:
                digest = hashlib.blake2b(answers.most_common(1)[0][0], digest_size=8).digest()
                usual[tasks[begin]] = int.from_bytes(digest) or 1
            begin = end
    return usual, True


def _answer(line: bytes) -> bytes:
    try:
        record = _ANSWER_ROW.decode(line)
    except BAD:
        return b""
    value = record.answer if record.answer is not None else json_text(record.completion)
    if value is None or isinstance(value, str):
        return (value or "").strip().encode("utf-8", "surrogatepass")
    return msgspec.json.encode(value)
