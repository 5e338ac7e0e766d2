"""A matrix for CI: JUnit's test cases, and GitHub's annotations.

A difference is a case: `worse` is a failure; an undecided one is skipped, so that it is visible and stops nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from calipers.analyses.matrix.result import MACRO_MEAN, Matrix, PairDifference
from calipers.reports.github import Level, annotation
from calipers.reports.junit import Case, Kind, Suite

KINDS: dict[str, Kind] = {"worse": "failure", "undecided": "skipped"}


def suites(matrix: Matrix) -> list[Suite]:
    """A suite for each pair of models, a case for each benchmark and for their mean."""
    cases: dict[str, list[Case]] = {}
    for row, pair in _pairs(matrix):
        kind = KINDS.get(pair.verdict)
        case = Case(f"{matrix.metric} · {row}", _name(pair), kind, _message(pair) if kind else "", pair.verdict)
        cases.setdefault(_name(pair), []).append(case)
    return [Suite(name, some) for name, some in cases.items()]


def annotated(matrix: Matrix) -> Iterator[str]:
    """An error for each difference that is worse, a notice for each that is undecided."""
    for row, pair in _pairs(matrix):
        if pair.verdict in KINDS:
            level: Level = "error" if pair.verdict == "worse" else "notice"
            yield annotation(level, f"{pair.verdict}: {matrix.metric} · {row}", f"{_name(pair)}: {_message(pair)}")


def _pairs(matrix: Matrix) -> Iterator[tuple[str, PairDifference]]:
    """The differences of the mean over benchmarks, which is the primary test, then those of each benchmark."""
    if matrix.mean is not None:
        yield from ((MACRO_MEAN, pair) for pair in matrix.mean.pairs)
    for row in matrix.benchmarks:
        yield from ((row.benchmark, pair) for pair in row.pairs)


def _name(pair: PairDifference) -> str:
    return f"{pair.second} against {pair.first}"


def _message(pair: PairDifference) -> str:
    low, high = pair.interval or (None, None)
    numbers = {"delta": pair.delta, "low": low, "high": high, "p": pair.p_holm}
    return ", ".join(f"{key} {number:.4g}" for key, number in numbers.items() if number is not None)
