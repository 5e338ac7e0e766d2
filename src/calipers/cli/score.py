"""``calipers score``: rollouts to numbers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from calipers.cli import options
from calipers.cli.output import Progress, Target, notes, plugins_loaded, result_json, show_result, tell
from calipers.errors import InputError
from calipers.names import SYSTEMS
from calipers.reports.untrusted_text import clean
from calipers.stats.cards import asked_names

if TYPE_CHECKING:
    from calipers.reports.result import Result

INCOMPLETE = 3


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path())
@options.metrics(
    "A metric, such as pass@3 or 'mean(column=f1)'; may be repeated. "
    "Without it: the dialect's own, for native mean_reward and pass_rate."
)
@options.dialect
@click.option(
    "--by",
    metavar="KEY",
    multiple=True,
    help="Break the numbers down by a metadata path, a key of the rows, task, sample or outcome; may be repeated.",
)
@options.cluster("interval")
@options.reward
@options.reward_range
@options.columns("the file calls")
@options.missing
@click.option(
    "--interval",
    metavar="NAME",
    help=f"How sure a mean is: {', '.join(asked_names())}; calipers explain NAME says more.  [default: default]",
)
@options.confidence("intervals")
@options.seed
@options.out("the result")
@options.shape()
@options.plugins
@click.option(
    "--export",
    metavar="SYSTEM[=PATH]",
    help="Write another system's own file, too: nemo_gym or harbor, beside the rollouts or at PATH.",
)
@click.option("--hooks", metavar="FILE:CLASS", help="A NeMo Gym resources server whose metrics go into its file.")
@click.option(
    "--metric-script",
    "scripts",
    metavar="FILE",
    multiple=True,
    help="A script such as Harbor's metric.py, run in the sandbox; needs --trust; may be repeated.",
)
@click.option(
    "--trust",
    is_flag=True,
    help="Run code that came with the data: metric scripts, and !function of lm-eval tasks.",
)
@click.option("--force", is_flag=True, help="Let --export replace a file that is there already.")
@options.verbose
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
    **settings: Any,
) -> None:
    """Turn the rollouts in PATH... into numbers. No model is called.

    Each file's format is found from its content; several files are one set of rollouts; - is standard input.
    """
    target = Target(out, paths) if out is not None else None
    names = options.roles(columns)
    exported = Exported(export, paths, hooks, force) if export is not None else None
    for option, is_given in (("--hooks", hooks is not None), ("--force", force)):
        if is_given and exported is None:
            raise InputError.at(option, "nothing is exported", "expected --export nemo_gym beside it")
    with plugins_loaded(plugins), Progress() as progress:
        from calipers.pipeline import score as score_rollouts

        result = score_rollouts(
            exported.paths if exported else paths,
            metrics or None,
            columns=names,
            metric_scripts=scripts,
            trust=trust,
            progress=progress if progress.wanted else None,
            parts=exported.begin() if exported else None,
            **settings,
        )
        result = exported.write(result) if exported else result
        if click.get_current_context().get_parameter_source("interval") is not ParameterSource.DEFAULT:
            result = replace(result, interval=settings["interval"])
        if result.dialect in SYSTEMS.entries and (target or shape == "json"):
            from calipers.systems.system import with_own_numbers

            result = with_own_numbers(result, paths, trust=trust)
    if target:
        target.write(result_json(result).encode())
    show_result(result, shape, paths, trust=trust)
    notes(replace(result, notes=[note for note in result.notes if note not in result.failed]), shape)
    for failure in result.failed:
        tell(clean(failure, None))
    if result.failed:
        raise click.exceptions.Exit(INCOMPLETE)


class Exported:
    """The files of ``--export``: checked before anything is read, written when all is scored."""

    def __init__(self, request: str, paths: Sequence[str], hooks: str | None, force: bool) -> None:
        from calipers.systems.system import export_named

        self._export = export_named(request, paths, hooks)
        self.paths, self.begin = self._export.paths, self._export.begin
        self._targets = [Target(path, paths) for path in self._export.files]  # whatever hinders --out hinders these
        for target in self._targets:
            if os.path.isfile(target.path) and not force:
                raise InputError.at(target.path, "is there already", "--force replaces it")

    def write(self, result: Result) -> Result:
        """Write every file; the result, with what there is to say of them among its notes."""
        contents, notes = self._export.contents(result)
        for target, chunks in zip(self._targets, contents, strict=True):
            target.write_all(chunks)
        return replace(result, notes=[*result.notes, *notes])
