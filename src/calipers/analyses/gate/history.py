"""A gate that runs every night with a history of earlier nights, so that false alarms are controlled over all nights.

::

    history.json + tonight's rollouts ──► the e-process of a watch, one step a night ──► a check, and the new history

Testing each night at 5 % against one stored baseline raises a false alarm in most histories of half a year. Here one
e-process collects the evidence of all nights since the last alarm, against the best of all earlier nights or of any
stretch of them, and each alarm starts a new segment. LORD++ and e-LOND, which test each night by itself, are options.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import NormalDist
from typing import Any, Final

import msgspec
import numpy as np

from calipers.analyses.gate import CRITICAL, Check, Gate
from calipers.analyses.gate.gate import gate
from calipers.analyses.watch import DROP, RISE, Alarm, parse
from calipers.analyses.watch.monitor import Monitor, MonitorSettings
from calipers.analyses.watch.state import from_tree, to_tree
from calipers.analyses.watch.sums import StepSums, demand_watched_range, matched, shared_tasks, summed
from calipers.errors import Incomplete, InputError, LogError, UnknownName
from calipers.formats import BAD, Named
from calipers.formats.read import begin
from calipers.formats.source import STDIN
from calipers.metrics import UNIT
from calipers.reports.remark_texts import text_of
from calipers.reports.result import finite
from calipers.rollouts.checks import disagreements
from calipers.stats.alarms import e_lond, e_of_z, lord_plus_plus
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
        starts = [1, *(earlier.number for earlier in self.nights if earlier.raised and earlier.number < night.number)]
        return sum(starts[-1] < each.number <= night.number and not each.why for each in self.nights)

    def take(self, sums: StepSums) -> Night:
        """Add a night and test it. Rollouts that are already in the history return their night and add nothing."""
        digest = sums.digest
        for earlier in self.nights:
            if earlier.digest == digest:
                return earlier
        number = len(self.nights) + 1
        sums = replace(sums, step=number, split="", dataset=None, agent=None)
        values, given = sums.values(self.alarm.what)
        night = Night(number, sums.path, digest, float(values[given].mean()) if given.any() else float("nan"))
        if self.rule == E_PROCESS:
            self._test_all_nights(night, sums)
        else:
            self._test_one_night(night, sums)
        self.nights.append(night)
        return night

    def _test_all_nights(self, night: Night, sums: StepSums) -> None:
        """Test all nights since the last alarm together, by the e-process."""
        monitor = self.monitor
        alarms = monitor.alarms
        night.needed = monitor.needed
        monitor.raised = []  # so that a night that is still worse after an alarm raises its own alarm
        monitor.take(sums)
        raised = monitor.raised[-1] if monitor.alarms > alarms and monitor.raised else None
        night.raised = monitor.alarms > alarms
        night.evidence = raised.evidence if raised else monitor.evidence
        night.since = raised.since if raised else None
        night.why = monitor.watchers[0].why

    def _test_one_night(self, night: Night, sums: StepSums) -> None:
        """Test the night by itself against the first night, at a level that depends on earlier tests."""
        has_baseline = bool(self.monitor.series)
        self.monitor.take(sums)
        base = next(iter(self.monitor.series.values())).base
        if not has_baseline or base is None:
            return  # the first night is the baseline
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

    def check(self, night: Night) -> Check:
        """The check of the gate for a night."""
        count = self.compared_at(night)
        times = f"this baseline has been compared {'once' if count == 1 else f'{count} times'}"
        times = "it is the baseline of the next ones" if night.number == 1 else times
        if self.rule == E_PROCESS:
            evidence = f"evidence {night.evidence:.3g} of {night.needed:.3g} needed for an alarm"
        elif night.p is None:
            evidence = "the first night is the baseline" if night.number == 1 else "not tested"
        else:
            evidence = f"p {night.p:.3g}, level {night.level:.3g}"
        changed = "higher" if self.alarm.kind == RISE else "lower"
        since = f"; {changed} since night {night.since}" if night.since is not None else ""
        return Check(
            require=f"no {self.alarm.text}",
            tier=CRITICAL,
            result=night.path,
            agent=None,
            model=None,
            dataset=None,
            word="failed" if night.raised else "undefined" if night.why else "passed",
            value=night.value,
            estimate=night.value,
            why=night.why or None,
            remark=f"night {night.number} of {len(self.nights)}: {evidence}{since}; {times}",
        )


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
    return History(rule or E_PROCESS, Monitor(settings, curves=False, alone=True))


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
        history = History(content["rule"], Monitor(from_tree(content["settings"]), curves=False, alone=True))
        history.monitor.__dict__.update(from_tree(content["monitor"]))
        history.nights = msgspec.convert(content["nights"], complete(list[Night]))
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


def gate_with_history(
    result: str | None,
    history: str,
    *,
    alarm: str | None,
    false_alarms: float | None,
    online: str | None,
    nights: int | None = None,
    require: Sequence[str] = (),
    policy: str | None = None,
    **settings: Any,
) -> Gate:
    """The gate of a nightly run: first the check of its history, which is updated, then its requirements, if any."""
    if result is None:
        raise InputError("RESULT is missing; --history needs the rollouts of tonight's run")
    if result == STDIN and (require or policy is not None):
        raise InputError.at("--history", "standard input can be read only once", "expected a file, or no requirements")
    loaded = load_history(history, alarm, false_alarms, online, nights, settings.get("range"))
    columns = Named(settings.get("columns") or {}, settings.get("truth"), settings.get("input_format") or "")
    trusted = bool(settings.get("trust_reader"))
    sums = tonight(result, columns, settings.get("reward"), loaded.monitor.settings, trust_reader=trusted)
    count_before = len(loaded.nights)
    night = loaded.take(sums)
    notes = list(loaded.monitor.notes)
    if len(loaded.nights) == count_before:
        notes.append(f"{result}: these rollouts are night {night.number} of the history already; nothing was added")
    else:
        save_history(history, loaded)
    check = loaded.check(night)
    if not require and policy is None:
        return Gate([check], notes=notes)
    checked = gate(result, require=require, policy=policy, **settings)
    return replace(checked, checks=[check, *checked.checks], notes=[*checked.notes, *notes])
