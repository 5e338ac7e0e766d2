"""``calipers score``: rollouts to numbers."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from calipers.cli.group import verbose
from calipers.cli.lm_eval import are_theirs, show_files
from calipers.cli.output import Target, document, notes, show
from calipers.cli.progress import Progress
from calipers.errors import InputError
from calipers.names import DIALECTS
from calipers.reports.safe import clean
from calipers.stats.cards import asked_names

if TYPE_CHECKING:
    from calipers.cli.export import GymExport, HarborExport
    from calipers.cli.profile import ProfileExport

FORMATS = ("table", "json", "csv", "md")
INCOMPLETE = 3


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path())
@click.option(
    "--metric",
    "metrics",
    metavar="NAME",
    multiple=True,
    help="A metric, such as pass@3 or 'mean(column=f1)'; may be repeated. "
    "Without it: the dialect's own, for native mean_reward and pass_rate.",
)
@click.option(
    "--dialect", metavar="NAME", help=f"Whose names and rules hold: {', '.join(DIALECTS.entries)}.  [default: native]"
)
@click.option("--by", metavar="KEY", multiple=True, help="Break the numbers down by a metadata path; may be repeated.")
@click.option("--cluster", metavar="KEY", help="Tasks that share this value are one unit of the interval.")
@click.option("--reward", metavar="KEY", help="Which of several rewards counts.")
@click.option(
    "--columns",
    metavar="ROLE=KEY,...",
    multiple=True,
    help="What the file calls the keys of a record: task=id,reward=score; may be repeated.",
)
@click.option(
    "--missing",
    type=click.Choice(["gap", "zero", "fail"]),
    help="What becomes of rollouts without a number: left out, counted 0, or exit 3. Without it: the dialect's rule.",
)
@click.option(
    "--interval",
    metavar="NAME",
    help=f"How sure a mean is: {', '.join(asked_names())}; calipers explain NAME says more.  [default: default]",
)
@click.option("--confidence", metavar="SHARE", type=float, default=0.95, show_default=True, help="Of the intervals.")
@click.option("--seed", metavar="N", type=int, default=0, show_default=True, help="Of resampling.")
@click.option("--out", metavar="PATH", type=click.Path(), help="Write the result as JSON to this file, too.")
@click.option(
    "--format", "shape", type=click.Choice(FORMATS), default="table", show_default=True, help="Of standard output."
)
@click.option(
    "--plugin", "plugins", metavar="FILE|MODULE", multiple=True, help="Python code that brings metrics; it is run."
)
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
@click.option("--trust", is_flag=True, help="Run metric scripts: those named, and those of a Harbor job's datasets.")
@click.option("--force", is_flag=True, help="Let --export replace a file that is there already.")
@verbose
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
    names = roles(columns)
    writer = exporter(export, paths, hooks, force)
    with redirect_stdout(sys.stderr), Progress() as progress:  # what a plugin prints is no data of ours
        for plugin in plugins:
            from calipers.compat import load_plugin

            load_plugin(plugin)
        from calipers.jobs.metric_script_asked import asked_scripts
        from calipers.pipeline import score_plan
        from calipers.plan import make_plan

        told = progress if progress.wanted else None
        settings["afterwards"] = run = asked_scripts(paths, scripts, trust=trust, reward=settings["reward"])
        if writer:
            result = writer.score(metrics or None, names, told, settings)
        else:
            result = score_plan(paths, make_plan(metrics or None, source=paths, **settings), names, told)
    if target:
        target.write(document(result).encode())
    if shape == "md" and result.dialect == "lm_eval" and are_theirs(paths, [one.format for one in result.inputs]):
        show_files(paths)
    else:
        show(result, shape)
    failed = run.failed if run else []
    notes(replace(result, notes=[note for note in result.notes if note not in failed]))
    for failure in failed:
        click.echo(clean(failure, None), err=True)
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


def roles(texts: tuple[str, ...]) -> dict[str, str]:
    """What ``--columns`` says: roles, and the keys that play them.

    >>> roles(("task=id,reward=score", "answer=final"))
    {'task': 'id', 'reward': 'score', 'answer': 'final'}
    """
    found: dict[str, str] = {}
    for pair in (pair for text in texts for pair in text.split(",")):
        role, equals, key = (side.strip() for side in pair.partition("="))
        if not (role and equals and key):
            raise InputError.at("--columns", f"{pair!r} cannot be read", "expected ROLE=KEY, such as task=id")
        if role in found:
            raise InputError.at("--columns", f"{role} is given twice", "expected it once")
        found[role] = key
    return found
