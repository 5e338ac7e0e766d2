"""``calipers score``: rollouts to numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from calipers.cli import options
from calipers.cli.lm_eval import are_theirs, show_files, with_theirs
from calipers.cli.output import Progress, Target, notes, plugins_loaded, result_json, show_result, tell
from calipers.errors import InputError
from calipers.reports.untrusted_text import clean
from calipers.stats.cards import asked_names

if TYPE_CHECKING:
    from calipers.cli.export import GymExport, HarborExport
    from calipers.cli.profile import ProfileExport

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
    writer = exporter(export, paths, hooks, force)
    with plugins_loaded(plugins), Progress() as progress:
        from calipers.pipeline import score_plan, scripts_of
        from calipers.request import make_plan

        told = progress if progress.wanted else None
        settings["afterwards"] = run = scripts_of(paths, scripts, trust=trust, reward=settings["reward"])
        if writer:
            result = writer.score(metrics or None, names, told, settings)
        else:
            result = score_plan(paths, make_plan(metrics or None, source=paths, **settings), names, told)
        if target or shape == "json":
            result = with_theirs(result, paths, trust=trust)
    if target:
        target.write(result_json(result).encode())
    if shape == "md" and result.dialect == "lm_eval" and are_theirs(paths, [one.format for one in result.inputs]):
        show_files(paths, trust=trust)
    else:
        show_result(result, shape)
    failed: list[str] = getattr(run, "failed", [])  # of metric scripts
    notes(replace(result, notes=[note for note in result.notes if note not in failed]), shape)
    for failure in failed:
        tell(clean(failure, None))
    if failed:
        raise click.exceptions.Exit(INCOMPLETE)


def exporter(
    export: str | None, paths: tuple[str, ...], hooks: str | None, force: bool
) -> GymExport | HarborExport | ProfileExport | None:
    """What ``--export`` asks for, checked; None where nothing is to be exported."""
    if export is None:
        for option, given in (("--hooks", hooks is not None), ("--force", force)):
            if given:
                raise InputError.at(option, "nothing is exported", "expected --export nemo_gym beside it")
        return None
    from calipers.cli.export import named
    from calipers.cli.profile import SYSTEM, ProfileExport

    if export == SYSTEM:
        return ProfileExport(paths, force=force)
    return named(export, paths, force=force, hooks=hooks)
