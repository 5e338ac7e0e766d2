"""Matrices of commands: a folder of runs, for score and compare, and several runs at the end of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from calipers.cli.output import Progress, Target, annotate, show, tell_notes, write_junit
from calipers.errors import InputError
from calipers.reports.untrusted_text import safe_json

if TYPE_CHECKING:
    from calipers.analyses.matrix.document import Matrix
    from calipers.running.perform import Report

FOR_PEOPLE = ("table", "md")
OF_SCORE = ("cluster", "dialect", "missing", "reward", "range", "exclude", "interval", "confidence", "seed")
OF_COMPARE = ("cluster", "dialect", "missing", "reward", "range", "exclude", "confidence", "seed", "margin")
ONE_BENCHMARK = ("by", "force", "test", "anytime", "adjust", "primary", "baseline", "flips", "pairs")
"""Options of a comparison that a matrix of several benchmarks has no use for."""


@dataclass(frozen=True, slots=True)
class RunSet:
    """Paths of a command with the runs inside each folder of runs in its place."""

    paths: tuple[str, ...]
    given: str  # as the user wrote them

    @property
    def with_rollouts(self) -> tuple[str, ...]:
        """The paths without finished results, which have no rollouts."""
        from calipers.formats.read import is_result

        return tuple(path for path in self.paths if not is_result(path))


def run_set(paths: Sequence[str]) -> RunSet | None:
    """The runs that paths stand for; None where none of them is a folder of runs."""
    from calipers.formats.read import is_folder_of_runs, runs_inside

    if not any(map(is_folder_of_runs, paths)):
        return None
    every = [inner for path in paths for inner in (runs_inside(path) if is_folder_of_runs(path) else [path])]
    return RunSet(tuple(every), " ".join(paths))


def score_matrix(
    runs: RunSet, metrics: Sequence[str], columns: Mapping[str, str], settings: Mapping[str, Any], progress: Progress
) -> Matrix | None:
    """The matrix of a folder of runs; None where it has one model on one benchmark, which has a page of its own."""
    from calipers.analyses.matrix import matrix

    found = matrix(
        *runs.paths,
        metrics=metrics[0] if metrics else None,
        columns=columns,
        progress=progress if progress.wanted else None,
        **{name: settings[name] for name in OF_SCORE if name in settings},
    )
    alone = len(found.models) == len(found.benchmarks) == 1
    return None if alone and runs.with_rollouts == runs.paths else found


def compared_matrix(
    runs: RunSet,
    models: Sequence[str] | None,
    metrics: Sequence[str],
    columns: Mapping[str, str],
    settings: Mapping[str, Any],
    progress: Progress,
) -> tuple[Matrix | None, tuple[str, ...]]:
    """The matrix of the models that are compared; or, on one benchmark, None and the path of each of them."""
    from calipers.analyses.matrix import matrix

    found = matrix(
        *runs.paths,
        metrics=metrics[0] if metrics else None,
        models=models,
        columns=columns,
        progress=progress if progress.wanted else None,
        **{name: settings[name] for name in OF_COMPARE if name in settings},
    )
    if len(found.models) == 1:
        right = "expected two models or more (calipers score shows one)"
        raise InputError.at(runs.given, f"{found.models[0].name} is the only model", right)
    if len(found.benchmarks) == 1:
        sources = tuple(cell.source for cell in found.benchmarks[0].cells)
        if len(set(sources)) == len(sources) and set(sources) <= set(runs.with_rollouts):
            return None, sources
    ctx = click.get_current_context()
    for name in ONE_BENCHMARK:
        if ctx.get_parameter_source(name) not in (None, ParameterSource.DEFAULT):
            wrong = f"is for one benchmark, and {runs.given} has {len(found.benchmarks)}"
            raise InputError.at(f"--{name}", wrong, "remove it, or give the two runs of one benchmark")
    return found, ()


def show_matrix(
    matrix: Matrix,
    shape: str,
    *,
    where: str,
    metrics: Sequence[str] = (),
    target: Target | None = None,
    details: bool = False,
    every: bool = False,
    judged: bool = False,
) -> None:
    """Print a matrix and its notes; write it to ``target``. ``judged``: its verdicts are for CI, too.

    It has ``every`` row, or with ``details`` too, which is the only option of a comparison for that.
    """
    from calipers.analyses.matrix.document import document

    if target:
        target.write(safe_json(matrix.to_json()).encode())
    page = document(matrix, every=details or every, where=where, option="--details" if judged else "--all")
    if shape == "junit":
        from calipers.analyses.matrix.document import suites

        write_junit("calipers compare", suites(matrix))
    else:
        show(page, shape)
    if shape == "github" and judged:
        from calipers.analyses.matrix.document import annotated

        annotate(page, annotated(matrix))
    if len(metrics) > 1 and not details:
        tell_notes([f"the matrix shows {matrix.metric}; --details also shows {', '.join(metrics[1:])}"])
    tell_notes(matrix.notes)


def matrix_of(reports: Sequence[Report]) -> Matrix | None:
    """The matrix of several runs that were scored alike; None where they were not, or have no mean over tasks."""
    plan = reports[0].scoring
    alike = all(_settings(report) == _settings(reports[0]) and not report.job.from_library for report in reports)
    if not alike or not plan.asked:
        return None
    from calipers.analyses.matrix import matrix_plan

    try:
        return matrix_plan([str(report.folder) for report in reports], plan)
    except InputError as error:  # such as two runs of one benchmark: each has its own page
        tell_notes([f"no matrix: {error}"])
        return None


def _settings(report: Report) -> object:
    """How a run was scored, but for its metrics, of which a matrix shows one."""
    return replace(report.scoring, asked=(), by=())


def folder_of(reports: Sequence[Report]) -> str:
    """The folder that all runs are in, for the commands that a page names; "" where they are in several."""
    folders = {str(report.folder.parent) for report in reports}
    return folders.pop() if len(folders) == 1 else ""
