"""The matrices that commands show: of a folder of runs (score and compare), and of several runs (run)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from calipers.cli.options import refuse
from calipers.cli.output import Progress, Target, annotate, print_note, print_notes, show, write_json, write_junit
from calipers.errors import InputError

if TYPE_CHECKING:
    from calipers.analyses.matrix.document import Matrix
    from calipers.running.perform import Report

FOR_PEOPLE = ("table", "md")
OF_MATRIX = (
    *("cluster", "dialect", "missing", "reward", "truth"),
    *("range", "mean", "exclude", "interval", "confidence", "seed", "margin", "threshold", "trust_reader"),
)
"""Options of score and compare that apply to a matrix."""
ONE_BENCHMARK = ("by", "force", "test", "anytime", "adjust", "primary", "baseline", "flips", "pairs")
"""Options of a comparison that do not apply to a matrix of several benchmarks."""


@dataclass(frozen=True, slots=True)
class RunSet:
    """The paths of a command, with each folder of runs replaced by the runs inside it."""

    paths: tuple[str, ...]
    given: str  # the paths as the user wrote them

    @property
    def with_rollouts(self) -> tuple[str, ...]:
        """The paths without finished results, which have no rollouts."""
        from calipers.formats.read import is_result

        return tuple(path for path in self.paths if not is_result(path))


def run_set(paths: Sequence[str]) -> RunSet | None:
    """The runs of these paths; None if no path is a folder of runs."""
    from calipers.formats.read import is_folder_of_runs, runs_inside

    if not any(map(is_folder_of_runs, paths)):
        return None
    runs = [run for path in paths for run in (runs_inside(path) if is_folder_of_runs(path) else [path])]
    return RunSet(tuple(runs), " ".join(paths))


def score_matrix(
    runs: RunSet, metrics: Sequence[str], columns: Mapping[str, str], settings: Mapping[str, Any], progress: Progress
) -> Matrix | None:
    """The matrix of a folder of runs; None for rollouts of one model on one benchmark, which have their own page."""
    scored = _matrix(runs, metrics, columns, settings, progress)
    one_cell = len(scored.models) == len(scored.benchmarks) == 1
    return None if one_cell and runs.with_rollouts == runs.paths else scored


def compared_matrix(
    runs: RunSet,
    models: Sequence[str] | None,
    metrics: Sequence[str],
    columns: Mapping[str, str],
    settings: Mapping[str, Any],
    progress: Progress,
) -> tuple[Matrix | None, tuple[str, ...]]:
    """The matrix of the compared models; or, for one benchmark, None and the path of each model's run."""
    compared = _matrix(runs, metrics, columns, settings, progress, models)
    if len(compared.models) == 1:
        expected = "expected two models or more (calipers score shows one)"
        raise InputError.at(runs.given, f"{compared.models[0].name} is the only model", expected)
    if len(compared.benchmarks) == 1:
        sources = tuple(cell.source for cell in compared.benchmarks[0].cells)
        if len(set(sources)) == len(sources) and set(sources) <= set(runs.with_rollouts):
            return None, sources
    count = len(compared.benchmarks)
    several = f"is for one benchmark, and {runs.given} has {count}"
    problem = several if count > 1 else "needs a file of rollouts for each model"
    refuse(ONE_BENCHMARK, problem, "remove it, or give the two runs of one benchmark")
    return compared, ()


def _matrix(
    runs: RunSet,
    metrics: Sequence[str],
    columns: Mapping[str, str],
    settings: Mapping[str, Any],
    progress: Progress,
    models: Sequence[str] | None = None,
) -> Matrix:
    from calipers.analyses.matrix import matrix

    return matrix(
        *runs.paths,
        metrics=metrics[0] if metrics else None,
        models=models,
        columns=columns,
        progress=progress.callback,
        **{name: settings[name] for name in OF_MATRIX if name in settings},
    )


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
    """Print a matrix and its notes, and write it to ``target``. ``judged``: it is a comparison with verdicts for CI.

    ``every`` or ``details`` shows all rows; ``compare`` has only ``--details``. A note names the requested ``metrics``
    but the first, which the matrix shows.
    """
    from calipers.analyses.matrix.document import document

    write_json(target, matrix)
    page = document(matrix, every=details or every, where=where, option="--details" if judged else "--all")
    if shape == "junit":
        from calipers.analyses.matrix.document import suites

        write_junit("calipers compare", suites(matrix))
    else:
        show(page, shape)
    if shape == "github" and judged:
        from calipers.analyses.matrix.document import annotated

        annotate(page, annotated(matrix))
    if len(metrics) > 1:
        others = ", and not" if judged or shape not in FOR_PEOPLE else "; --details also shows"
        print_note(f"the matrix shows {matrix.metric}{others} {', '.join(metrics[1:])}")
    print_notes(matrix.notes)


def matrix_of(reports: Sequence[Report]) -> Matrix | None:
    """The matrix of several runs; None if they were scored with different settings, or if no matrix is possible."""
    plan = reports[0].scoring
    same = all(_settings(report) == _settings(reports[0]) and not report.job.from_library for report in reports)
    if not same or not plan.requests:
        return None
    from calipers.analyses.matrix import matrix_plan

    try:
        return matrix_plan([str(report.folder) for report in reports], plan)
    except InputError as error:  # such as two runs of a model on one benchmark; each run gets its own page
        print_note(f"no matrix: {error}")
        return None


def _settings(report: Report) -> object:
    """The settings with which a run was scored, without metrics, because a matrix shows only one."""
    return replace(report.scoring, requests=(), by=())


def folder_of(reports: Sequence[Report]) -> str:
    """The folder that contains all runs; "" if they are in several folders."""
    folders = {str(report.folder.parent) for report in reports}
    return folders.pop() if len(folders) == 1 else ""
