"""JUnit's XML, which every CI system shows: suites of cases that passed, failed, broke or were skipped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal
from xml.etree import ElementTree as Xml

from msgspec import Struct

from calipers.reports.untrusted_text import clean

Kind = Literal["failure", "error", "skipped"]
COUNTS: Final = {"failure": "failures", "error": "errors", "skipped": "skipped"}


class Case(Struct, frozen=True):
    """One test case; without a kind it passed."""

    name: str
    classname: str
    kind: Kind | None = None
    message: str = ""
    type: str = ""  # of a failure or an error
    seconds: float | None = None


class TestSuite(Struct, frozen=True):
    """Some cases under one name."""

    name: str
    cases: Sequence[Case]


def render(name: str, suites: Sequence[TestSuite]) -> str:
    """The document, with its declaration and a final newline."""
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
    return Xml.tostring(root, encoding="unicode", xml_declaration=False).join(
        ('<?xml version="1.0" encoding="UTF-8"?>\n', "\n")
    )


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
