"""``calipers compare``: test whether run B is better than run A."""

from __future__ import annotations

from itertools import chain
from typing import Any

import click

from calipers.cli import options
from calipers.cli.matrix import RunSet, compared_matrix, run_set, show_matrix
from calipers.cli.output import (
    Progress,
    Target,
    annotate,
    plugins_loaded,
    print_notes,
    print_warnings,
    show,
    write_json,
    write_junit,
)
from calipers.errors import InputError

TESTS = ("default", "strict", "sign-flip", "mcnemar", "mid-p", "bootstrap")
FAILED = 1  # the exit code of --fail-on


@click.command(cls=options.GroupedCommand)
@click.argument("paths", metavar="A B...", nargs=-1, required=True, type=options.InputPath())
@options.option(
    options.ROLLOUTS,
    "--models",
    "A,B",
    "Models of a folder of runs to compare, in this order: the difference is B - A.",
)
@options.metrics("  [default: those of the dialect]")
@options.compared_options
@options.trust_reader
@options.confidence(0.95)
@options.seed(0)
@options.flag(
    options.ROLLOUTS,
    "--force",
    "Compare runs of different benchmarks too: other tasks under the same ids, or fewer than a tenth in common.",
)
@options.number(
    options.STATISTICS,
    "--margin",
    "MARGIN",
    "Also test whether the runs are equivalent: whether they differ by less than MARGIN.",
)
@options.choice(
    options.STATISTICS,
    "--test",
    TESTS,
    "Paired test of no difference; calipers explain NAME describes each.",
    default="default",
)
@options.flag(
    options.STATISTICS,
    "--anytime",
    "Use a test that stays valid when you add tasks and compare again; replaces --test.",
)
@options.choice(
    options.STATISTICS,
    "--adjust",
    ["sidak", "holm", "bh", "none"],
    "Adjustment for multiple tests. sidak tests the primary question first and adjusts the others.",
    default="sidak",
)
@options.option(
    options.STATISTICS,
    "--primary",
    "METRIC[KEY=VALUE]",
    "Primary question, tested first at the full level.  [default: the first metric on all tasks]",
)
@options.option(
    options.STATISTICS,
    "--baseline",
    "NAME",
    "Compare every run only with this run, given as a path, a model or an agent.",
)
@options.integer(options.OUTPUT, "--flips", "N", "Maximum number of regressions, and of fixes, to show.", default=10)
@options.pairs
@options.details
@options.choice(
    options.OUTPUT,
    "--fail-on",
    ["worse", "undecided"],
    "Exit with 1 if a result is worse; undecided also exits with 1 if a result is undecided.",
)
@options.out
@options.shape(*options.FORMATS, *options.PAPER_AND_CI)
@options.dialect
@options.plugins
def compare(
    paths: tuple[str, ...],
    metrics: tuple[str, ...],
    columns: tuple[str, ...],
    plugins: tuple[str, ...],
    out: str | None,
    shape: str,
    fail_on: str | None,
    pairs: bool,
    details: bool,
    models: str | None,
    **settings: Any,
) -> None:
    """Compare runs on the tasks they share: B - A, its interval, a paired test and a verdict. No model is called.

    Each path is anything that calipers score reads. If one file has several models, they are compared with
    each other. A folder of runs on several benchmarks is compared as a matrix: the mean over benchmarks is the
    primary test.
    """
    target = Target(out, paths) if out is not None else None
    names = options.roles(columns)
    failing = {"worse": {"worse"}, "undecided": {"worse", "undecided"}}.get(fail_on or "", set())
    runs = run_set(paths)
    if runs is None and models is not None:
        runs = RunSet(paths, " ".join(paths))
    if runs is not None:
        chosen = [name.strip() for name in models.split(",")] if models is not None else None
        with plugins_loaded(plugins), Progress() as progress:
            matrix, paths = compared_matrix(runs, chosen, metrics, names, settings, progress)
        if matrix is not None:
            show_matrix(matrix, shape, where=runs.given, metrics=metrics, target=target, details=details, judged=True)
            if failing & set(matrix.verdicts):
                raise click.exceptions.Exit(FAILED)
            return
    if settings.pop("mean") is not None:
        raise InputError.at("--mean", "is for a folder of runs on several benchmarks", "leave it out")
    with plugins_loaded(plugins), Progress() as progress:
        from calipers.analyses.compare.compare import compare as compare_runs

        comparison = compare_runs(
            *paths, metrics=metrics or None, columns=names, progress=progress.callback, **settings
        )
    write_json(target, comparison)
    from calipers.analyses.compare.document import annotated, document, suites

    given = click.get_current_context().get_parameter_source("flips") is not click.core.ParameterSource.DEFAULT
    losses = {"losses": settings["flips"]} if given else {}
    page = document(comparison, pairs=pairs, details=details, **losses)
    if shape == "junit":
        write_junit("calipers compare", suites(comparison))
    else:
        show(page, shape)
    if shape == "github":
        annotate(page, annotated(comparison))
    print_notes(comparison.notes)
    print_warnings(chain.from_iterable(pair.remarks for _, pair in comparison.pairs), shape)
    if failing & set(comparison.verdicts):
        raise click.exceptions.Exit(FAILED)
