"""A matrix for CI: JUnit's test cases, and GitHub's annotations.

The difference of two models on a benchmark, or over all of them, is a case: `worse` is a failure; an undecided one is
skipped, so that it is visible and stops nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from calipers.analyses.compare.ci import KINDS, UNDECIDED, WORSE
from calipers.analyses.matrix.result import MACRO_MEAN, Matrix, PairDifference
from calipers.reports.github import Level, annotation
from calipers.reports.junit import Case, TestSuite


def suites(matrix: Matrix) -> list[TestSuite]:
    """A suite for each pair of models, a case for each benchmark and for their mean."""
    cases: dict[str, list[Case]] = {}
    for name, pair in _pairs(matrix):
        kind = KINDS.get(pair.verdict)
        case = Case(name, _called(pair), kind, _message(pair) if kind else "", pair.verdict)
        cases.setdefault(_called(pair), []).append(case)
    return [TestSuite(pair, some) for pair, some in cases.items()]


def annotated(matrix: Matrix) -> Iterator[str]:
    """An error for each difference that is worse, a notice for each that is undecided."""
    for name, pair in _pairs(matrix):
        if pair.verdict in (WORSE, UNDECIDED):
            level: Level = "error" if pair.verdict == WORSE else "notice"
            yield annotation(level, f"{pair.verdict}: {name}", f"{_called(pair)}: {_message(pair)}")


def _pairs(matrix: Matrix) -> Iterator[tuple[str, PairDifference]]:
    """Each difference with the name of its row, those of the mean first."""
    for pair in matrix.mean.pairs if matrix.mean else ():
        yield f"{matrix.metric} · {MACRO_MEAN}", pair
    for row in matrix.benchmarks:
        for pair in row.pairs:
            yield f"{matrix.metric} · {row.benchmark}", pair


def _called(pair: PairDifference) -> str:
    return f"{pair.second} against {pair.first}"


def _message(pair: PairDifference) -> str:
    low, high = pair.interval or (None, None)
    numbers = {"delta": pair.delta, "low": low, "high": high, "p": pair.p, "p_holm": pair.p_holm}
    return ", ".join(f"{name} {value:.4g}" for name, value in numbers.items() if value is not None)
