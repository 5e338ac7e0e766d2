"""The result of a watch and its page: alarms, curves with their bands, and the files that could not be read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from calipers.analyses.watch import parse
from calipers.analyses.watch.monitor import UNIT, AlarmWatcher, Monitor, Raised, StepCurve, shown_value
from calipers.analyses.watch.status import CLOSED, OPEN, STEP, AlarmStatus, sentence_of
from calipers.reports import junit
from calipers.reports.document import (
    Block,
    Document,
    Glance,
    Glyphs,
    Name,
    Row,
    Sentence,
    SentenceList,
    Table,
    TableColumn,
    Text,
    Title,
    spaced,
)
from calipers.reports.figures import MOST_DECIMALS, NONE, counted, figure
from calipers.reports.junit import Case, TestSuite
from calipers.reports.page import Page
from calipers.reports.sentences import minus, percent, signed_to, to
from calipers.reports.untrusted_text import clean
from calipers.stats.alarms import jitter

SCHEMA: Final = "calipers.watch/1"
FIELDS: Final = (
    *("series", "metric", "step", "value", "low", "high", "band_low", "band_high"),
    *("change", "change_low", "change_high", "verdict", "tasks"),
)
BARS: Final = "▁▂▃▄▅▆▇█"
COLUMNS: Final = 24  # of a curve on a terminal
MOST_ROWS: Final = 14  # metrics of a series on a page
_MARKS: Final = {"higher": "▲ higher", "lower": "▼ lower", "undecided": "~", "": ""}


@dataclass(frozen=True, slots=True)
class StepPoint:
    """A metric at one step."""

    step: int
    value: float
    interval: tuple[float, float] | None  # for a single look
    band: tuple[float, float] | None  # for all planned steps together
    change: float | None  # since the base step
    change_band: tuple[float, float] | None
    verdict: str  # higher, lower, undecided; "" if there is no change to judge
    tasks: int


@dataclass(frozen=True, slots=True)
class MetricCurve:
    """The curve of a metric over steps."""

    metric: str
    points: Sequence[StepPoint]


@dataclass(frozen=True, slots=True)
class WatchedSeries:
    """The curves of one split of a dataset."""

    name: str
    split: str
    dataset: str | None
    tasks: str  # same, fresh or pool: the tasks of its steps
    base_step: int | None
    jitter: float | None  # movement of the headline metric from step to step, without its noise
    curves: Sequence[MetricCurve]


@dataclass(frozen=True, slots=True)
class AlarmState:
    """An alarm on a series, and its evidence so far; of an open alarm, the evidence that raised it."""

    alarm: str
    series: str
    null: str
    weight: float
    evidence: float
    why: str = ""  # why the alarm could not use the last step
    status: AlarmStatus | None = None  # None in a document of an older version


@dataclass(frozen=True, slots=True, repr=False)
class Watched(Page):
    """The result of a look at a training run."""

    path: str
    planned: int
    false_alarms: float
    confidence: float
    steps: int  # number of steps taken, over all series
    segment: int
    evidence: float  # of all alarms together; while an alarm is open, that which raised it
    needed: float  # the evidence that raises an alarm, or raised the open one
    series: Sequence[WatchedSeries]
    alarms: Sequence[AlarmState]
    raised: Sequence[Raised]
    accepted: Sequence[int] = ()
    rewrites: int = 0
    unreadable: Mapping[str, str] = field(default_factory=dict)
    advice: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def open_alarms(self) -> list[Raised]:
        """The alarms that are neither closed nor accepted."""
        first = max(self.accepted, default=-1)
        return [
            raised
            for raised in self.raised
            if (raised.until >= first if raised.status is None else raised.status.state == OPEN)
        ]

    @property
    def closed_alarms(self) -> list[Raised]:
        """The alarms that were closed because their metric has recovered."""
        return [raised for raised in self.raised if raised.status is not None and raised.status.state == CLOSED]

    @property
    def untested(self) -> dict[str, str]:
        """The alarms that no series could use a step for, with the reason why the last step could not be used."""
        tested = {state.alarm for state in self.alarms if not state.why or state.evidence != 1}  # 1 without a step
        return {state.alarm: state.why for state in self.alarms if state.alarm not in tested}

    @property
    def exit_code(self) -> int:
        """0 without an alarm, 1 with an alarm, 3 if no step could be read."""
        if self.open_alarms:
            return 1
        return 0 if self.series else 3

    @property
    def last_step(self) -> int | None:
        """The highest step of any series."""
        steps = [curve.points[-1].step for series in self.series for curve in series.curves if curve.points]
        return max(steps, default=None)

    def headline(self) -> str:
        """The result in one line."""
        if not self.series:
            return "No step could be read."
        if not self.open_alarms:
            names, unread = [*self.untested], len(self.unreadable)
            parts = [f"No alarm in {counted(self.steps, 'step')}"]
            if recovered := len(self.closed_alarms):
                was = "was" if recovered == 1 else "were"
                parts = [f"No open alarm after {counted(self.steps, 'step')}", f"{recovered:,} {was} closed"]
            if names:
                parts.append(f"{names[0]} is not tested" if len(names) == 1 else f"{len(names)} alarms are not tested")
            if unread:
                parts.append(f"{counted(unread, 'file')} could not be read")
            return f"{'; '.join(parts)}."
        first = self.open_alarms[0]
        return f"{counted(len(self.open_alarms), 'alarm')}: {first.words}."

    def page(self) -> Document:
        """The answer, each alarm, a table for each series, and the evidence."""
        return Document(lambda: spaced(_blocks(self)), self.to_dict, FIELDS, self.rows, paged=True)

    def glance(self) -> Glance:
        """The alarms, the curves of the first series, and the bound on false alarms, for a notebook."""
        table = _table(self.series[0]) if self.series and self.series[0].curves else None
        return Glance(self.headline(), table, promise(self))

    def to_dict(self) -> dict[str, Any]:
        """The document, ready for strict JSON."""
        from calipers import __version__

        summary = {"exit_code": self.exit_code, "sentence": self.headline()}
        return {"schema": SCHEMA, "calipers": __version__, **summary, **asdict(self)}

    def rows(self) -> list[dict[str, Any]]:
        """One flat row for each step of each metric."""
        rows = []
        for series in self.series:
            for curve in series.curves:
                for point in curve.points:
                    low, high = point.interval or (None, None)
                    band_low, band_high = point.band or (None, None)
                    change_low, change_high = point.change_band or (None, None)
                    values = (series.name, curve.metric, point.step, point.value, low, high, band_low, band_high)
                    change = (point.change, change_low, change_high, point.verdict, point.tasks)
                    rows.append(dict(zip(FIELDS, (*values, *change), strict=True)))
        return rows


def watched_of(
    path: str, monitor: Monitor, *, unreadable: Mapping[str, str], rewrites: int, notes: Sequence[str]
) -> Watched:
    """The result of a watch from the state of its monitor."""
    settings = monitor.settings
    results = [
        WatchedSeries(
            series.name,
            series.split,
            series.dataset,
            series.tasks.mode or series.kind,
            series.base_step,
            _jitter(monitor.watchers, series.name),
            [MetricCurve(name, _points(curve)) for name, curve in series.curves.items() if curve.steps],
        )
        for series in monitor.series.values()
    ]
    alarms = [_alarm_state(watcher, monitor) for watcher in monitor.watchers]
    evidence, needed = _evidence_and_need(monitor)
    return Watched(
        path,
        settings.steps,
        settings.false_alarms,
        settings.confidence,
        monitor.taken,
        monitor.segment,
        evidence,
        needed,
        sorted(results, key=lambda series: series.name),
        alarms,
        list(monitor.raised),
        list(monitor.accepted),
        rewrites,
        dict(unreadable),
        list(_advice(monitor, results)),
        list(dict.fromkeys(notes)),
    )


def _alarm_state(watcher: AlarmWatcher, monitor: Monitor) -> AlarmState:
    status = monitor.status_of(watcher)
    evidence = watcher.value if status.evidence is None else status.evidence
    why = watcher.why or _lacks_base(watcher, monitor)
    return AlarmState(watcher.alarm.text, watcher.series, watcher.alarm.null, watcher.weight, evidence, why, status)


def _evidence_and_need(monitor: Monitor) -> tuple[float, float]:
    """The evidence of all alarms and the limit of it; those that raised the last open alarm, if one is open."""
    for raised in reversed(monitor.raised):
        if raised.status is not None and raised.status.state == OPEN and raised.together is not None:
            return raised.together, raised.needed
    return monitor.evidence, monitor.needed


def _lacks_base(watcher: AlarmWatcher, monitor: Monitor) -> str:
    """Why an alarm that names its base step has nothing to compare with; "" for any other alarm."""
    base = watcher.alarm.base
    if base is None or watcher.bound is not None or watcher.difficulty:
        return ""
    return f"step {base:,}, its base, {_why_no_base(base, watcher.series, monitor)}"


def _why_no_base(base: int, series: str, monitor: Monitor) -> str:
    if base not in monitor.series[series].paths:
        return "has not been read"
    return "is before the accepted step" if monitor.accepted else "could not be used"


def _points(curve: StepCurve) -> list[StepPoint]:
    """The points of a curve in the order of steps; the fields of a curve are in the order of a point's fields."""
    columns = (getattr(curve, column.name) for column in fields(curve))
    return sorted((StepPoint(*values) for values in zip(*columns, strict=True)), key=lambda point: point.step)


def _jitter(watchers: Sequence[AlarmWatcher], series: str) -> float | None:
    """The movement of the headline from step to step without its noise; None without a drop alarm and eight steps."""
    for watcher in watchers:
        best = watcher.best
        if watcher.series == series and best is not None and best.means.shape[-1] >= 8:
            low, high = watcher.limits or (0.0, 1.0)
            return jitter(best.means, best.variances) * (high - low)
    return None


def _advice(monitor: Monitor, series: Sequence[WatchedSeries]) -> Iterator[str]:
    base = monitor.settings.base
    for name, of_series in monitor.series.items():
        if base is not None and of_series.base is None:
            where = f"{name}: " if name else ""
            yield f"{where}no change is shown, because step {base:,}, the --base, {_why_no_base(base, name, monitor)}"
    by_name = {result.name: result for result in series}
    for watcher in monitor.watchers:
        alarm, watched = watcher.alarm, by_name[watcher.series]
        low, high = watcher.limits or (0.0, 1.0)
        if alarm.kind in ("drop", "rise"):
            if watched.jitter is not None and watched.jitter > alarm.limit:
                moved = _amount(watched.jitter, watcher)
                yield f"{alarm.text}: d below the run's own jitter of {moved} will alarm"
            if watched.tasks == "fresh" and not watcher.difficulty:
                yield (
                    f"{alarm.text}: the prompts are new at every step, so an alarm is about the policy or the prompts; "
                    "give d above the known drift, or each prompt's difficulty with --difficulty COLUMN"
                )
        if watcher.clipped:
            yield (
                f"{alarm.text}: the range of rewards is unknown, so the mean of task means between {low:.4g} and "
                f"{high:.4g}, the 1st and 99th percentile of the base steps, is watched; --range LOW,HIGH sets it"
            )
        if watcher.beyond:
            yield f"{alarm.text}: values outside {low:g} to {high:g} count as these ends; --range LOW,HIGH sets them"
        if alarm.base is not None and watcher.bound is not None and watcher.base_mean is not None:
            hidden = _amount((high - low) * (watcher.base_mean - watcher.bound), watcher)
            yield (
                f"{alarm.text}: the base step alone hides {alarm.kind}s below {hidden}; evaluate it with four times "
                "the samples to halve that"
            )


def _amount(size: float, watcher: AlarmWatcher) -> str:
    """The size of a change: in points of a metric from 0 to 1, else as a number."""
    return f"{size:.3g}" if watcher.limits not in (None, UNIT) else f"{100 * size:.1f} points"


def promise(watched: Watched) -> str:
    """The bound on false alarms, as a sentence."""
    chance = percent(watched.false_alarms)
    if watched.segment > 1:
        return f"Of all alarms of this run, at most {chance} are false in expectation."
    return f"The chance of any false alarm in {watched.planned:,} planned steps is at most {chance}."


def _blocks(watched: Watched) -> Iterator[Block]:
    last = watched.last_step
    progress = "" if last is None else f"step {last:,} of {watched.planned:,} planned"
    yield Title("", markdown=f"Watch: {watched.headline()}")
    yield Sentence(("watch · ", Name(clean(watched.path, None), None)), right=progress, markdown="")
    yield Sentence(clean(watched.headline(), None), "strong", markdown="")
    for alarm, why in watched.untested.items():
        yield Sentence(clean(f"{alarm}: {why}", None))
    yield Sentence(promise(watched))
    for raised in [*watched.open_alarms, *watched.closed_alarms]:
        yield from _raised(raised)
    for series in watched.series:
        since = "" if series.base_step is None else f" · changes since step {series.base_step:,}"
        yield Title((Name(series.name, None, clean(series.name, None)) if series.name else "steps", since))
        if series.curves:
            yield _table(series)
    if watched.alarms:
        yield Title("alarms")
        yield _evidence(watched)
    if watched.advice:
        yield SentenceList([Sentence(clean(text, None)) for text in watched.advice])
    if watched.unreadable:
        yield Title("not read")
        yield SentenceList(
            [Sentence((Name(clean(text, None), None),)) for text in list(watched.unreadable.values())[:20]]
        )


def raised_sentence(raised: Raised) -> str:
    """A sentence: at which step an alarm was raised, since when, and by how much the metric changed."""
    amount = ""
    if raised.value is not None and raised.before is not None:
        now, before = shown_value(raised.value), shown_value(raised.before)
        moved = raised.value - raised.before
        sign = "+" if moved > 0 else ""
        amount = f", {now} on average since then and {before} in the steps before ({sign}{shown_value(moved)})"
    return minus(f"Raised at step {raised.step:,}; the change began at step {raised.since:,}{amount}.")


def state_sentence(raised: Raised) -> str:
    """A sentence: whether an alarm that was raised is open, or when it was closed; "" for an older document."""
    return "" if raised.status is None else sentence_of(raised.status, parse(raised.alarm), STEP)


def _raised(raised: Raised) -> Iterator[Block]:
    yield Title(Name(f"{raised.alarm}{f' ({raised.series})' if raised.series else ''}", None))
    if state := state_sentence(raised):
        yield Sentence(state, "strong")
    yield Sentence(raised_sentence(raised))
    if raised.status is not None and raised.status.state == CLOSED:
        return
    if raised.rollouts:
        yield Table(
            [
                TableColumn("task", style="strong"),
                TableColumn("sample", "right"),
                TableColumn("outcome"),
                TableColumn("value", "point"),
            ],
            [
                Row([Name(str(row["task"]), 60), str(row["sample"]), str(row["outcome"]), _figure(row["value"])])
                for row in raised.rollouts
            ],
            fits=True,
        )
    if raised.command:
        yield Sentence(("Look closer: ", Name(raised.command, None)))


def _figure(value: float | None) -> str:
    return NONE if value is None else minus(shown_value(value))


def _table(series: WatchedSeries) -> Table:
    """A row for each metric that the last step has."""
    last = max(curve.points[-1].step for curve in series.curves)
    columns = [
        TableColumn("metric", style="strong"),
        TableColumn(f"step {last}", "point", "value"),
        TableColumn("band", yields=2),
        TableColumn("change", yields=1),
        TableColumn("verdict", style="verdict"),
        TableColumn("curve", style="chart", only="terminal", least=100),
    ]
    rows = []
    for curve in series.curves[:MOST_ROWS]:
        point = curve.points[-1]
        if point.step != last:
            continue
        if point.change_band is not None:
            change = signed_to(point.change_band, band_digits(point.change_band))
        else:
            change = "" if point.change is None else minus(f"{point.change:+.3g}")
        cells: list[Text] = [
            Name(curve.metric, 40, clean(curve.metric, 40)),
            minus(figure(point.value, band_digits(point.band) if point.band else None)),
            to(point.band, band_digits(point.band)) if point.band else NONE,
            change,
            _MARKS[point.verdict],
            Glyphs(sparkline([point.value for point in curve.points]), ""),
        ]
        rows.append(Row(cells))
    return Table(columns, rows)


def band_digits(pair: tuple[float, float]) -> int:
    """The number of decimals of an interval: three below 10, fewer above, and three digits for tiny numbers.

    >>> band_digits((0.2, 0.7)), band_digits((140.0, 170.0)), band_digits((2.1e-05, 7.4e-05))
    (3, 1, 7)
    """
    size = max(map(abs, pair))
    if 0 < size < 0.001:
        return min(2 - math.floor(math.log10(size)), MOST_DECIMALS)
    return 3 if size < 10 else 1 if size < 1_000 else 0


def _evidence(watched: Watched) -> Table:
    columns = [
        TableColumn("alarm", style="strong"),
        *([TableColumn("series")] if any(alarm.series for alarm in watched.alarms) else []),
        TableColumn("evidence", "point"),
        TableColumn("needed", "point"),
    ]
    rows = []
    for alarm in watched.alarms:
        cells: list[Text] = [Name(alarm.alarm, None, clean(alarm.alarm, 60))]
        if len(columns) == 4:
            cells.append(Name(alarm.series, 40, clean(alarm.series, 40)))
        cells += [evidence_figure(alarm.evidence), evidence_figure(needed_by(alarm, watched))]
        rows.append(Row(cells, [clean(alarm.why, None)] if alarm.why else []))
    return Table(columns, rows)


def needed_by(alarm: AlarmState, watched: Watched) -> float:
    """The evidence that an alarm alone needs to be raised; of an open alarm, that which it needed."""
    status = alarm.status
    return watched.needed / alarm.weight if status is None or status.needed is None else status.needed


def evidence_figure(value: float) -> str:
    """Evidence with three digits, or in whole numbers from 1,000 to a million.

    >>> evidence_figure(0.4753), evidence_figure(1371.6), evidence_figure(2.5e9)
    ('0.475', '1,372', '2.5e+09')
    """
    return f"{value:,.0f}" if 1_000 <= value < 1e6 else f"{value:.3g}"


def sparkline(values: Sequence[float]) -> str:
    """A curve as a line of bars; a curve with more than 24 values is averaged over neighbours.

    >>> sparkline([0.0, 0.5, 1.0])
    '▁▅█'
    """
    if not values:
        return ""
    size = min(COLUMNS, len(values))
    cuts = [values[len(values) * at // size : len(values) * (at + 1) // size] for at in range(size)]
    means = [sum(cut) / len(cut) / 2 for cut in cuts]  # halved, so that no difference of two overflows
    low, high = min(means), max(means)
    if not math.isfinite(high - low):
        return ""
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((mean - low) * scale)] for mean in means)


def _failure(raised: Raised) -> str:
    return " ".join(text for text in (state_sentence(raised), f"{raised.words}.") if text)


def junit_page(watched: Watched) -> str:
    """The JUnit XML: a suite for each series, a case for each alarm, and an error for each file that was not read."""
    suites = []
    opened = {(raised.alarm, raised.series): raised for raised in reversed(watched.open_alarms)}
    names = [*(series.name for series in watched.series), *(alarm.series for alarm in watched.alarms)]
    for name in dict.fromkeys(names):
        cases = []
        for alarm in watched.alarms:
            if alarm.series != name:
                continue
            raised = opened.get((alarm.alarm, name))
            result = ("failure", _failure(raised), "alarm") if raised else ("skipped", alarm.why) if alarm.why else ()
            cases.append(Case(alarm.alarm, f"watch.{name}", *result))
        suites.append(TestSuite(name or "steps", cases))
    if watched.unreadable:
        broken = [Case(path, "watch.files", "error", why, "unreadable") for path, why in watched.unreadable.items()]
        suites.append(TestSuite("files", broken))
    return junit.render("calipers watch", suites)
