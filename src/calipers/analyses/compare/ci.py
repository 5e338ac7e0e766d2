"""A comparison for CI: JUnit's test cases, and GitHub's annotations.

A finding is a case: `worse` is a failure; an undecided one is skipped, so that it is visible and stops nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from calipers.analyses.compare.result import Comparison
from calipers.reports.github import Level, annotation
from calipers.reports.junit import Case, Kind, TestSuite

WORSE, UNDECIDED = "worse", "undecided"
KINDS: Mapping[str, Kind] = {WORSE: "failure", UNDECIDED: "skipped"}


def suites(comparison: Comparison) -> list[TestSuite]:
    """A suite for each pair of runs, a case for each finding."""
    cases: dict[str, list[Case]] = {}
    for row in comparison.rows():
        pair, verdict = _pair(row), row["verdict"] or ""
        kind = KINDS.get(verdict)
        case = Case(_name(row), pair, kind, _message(row) if kind else "", verdict)
        cases.setdefault(pair, []).append(case)
    return [TestSuite(pair, some) for pair, some in cases.items()]


def annotated(comparison: Comparison) -> Iterator[str]:
    """An error for each finding that is worse, a notice for each that is undecided."""
    for row in comparison.rows():
        if row["verdict"] in (WORSE, UNDECIDED):
            level: Level = "error" if row["verdict"] == WORSE else "notice"
            yield annotation(level, f"{row['verdict']}: {_name(row)}", f"{_pair(row)}: {_message(row)}")


def _pair(row: Mapping[str, Any]) -> str:
    return " · ".join(filter(None, (row["dataset"], f"{row['second_run']} against {row['first_run']}")))


def _name(row: Mapping[str, Any]) -> str:
    cut = f"[{row['by']}={row['slice']}]" if row.get("by") else ""
    return f"{row['metric']}{cut}"


def _message(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {row[key]:.4g}" for key in ("delta", "low", "high", "p") if row.get(key) is not None)
