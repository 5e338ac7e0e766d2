"""JUnit XML, which every CI system shows: suites of test cases that passed, failed, broke or were skipped.

Each task of a score becomes a test case, which passes if all rollouts of the task passed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal
from xml.etree import ElementTree as Xml

import numpy as np
from msgspec import Struct

from calipers.metrics import PASS_THRESHOLD
from calipers.reports.result import Group, Result, finite
from calipers.reports.untrusted_text import clean
from calipers.rollouts.column import Column
from calipers.rollouts.labels import sliced
from calipers.rollouts.ledger import contributed
from calipers.rollouts.record import OUTCOMES, SCORED
from calipers.rollouts.table import Part, Rollouts, assemble
from calipers.stats.estimate import Estimate

Kind = Literal["failure", "error", "skipped"]
COUNTS: Final = {"failure": "failures", "error": "errors", "skipped": "skipped"}


class Case(Struct, frozen=True):
    """A test case; it passed if ``kind`` is None."""

    name: str
    classname: str
    kind: Kind | None = None
    message: str = ""
    type: str = ""  # of a failure or an error
    seconds: float | None = None


class TestSuite(Struct, frozen=True):
    """Test cases under one name."""

    name: str
    cases: Sequence[Case]


def render(name: str, suites: Sequence[TestSuite]) -> str:
    """The test suites as an XML document, with its declaration and a final newline.

    ``##[``, with which a command for GitHub's runner begins, is written with a character reference.
    """
    root = Xml.Element("testsuites", name=clean(name, None))
    totals = dict.fromkeys(("tests", *COUNTS.values()), 0)
    for suite in suites:
        element = Xml.SubElement(root, "testsuite", name=clean(suite.name, None))
        counts = dict.fromkeys(totals, 0)
        for case in suite.cases:
            _add(element, case)
            counts["tests"] += 1
            if case.kind:
                counts[COUNTS[case.kind]] += 1
        for key, count in counts.items():
            element.set(key, str(count))
            totals[key] += count
    for key, count in totals.items():
        root.set(key, str(count))
    Xml.indent(root)
    text = Xml.tostring(root, encoding="unicode", xml_declaration=False).replace("##[", "#&#35;[")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _add(suite: Xml.Element, case: Case) -> None:
    element = Xml.SubElement(suite, "testcase", name=clean(case.name, None), classname=clean(case.classname, None))
    if case.seconds is not None:
        element.set("time", f"{case.seconds:.3f}")
    if case.kind is None:
        return
    message = clean(case.message, None)
    inner = Xml.SubElement(element, case.kind, message=message)
    if case.kind != "skipped":
        inner.set("type", case.type)
        inner.text = message


def task_suites(result: Result, parts: Sequence[Part]) -> list[TestSuite]:
    """A suite for each group, with a case for each task and reward.

    A task fails if any of its rollouts did not pass. A task with missing rollouts and no failure is an error, because
    its missing rollouts might have passed.
    """
    tables = {tuple(table.keys[0]): table for table in assemble(parts).groups()}
    suites = []
    for group in result.groups:
        table = tables.get((group.agent, group.model, group.dataset))
        if table is not None:
            name = group.title or "score"
            cases = [
                case
                for label, part, metrics in _parts(table, group)
                for key in _rewards(metrics)
                for case in _cases(part, key, name, label)
            ]
            suites.append(TestSuite(name, cases))
    return suites


def _parts(table: Rollouts, group: Group) -> Iterator[tuple[str, Rollouts, Mapping[str, Estimate]]]:
    """A label, rollouts and metrics: those of the whole group, or of each slice if only slices have metrics.

    Only the slices of a training run (its steps) have metrics.
    """
    if group.metrics:
        yield "", table, group.metrics
        return
    for by, slices in group.breakdowns.items():
        rollouts = sliced(table, by, str)
        for value, part in slices.items():
            if value in rollouts:
                yield f" [{by}={value}]", rollouts[value], part.metrics


def _rewards(metrics: Mapping[str, Estimate]) -> list[str]:
    """The keys of the rewards from which the metrics are computed."""
    settings = (setting for estimate in metrics.values() for setting in estimate.made.settings)
    return list(dict.fromkeys(name.removeprefix("reward:") for name in settings if name.startswith("reward:")))


def _cases(table: Rollouts, key: str, suite: str, label: str) -> Iterator[Case]:
    numbers, seconds = contributed(table, key), table.columns.get("latency_s")
    starts = np.searchsorted(table.task, np.arange(len(table.tasks) + 1))
    suffix = ("" if key == "reward" else f" ({key})") + label
    for task, (start, end) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)):
        rows = slice(start, end)
        yield _case(f"{table.tasks[task]}{suffix}", suite, numbers.take(rows), table.outcome[rows], _sum(seconds, rows))


def _sum(seconds: Column | None, rows: slice) -> float | None:
    """The time of a task's rollouts; None if it is unknown, or not finite, which readers of JUnit XML refuse."""
    if seconds is None or not seconds.given[rows].any():
        return None
    return finite(float(seconds.take(rows).kept().sum()))


def _case(name: str, suite: str, numbers: Column, outcome: np.ndarray, seconds: float | None) -> Case:
    values = numbers.kept()
    passed, missing = int((values >= PASS_THRESHOLD).sum()), len(numbers) - len(values)
    counts = _counts(outcome)
    words = ", ".join(f"{word} {count}" for word, count in counts.items())
    message = f"{passed} of {len(values)} rollouts passed" + (f"; {missing} missing" if missing else "")
    message += f" ({words})" if words else ""
    if passed < len(values):
        failed = _counts(outcome[numbers.given & ~(numbers.values >= PASS_THRESHOLD)])
        return Case(name, suite, "failure", message, next(iter(failed), OUTCOMES[SCORED]), seconds)
    if missing or not len(numbers):
        return Case(name, suite, "error", message, "missing", seconds)
    return Case(name, suite, seconds=seconds)


def _counts(outcome: np.ndarray) -> dict[str, int]:
    """The number of rollouts with each outcome, in words, except "scored"."""
    counts = dict(zip(OUTCOMES, np.bincount(outcome, minlength=len(OUTCOMES)).tolist(), strict=False))
    return {word.replace("_", " "): count for word, count in counts.items() if count and word != OUTCOMES[SCORED]}
