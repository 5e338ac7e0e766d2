"""A gate that runs every night with a history of earlier nights, so that false alarms are controlled over all nights.

::

    history.json + tonight's rollouts ──► the e-process of a watch, one step a night ──► a check, and the new history

Testing each night at 5 % against one stored baseline raises a false alarm in most histories of half a year. Here one
e-process collects the evidence of all nights since the last alarm, against the best of all earlier nights or of any
stretch of them. An alarm stays open, and every night fails, until a test for recovery closes it or the user accepts a
night as the new reference. LORD++ and e-LOND, which test each night by itself, are options.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import NormalDist
from typing import Any, Final

import msgspec
import numpy as np

from calipers.analyses.gate import CRITICAL, Check, Gate, Word
from calipers.analyses.gate.gate import gate
from calipers.analyses.watch import DROP, RISE, Alarm, parse
from calipers.analyses.watch.monitor import AlarmWatcher, Monitor, MonitorSettings, Raised
from calipers.analyses.watch.state import from_tree, to_tree
from calipers.analyses.watch.status import (
    ACCEPTED,
    CLOSED,
    NIGHT,
    OPEN,
    QUIET,
    AlarmStatus,
    baseline_remark,
    raised_remark,
)
from calipers.analyses.watch.sums import StepSums, demand_watched_range, matched, shared_tasks, summed
from calipers.errors import Incomplete, InputError, LogError, UnknownName
from calipers.formats import BAD, Named
from calipers.formats.read import begin
from calipers.formats.source import STDIN
from calipers.metrics import UNIT
from calipers.remarks import Remark
from calipers.reports.remark_texts import note_of, text_of
from calipers.reports.result import finite
from calipers.rollouts.checks import disagreements
from calipers.stats.alarms import e_lond, e_of_z, lord_plus_plus
from calipers.stats.missing import MOST_MISSING
from calipers.stats.paired import paired
from calipers.stores import atomic_file
from calipers.typed import complete

SCHEMA: Final = "calipers.history/1"
E_PROCESS, LORD, E_LOND = "e-process", "lord++", "e-lond"
RULES: Final = (E_PROCESS, LORD, E_LOND)
PLANNED: Final = 180  # planned nights; a longer history starts a new segment
DEFAULT: Final = "drop(reward) > 0"


@dataclass(slots=True)
class Night:
    """The result of one night."""

    number: int
    path: str
    digest: str
    value: float | None  # None if no rollout of the night has one
    evidence: float | None = None  # of the e-process
    needed: float | None = None  # the evidence at which the e-process raises an alarm
    p: float | None = None  # of LORD++ or e-LOND
    level: float | None = None  # of their test
    raised: bool = False  # whether the night raised an alarm
    since: int | None = None  # the night since which the e-process sees the change
    why: str = ""  # why the night could not be tested
    alarm: AlarmStatus | None = None  # the state of the alarm in this night; None in a file of an older version

    @property
    def word(self) -> Word:
        """The answer of the night: failed while an alarm is open."""
        if self.alarm is not None and self.alarm.state == OPEN:
            return "failed"
        return "undefined" if self.why else "passed"


@dataclass(slots=True)
class History:
    """The nights that were tested so far, and the state of their monitor."""

    rule: str
    monitor: Monitor
    nights: list[Night] = field(default_factory=list)

    @property
    def alarm(self) -> Alarm:
        """The alarm that is watched for."""
        return self.monitor.settings.alarms[0]

    @property
    def compared(self) -> int:
        """How often the current baseline has been compared so far."""
        return self.compared_at(self.nights[-1]) if self.nights else 0

    def compared_at(self, night: Night) -> int:
        """How often the baseline had been compared by a night: the tested nights since it or the last alarm."""
        start = 1
        for earlier in self.nights[: night.number - 1]:
            if earlier.alarm is not None and earlier.alarm.state in (OPEN, CLOSED):
                start = earlier.number
        for accepted in self.monitor.accepted:
            if start < accepted <= night.number:
                start = accepted
        return sum(start < each.number <= night.number and not each.why for each in self.nights)

    @property
    def open_alarm(self) -> AlarmStatus | None:
        """The alarm that is open after the last night, if one is."""
        status = self.nights[-1].alarm if self.nights else None
        return status if status is not None and status.state == OPEN else None

    def known(self, sums: StepSums) -> Night | None:
        """The night that has the same rollouts, if there is one."""
        digest = sums.digest
        return next((night for night in self.nights if night.digest == digest), None)

    def take(self, sums: StepSums) -> Night:
        """Add a night and test it. Rollouts that are already in the history return their night and add nothing."""
        if (known := self.known(sums)) is not None:
            return known
        number = len(self.nights) + 1
        digest = sums.digest
        sums = replace(sums, step=number, split="", dataset=None, agent=None)
        if sums.follows is None and self.monitor.first:  # an earlier night forces first samples on this one
            sums = sums.on_first_samples()
        value = self._value(sums if sums.follows is None else sums.on_first_samples())
        night = Night(number, sums.path, digest, value)
        if self.rule == E_PROCESS:
            self._test_all_nights(night, sums)
        else:
            self._test_one_night(night, sums)
        if value is None:
            night.why = f"no rollout has a value of {self.alarm.what}"
        self.nights.append(night)
        return night

    def _value(self, sums: StepSums) -> float | None:
        """The mean of a night; None if no rollout has a value. InputError if its rewards lack the alarm's metric."""
        if not sums.rewards and self.nights:  # such as a night on which every request has failed
            return None
        try:
            values, given = sums.values(self.alarm.what)
        except InputError as error:
            raise InputError(f"{sums.path}: {error}") from None
        return float(values[given].mean()) if given.any() else None

    def _test_all_nights(self, night: Night, sums: StepSums) -> None:
        """Test all nights since the last alarm together, by the e-process."""
        monitor = self.monitor
        alarms, needed = monitor.alarms, monitor.needed
        monitor.take(sums)
        watcher = monitor.watchers[0]
        status = monitor.status_of(watcher)
        if status.state == QUIET:
            status = replace(status, needed=needed)  # a segment that ends with this night changes what is needed
        night.alarm, night.why = status, watcher.why
        night.raised = monitor.alarms > alarms
        night.evidence, night.needed, night.since = status.evidence, status.needed, status.since

    def _test_one_night(self, night: Night, sums: StepSums) -> None:
        """Test the night by itself against the first night, at a level that depends on earlier tests.

        While an alarm is open, a night is tested for recovery instead.
        """
        monitor = self.monitor
        series = next(iter(monitor.series.values()), None)
        base = None if series is None else series.base
        was_open = self.open_alarm is not None
        monitor.take(sums)
        watcher = monitor.watchers[0]
        if was_open:
            night.alarm, night.why = monitor.status_of(watcher), watcher.why
            return
        if base is not None:  # the first night is the baseline, and so is the first one after an accepted night
            self._compare(night, sums, base)
        if night.raised:
            monitor.open(watcher, sums, night.number, None)
        status = replace(monitor.status_of(watcher), p=night.p, p_level=night.level)
        if night.raised:
            monitor.raised[-1] = replace(monitor.raised[-1], status=status)  # an open alarm keeps what raised it
        else:
            status = replace(status, evidence=None, needed=None)
        night.alarm = status

    def _compare(self, night: Night, sums: StepSums, base: StepSums) -> None:
        """The p value of a night against the baseline, and whether it raises an alarm."""
        if not sums.rewards:
            return
        if self.monitor.first:
            sums, base = sums.on_first_samples(), base.on_first_samples()
        now, before, _ = matched(sums, self.alarm.what, base, shared_tasks(sums, base))
        both = np.concatenate([now, before])
        limits = self.monitor.settings.range or (UNIT if bool(((both >= 0) & (both <= 1)).all()) else None)
        difference = paired(before - now if self.alarm.kind == RISE else now - before, limits=limits)
        night.p = difference.p_at_least(-self.alarm.limit)
        if night.p is None:
            night.why = f"compared with the first night, {difference.why}"
            return
        alpha = self.monitor.settings.false_alarms
        p_values = [each.p for each in (*self.nights, night) if each.p is not None]
        if self.rule == LORD:
            levels, rejected = lord_plus_plus(p_values, alpha)
        else:  # an e-value for each p value, as if p came from a normal z
            levels, rejected = e_lond(
                [float(e_of_z(-NormalDist().inv_cdf(min(max(p, 1e-300), 1 - 1e-16)))) for p in p_values], alpha
            )
        night.level, night.raised = float(levels[-1]), bool(rejected[-1])

    def accept(self, number: int, sums: StepSums | None) -> None:
        """Make a night the new reference, together with the nights after it; an open alarm ends.

        ``sums`` are tonight's rollouts, which may be the night itself. A night that was accepted already stays so.
        """
        if number in self.monitor.accepted:
            return
        new = sums is not None and self.known(sums) is None
        last = len(self.nights) + new
        if not 1 <= number <= last:
            expected = f"expected a night from 1 to {last}" if last else "expected a night of the history"
            raise InputError.at("--accept", f"night {number} is not in the history", expected)
        status = self.open_alarm
        if status is not None and status.since is not None and number < status.since:
            problem = f"night {number} is before the change that raised the alarm"
            raise InputError.at("--accept", problem, f"expected night {status.since} or a later one")
        if not self.nights:
            return  # the first night is the reference
        self._accept(number, sums)

    def _accept(self, number: int, sums: StepSums | None) -> None:
        monitor = self.monitor
        watcher = monitor.watchers[0]
        before = replace(watcher)
        monitor.accept(number)
        watcher.learn_again(before, number)
        known = None if sums is None else self.known(sums)
        if sums is not None and known is not None and known.number >= number:
            # a rule that tests each night by itself needs rollouts to compare with, and those of other nights are gone
            series = next(iter(monitor.series.values()))
            series.base, series.base_step = replace(sums, step=number, split="", dataset=None, agent=None), number
        for night in self.nights[number - 1 :]:
            if night.alarm is not None and night.alarm.state == OPEN:
                night.alarm = replace(night.alarm, state=ACCEPTED, closed=number)

    def check(self, night: Night) -> Check:
        """The check of the gate for a night."""
        return Check(
            require=self.alarm.text,
            tier=CRITICAL,
            result=night.path,
            agent=None,
            model=None,
            dataset=None,
            word=night.word,
            value=night.value,
            estimate=night.value,
            why=night.why or None,
            remark=text_of(self._remark(night)),
            alarm=night.alarm,
        )

    def _remark(self, night: Night) -> Remark:
        """What is said of a night beside the state of its alarm: what raised it, or how old the baseline is."""
        raised = None if night.alarm is None else raised_remark(night.alarm, self.alarm, NIGHT)
        if raised is not None:
            return raised
        begins = night.number == 1 or night.number in self.monitor.accepted
        return baseline_remark(self.compared_at(night), begins=begins)


def tonight(
    path: str, columns: Named, reward: str | None, settings: MonitorSettings, *, trust_reader: bool = False
) -> StepSums:
    """The sums of a run's rollouts; InputError for several models or datasets, or a reward outside the given range.

    Incomplete if a number of the run's own system differs from ours, unless ``trust_reader``: a night stays in the
    history.
    """
    rollouts, _ = begin([path], columns=columns)
    if not trust_reader and (doubts := disagreements(rollouts.checks)):
        raise Incomplete(f"{path}: {text_of(doubts[0])}; --trust-reader adds the night nevertheless")
    parts = list(rollouts.groups())
    if len(parts) > 1:
        raise InputError.at(path, f"has {len(parts)} groups", "expected the rollouts of one model on one dataset")
    if settings.range is not None:
        demand_watched_range(parts[0], settings.range, reward, settings.metrics, path)
    return summed(parts[0], 1, "", path, reward)


Range = tuple[float, float] | None


def new_history(
    alarm: str | None,
    false_alarms: float | None,
    rule: str | None,
    nights: int | None = None,
    range: Range = None,
) -> History:
    """A history without nights; ``range`` is that of the rewards, if it is not 0 to 1."""
    parsed = parse(alarm or DEFAULT)
    if parsed.kind not in (DROP, RISE) or parsed.base is not None or parsed.key:
        expected = "expected drop(METRIC) > d or rise(METRIC) > d"
        raise InputError.at("--alarm", f"{parsed.text!r} is no regression", expected)
    if rule is not None and rule not in RULES:
        raise InputError.at("--online", str(UnknownName.of("rule", rule, RULES)))
    level = 0.05 if false_alarms is None else false_alarms
    settings = MonitorSettings([parsed], nights or PLANNED, level, range=range, nightly=True)
    return _with_rule(rule or E_PROCESS, Monitor(settings, curves=False, alone=True))


def _with_rule(rule: str, monitor: Monitor) -> History:
    """A history of a rule; the monitor raises alarms only by the e-process."""
    monitor.raises = rule == E_PROCESS
    return History(rule, monitor)


def load_history(
    path: str,
    alarm: str | None,
    false_alarms: float | None,
    rule: str | None,
    nights: int | None = None,
    range: Range = None,
) -> History:
    """The history in a file, or a new one if there is no file. Settings that are given must equal those in the file."""
    new = new_history(alarm, false_alarms, rule, nights, range)
    try:
        with open(path, "rb") as file:
            content = msgspec.json.decode(file.read())
    except FileNotFoundError:
        return new
    except OSError as error:
        raise InputError.at(path, f"cannot be read ({error.strerror})") from None
    except BAD:
        raise InputError.at(path, "is not a history", "expected a file that gate --history wrote, or no file") from None
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise InputError.at(path, "is not a history", f"expected the schema {SCHEMA}")
    try:
        if content["rule"] not in RULES:
            raise ValueError("an unknown rule")
        history = _with_rule(content["rule"], Monitor(from_tree(content["settings"]), curves=False, alone=True))
        history.monitor.__dict__.update(from_tree(content["monitor"]))
        history.nights = msgspec.convert(content["nights"], complete(list[Night]))
        _open_old_alarm(history)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InputError.at(path, "is damaged", "restore it, or begin a new history in another file") from None
    stored = history.monitor.settings
    options = [
        ("--alarm", alarm is not None and parse(alarm) != stored.alarms[0], stored.alarms[0].text),
        ("--false-alarms", false_alarms is not None and false_alarms != stored.false_alarms, stored.false_alarms),
        ("--nights", nights is not None and nights != stored.steps, stored.steps),
        ("--online", rule is not None and rule != history.rule, history.rule),
        ("--range", range is not None and range != (stored.range or UNIT), "{:g},{:g}".format(*(stored.range or UNIT))),
    ]
    for option, differs, before in options:
        if differs:
            raise InputError.at(path, f"was begun with {option} {before}", "expected the same, or another file")
    return history


def _open_old_alarm(history: History) -> None:
    """Give the nights of an older version's file their states: the alarm of the last raised night is open.

    The rollouts of earlier nights are gone, so its test for recovery begins with the next night.
    """
    nights = history.nights
    if not nights or any(night.alarm is not None for night in nights):
        return
    for night in nights:
        night.alarm = _old_status(night, night if night.raised else None)
    raised = [night for night in nights if night.raised]
    if not raised:
        return
    last = raised[-1]
    watcher = history.monitor.watchers[0]
    _open_from_values(history, watcher, last)
    for night in nights[last.number - 1 :]:
        night.alarm = history.monitor.with_values(_old_status(night, last), watcher)
    status = nights[-1].alarm
    since = last.since or last.number
    amounts = watcher.amount(since)
    evidence, needed = last.evidence or 0.0, last.needed or history.monitor.needed
    history.monitor.raised = [
        Raised(
            history.alarm.text,
            watcher.series,
            last.number,
            since,
            *amounts,
            evidence,
            needed,
            history.monitor.segment,
            path=last.path,
            until=nights[-1].number,
            status=status,
        )
    ]


def _old_status(night: Night, raised: Night | None) -> AlarmStatus:
    """The state of a night of an older version's file; ``raised`` is the night whose alarm is open in it."""
    if raised is None:
        status = AlarmStatus(QUIET, night.number, evidence=night.evidence, needed=night.needed, now=night.value)
    else:
        since = raised.since or raised.number
        status = AlarmStatus(OPEN, night.number, since, raised.number, raised.evidence, raised.needed, now=night.value)
    return replace(status, p=night.p, p_level=night.level)


def _open_from_values(history: History, watcher: AlarmWatcher, raised: Night) -> None:
    """Open the alarm of a night whose rollouts are gone, from the values of the nights."""
    low, high = watcher.limits or UNIT
    course = watcher.course
    if watcher.best is not None:
        course.bound = float(watcher.best.best) - history.alarm.limit / (high - low)
    watcher.restart(keep_reference=True, level=watcher.level)
    for night in history.nights:
        if night.value is not None:
            share = min(max((night.value - low) / (high - low), 0.0), 1.0)
            course.scores.append((night.number, 1 - share if history.alarm.kind == RISE else share))
        if night is raised:
            watcher.open(raised.since or raised.number)


def save_history(path: str, history: History) -> None:
    """Write the history to a file, atomically."""
    document = {
        "schema": SCHEMA,
        "rule": history.rule,
        "alarm": history.alarm.text,
        "false_alarms": history.monitor.settings.false_alarms,
        "compared": history.compared,
        "nights": [
            {key: finite(value) if isinstance(value, float) else value for key, value in asdict(night).items()}
            for night in history.nights
        ],
        "settings": to_tree(history.monitor.settings),
        "monitor": to_tree(history.monitor.__dict__),
    }
    text = json.dumps(document, default=lambda data: base64.b64encode(data).decode(), indent=1, allow_nan=False)
    try:
        with atomic_file(os.path.realpath(path)) as file:
            file.write(f"{text}\n".encode())
    except OSError as error:
        raise LogError.of(path, error) from None


def _again(history: History, night: Night) -> Remark:
    """The remark on rollouts that are a night of the history already: an alarm of a later night may be open."""
    status = history.open_alarm
    if status is not None and night.word != "failed":
        return Remark("night_again_open", {"night": night.number, "raised": status.raised}, "warning")
    return Remark("night_again", {"night": night.number})


def _missing(sums: StepSums) -> Iterator[Remark]:
    """A warning if many rollouts of a night have no value: one that lost its failures looks like a recovery."""
    planned = float(sums.planned.sum())
    moments = sums.rewards.get(sums.headline)
    given = 0.0 if moments is None else float(moments[0].sum())
    if planned - given > MOST_MISSING * planned:
        yield Remark("night_missing", {"share": 1 - given / planned}, "warning")


def gate_with_history(
    result: str | None,
    history: str,
    *,
    alarm: str | None,
    false_alarms: float | None,
    online: str | None,
    nights: int | None = None,
    accept: int | None = None,
    require: Sequence[str] = (),
    policy: str | None = None,
    **settings: Any,
) -> Gate:
    """The gate of a nightly run: first the check of its history, which is updated, then its requirements, if any.

    ``accept`` is a night that becomes the new reference. Without a result it is accepted, and the last night checked.
    """
    has_requirements = bool(require) or policy is not None
    if result is None and (accept is None or has_requirements):
        raise InputError("RESULT is missing; --history needs the rollouts of tonight's run")
    if result == STDIN and has_requirements:
        raise InputError.at("--history", "standard input can be read only once", "expected a file, or no requirements")
    loaded = load_history(history, alarm, false_alarms, online, nights, settings.get("range"))
    sums = None
    if result is not None:
        columns = Named(settings.get("columns") or {}, settings.get("truth"), settings.get("input_format") or "")
        trusted = bool(settings.get("trust_reader"))
        sums = tonight(result, columns, settings.get("reward"), loaded.monitor.settings, trust_reader=trusted)
    count_before, accepted_before = len(loaded.nights), len(loaded.monitor.accepted)
    notes_before = len(loaded.monitor.notes)
    if accept is not None:
        loaded.accept(accept, sums)
    night = loaded.nights[-1] if sums is None else loaded.take(sums)
    notes = loaded.monitor.notes[notes_before:]
    is_new = len(loaded.nights) > count_before
    is_accepted = len(loaded.monitor.accepted) > accepted_before
    if is_new or is_accepted:
        save_history(history, loaded)
    if accept is not None and is_accepted:
        notes.append(text_of(Remark("reference_accepted", {"night": accept})))
    if sums is not None and is_new:
        notes += [f"{result}: {note_of(remark)}" for remark in _missing(sums)]
    if sums is not None and not is_new:
        notes.append(f"{result}: {text_of(_again(loaded, night))}")
    check = loaded.check(night)
    if not has_requirements or result is None:
        return Gate([check], notes=notes)
    checked = gate(result, require=require, policy=policy, **settings)
    return replace(checked, checks=[check, *checked.checks], notes=[*checked.notes, *notes])
