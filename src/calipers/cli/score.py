"""``calipers score``: compute metrics from rollouts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from calipers.cli import options
from calipers.cli.matrix import FOR_PEOPLE, run_set, score_matrix, show_matrix
from calipers.cli.output import (
    Progress,
    Target,
    plugins_loaded,
    print_err,
    print_lines,
    print_result_notes,
    show_result,
    write_json,
    write_junit,
)
from calipers.errors import InputError
from calipers.names import SYSTEMS, engine_of, is_remote
from calipers.reports.untrusted_text import clean
from calipers.stores import local

if TYPE_CHECKING:
    from calipers.reports.result import Result

INCOMPLETE = 3
NOT_OF_PARTIAL = ("cache", "out", "shape", "details", "economics", "every")
"""Options that do not apply to writing a partial score, which prints no score."""


@click.command(cls=options.GroupedCommand)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path())
@options.metrics("  [default: those of the dialect; for native, mean_reward and pass_rate]")
@options.rollout_options
@options.interval
@options.confidence(0.95)
@options.seed(0)
@options.engine
@options.out
@options.shape(*options.FORMATS, *options.PAPER_AND_CI)
@options.page_options
@options.dialect
@options.option(
    options.OTHERS,
    "--export",
    "SYSTEM[=PATH]",
    "Also write the result for another system: nemo_gym or harbor (beside the rollouts, or to PATH), "
    "every_eval_ever, hf, inspect, mlflow, wandb or trackio.",
)
@options.flag(options.OTHERS, "--force", "Let --export replace files that exist.")
@options.option(
    options.OTHERS, "--hooks", "FILE:CLASS", "NeMo Gym resources server with metrics to add to the exported file."
)
@options.option(
    options.OTHERS,
    "--metric-script scripts",
    "FILE",
    "Script such as Harbor's metric.py to run in the sandbox; needs --trust; may be repeated.",
    multiple=True,
)
@options.file_option(
    options.STATISTICS,
    "--verifier-errors errors",
    "Output of calipers check --selftest --format json, to bound each metric if the tasks with wrong verdicts are "
    "wrong.",
)
@options.file_option(
    options.OUTPUT,
    "--partial",
    "Write a partial score to FILE instead of printing the score; calipers merge makes one score of several.",
)
@options.option(
    options.ROLLOUTS,
    "--cache",
    "FOLDER",
    "Keep a partial score of each input file in FOLDER, and read only files that are new or changed.",
    type=click.Path(),
)
@options.flag(
    options.ROLLOUTS,
    "--cache-check",
    "Hash every input file again, instead of trusting its size and modification time.",
)
@options.trust(False)
@options.plugins
def score(
    paths: tuple[str, ...],
    metrics: tuple[str, ...],
    columns: tuple[str, ...],
    plugins: tuple[str, ...],
    out: str | None,
    shape: str,
    export: str | None,
    hooks: str | None,
    scripts: tuple[str, ...],
    trust: bool,
    force: bool,
    details: bool,
    economics: bool,
    every: bool,
    engine: str | None,
    errors: str | None,
    partial: str | None,
    cache: str | None,
    cache_check: bool,
    **settings: Any,
) -> None:
    """Compute metrics from the rollouts in each PATH. No model is called.

    The format of each file is detected from its content. Several files are scored as one set of rollouts.
    A folder of runs with several models or benchmarks is shown as a matrix. The path - is standard input.
    """
    remote = engine_of("--engine", engine)
    if remote is None and any(map(is_remote, paths)):  # with an engine, each machine downloads its own files
        paths = local(paths)
    target = Target(out, [*paths, *([errors] if errors else [])]) if out is not None else None
    names = options.roles(columns)
    others = {"--export": export, "--metric-script": scripts, "--partial": partial, "--cache": cache}
    for option in [name for name, value in {**others, "--format junit": shape == "junit"}.items() if value]:
        if remote is not None:
            raise InputError.at("--engine", f"does not go with {option}", "expected --engine local")
    for option, is_given in (("--hooks", hooks is not None), ("--force", force)):
        if is_given and export is None:
            raise InputError.at(option, "nothing is exported", "add --export nemo_gym")
    if cache_check and cache is None:
        raise InputError.at("--cache-check", "there is no cache", "add --cache FOLDER")
    if partial is not None and errors is not None:
        raise InputError.at("--partial", "--verifier-errors needs every rollout as it is", "leave out one of them")
    for option, is_given in (("--partial", partial is not None), ("--cache", cache is not None)):
        if is_given and (export is not None or scripts or shape == "junit"):
            other = "--export" if export is not None else "--metric-script" if scripts else "--format junit"
            raise InputError.at(option, f"{other} needs every rollout as it is", f"leave out {option} or {other}")
    if partial is not None:
        options.refuse(NOT_OF_PARTIAL, "cannot be combined with --partial", "leave one of them out")
        write_partial(Target(partial, paths), metrics, names, plugins, settings)
        return
    folders = remote is None and cache is None and any(map(os.path.isdir, paths))
    if folders and (runs := run_set(paths)) is not None:
        with plugins_loaded(plugins), Progress() as progress:
            one_page = not (settings["by"] or export or errors or scripts or economics or shape == "junit")
            matrix = score_matrix(runs, metrics, names, settings, progress) if one_page else None
        paths = runs.with_rollouts
        if matrix is not None:
            pages = details and shape in FOR_PEOPLE and paths
            shown = () if pages else metrics
            show_matrix(matrix, shape, where=runs.given, metrics=shown, target=target, details=details, every=every)
            if not pages:
                return
            target = None
    exported = Exported(export, paths, hooks, force, names) if export is not None else None
    kept = exported.begin() if exported else None
    kept = [] if kept is None and shape == "junit" else kept
    with plugins_loaded(plugins), Progress() as progress:
        from calipers.reports.junit import task_suites

        if cache is not None:
            from calipers.partials import score_cached

            result = score_cached(
                paths,
                metrics or None,
                cache=cache,
                check=cache_check,
                columns=names,
                progress=progress.callback,
                **settings,
            )
        else:
            from calipers.pipeline import score as score_rollouts

            result = score_rollouts(
                exported.paths if exported else paths,
                metrics or None,
                columns=names,
                metric_scripts=scripts,
                trust=trust,
                progress=progress.callback,
                parts=kept,
                engine=engine,
                **settings,
            )
        if errors is not None:
            from calipers.analyses.selftest import with_error_bounds

            result = with_error_bounds(result, paths, errors, metrics or None, settings, names)
        tasks = task_suites(result, kept) if shape == "junit" and kept is not None else None
        result = exported.write(result) if exported else result
        if click.get_current_context().get_parameter_source("interval") is not ParameterSource.DEFAULT:
            result = replace(result, interval=settings["interval"])
        if result.dialect in SYSTEMS.entries and (target or shape == "json"):
            from calipers.systems import with_own_numbers

            result = with_own_numbers(result, paths, trust=trust)
    write_json(target, result)
    if tasks is not None:
        write_junit("calipers score", tasks)
    else:
        show_result(result, shape, paths, trust=trust, details=details, economics=economics, every=every)
    print_result_notes(replace(result, notes=[note for note in result.notes if note not in result.failed]), shape)
    for failure in result.failed:
        print_err(clean(failure, None))
    if result.failed:
        raise click.exceptions.Exit(INCOMPLETE)


def write_partial(
    target: Target,
    metrics: Sequence[str],
    names: Mapping[str, str],
    plugins: Sequence[str],
    settings: Mapping[str, Any],
) -> None:
    """Write the partial score of the target's inputs, and print what it contains."""
    with plugins_loaded(plugins), Progress() as progress:
        from calipers.partials import write_partial as write

        header = write(
            target.inputs,
            target.path,
            metrics or None,
            columns=names,
            progress=progress.callback,
            **settings,
        )
    from calipers.reports.figures import counted

    print_lines([f"wrote {target.path}: {counted(header.rollouts, 'rollout')} of {counted(header.tasks, 'task')}"])


class Exported:
    """The files of ``--export``, which are checked before the rollouts are read and written after scoring."""

    def __init__(
        self, request: str, paths: Sequence[str], hooks: str | None, force: bool, columns: Mapping[str, str]
    ) -> None:
        from calipers.systems import export_named

        self._export = export_named(request, paths, hooks, columns, force=force)
        self.paths, self.begin = self._export.paths, self._export.begin
        self._targets = [Target(path, paths) for path in self._export.files]  # the same checks as those of --out
        for target in self._targets:
            if os.path.isfile(target.path) and not force:
                raise InputError.at(target.path, "already exists", "--force replaces it")

    def write(self, result: Result) -> Result:
        """Write every file; return the result with notes about them."""
        contents, notes = self._export.contents(result)
        for target, chunks in zip(self._targets, contents, strict=True):
            target.write_all(chunks)
        return replace(result, notes=[*result.notes, *notes])
