"""A gate for CI: JUnit's XML, and GitHub's annotations.

The XML has a suite for each result and group, and a case for each requirement. A requirement that is not met is a
`failure`; a requirement without an answer is an `error`. A failed advisory requirement, or a supporting one within the
allowed failures, is `skipped`, so that it is visible.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree as Xml

from calipers.analyses.gate.document import Check, Gate
from calipers.reports.plain_words import plain_why
from calipers.reports.untrusted_text import clean


def render(gate: Gate) -> str:
    """The document, with its declaration and a final newline."""
    suites: dict[tuple[str, str], list[Check]] = {}
    for check in gate.checks:
        suites.setdefault((check.result, check.title), []).append(check)
    root = Xml.Element("testsuites", name="calipers gate")
    totals = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    for (result, title), checks in suites.items():
        name = " · ".join(part for part in (result, title) if part)
        suite = Xml.SubElement(root, "testsuite", name=clean(name, None))
        counts = dict.fromkeys(totals, 0)
        for check in checks:
            kind = _case(suite, check, gate)
            counts["tests"] += 1
            if kind:
                counts[kind] += 1
        for key, count in counts.items():
            suite.set(key, str(count))
            totals[key] += count
    for key, count in totals.items():
        root.set(key, str(count))
    Xml.indent(root)
    return Xml.tostring(root, encoding="unicode", xml_declaration=False).join(
        ('<?xml version="1.0" encoding="UTF-8"?>\n', "\n")
    )


def message(check: Check) -> str:
    """The result of a check on one line: the value, or why there is none."""
    if check.word == "undefined":
        return clean(f"{check.require}: {plain_why(check.why or '')}", None)
    text = f"{check.require}: {check.shown}"
    if check.interval:
        text += f", {check.level} {check.ends}"
    return clean("; ".join(filter(None, (text, check.remark))), None)


def _case(suite: Xml.Element, check: Check, gate: Gate) -> str | None:
    """Add a case; under which count it goes, None for one that passed."""
    case = Xml.SubElement(
        suite, "testcase", name=clean(check.require, None), classname=f"{check.tier}.{clean(check.result, None)}"
    )
    if check.word == "passed":
        return None
    if not gate.blocks(check):
        Xml.SubElement(case, "skipped", message=f"does not stop the gate: {message(check)}")
        return "skipped"
    kind, count = ("failure", "failures") if check.word == "failed" else ("error", "errors")
    Xml.SubElement(case, kind, message=message(check), type=check.tier).text = message(check)
    return count


def annotated(gate: Gate) -> Iterator[str]:
    """A line for each check that is not met: an error where it stops the gate, else a warning."""
    for check in gate.checks:
        if check.word == "passed":
            continue
        level = "error" if gate.blocks(check) else "warning"
        where = " · ".join(part for part in (check.result, check.title) if part)
        title = _property(f"{check.tier} requirement {check.word}: {where}")
        yield f"::{level} title={title}::{_data(message(check))}"


def _data(text: str) -> str:
    return clean(text, None).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A").replace("##[", "# #[")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
