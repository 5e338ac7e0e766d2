"""A gate for CI: JUnit's XML, and GitHub's annotations.

The XML has a suite for each result and group, and a case for each requirement. A requirement that is not met is a
`failure`; a requirement without an answer is an `error`. A failed advisory requirement, or a supporting one within the
allowed failures, is `skipped`, so that it is visible.
"""

from __future__ import annotations

from collections.abc import Iterator

from calipers.analyses.gate.document import Check, Gate
from calipers.reports import junit
from calipers.reports.github import annotation
from calipers.reports.junit import Case, TestSuite
from calipers.reports.plain_words import plain_why
from calipers.reports.untrusted_text import clean


def render(gate: Gate) -> str:
    """The document, with its declaration and a final newline."""
    suites: dict[tuple[str, str], list[Check]] = {}
    for check in gate.checks:
        suites.setdefault((check.result, check.title), []).append(check)
    named = [
        TestSuite(" · ".join(part for part in names if part), [_case(check, gate) for check in checks])
        for names, checks in suites.items()
    ]
    return junit.render("calipers gate", named)


def message(check: Check) -> str:
    """The result of a check on one line: the value, or why there is none."""
    if check.word == "undefined":
        return clean(f"{check.require}: {plain_why(check.why or '')}", None)
    text = f"{check.require}: {check.shown}"
    if check.interval:
        text += f", {check.level} {check.ends}"
    return clean("; ".join(filter(None, (text, check.remark))), None)


def _case(check: Check, gate: Gate) -> Case:
    name, of = check.require, f"{check.tier}.{check.result}"
    if check.word == "passed":
        return Case(name, of)
    if not gate.blocks(check):
        return Case(name, of, "skipped", f"does not stop the gate: {message(check)}")
    return Case(name, of, "failure" if check.word == "failed" else "error", message(check), check.tier)


def annotated(gate: Gate) -> Iterator[str]:
    """A line for each check that is not met: an error where it stops the gate, else a warning."""
    for check in gate.checks:
        if check.word == "passed":
            continue
        where = " · ".join(part for part in (check.result, check.title) if part)
        title = f"{check.tier} requirement {check.word}: {where}"
        yield annotation("error" if gate.blocks(check) else "warning", title, message(check))
