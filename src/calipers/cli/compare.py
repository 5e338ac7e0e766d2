"""``calipers compare``: whether B is better than A, and how sure that is."""

from __future__ import annotations

from typing import Any

import click

from calipers.cli import options
from calipers.cli.output import Progress, Target, plugins_loaded, show, tell_notes
from calipers.reports.untrusted_text import safe_json

TESTS = ("default", "strict", "sign-flip", "mcnemar", "mid-p", "bootstrap")
NO = 1


@click.command()
@click.argument("paths", metavar="A B...", nargs=-1, required=True, type=click.Path())
@options.metrics(
    "A metric, such as pass@3, cost_per_task or lm-evaluation-harness' bleu; may be repeated. "
    "Without it: the dialect's own."
)
@options.dialect
@click.option("--by", metavar="KEY", multiple=True, help="The difference in each slice, too; may be repeated.")
@options.cluster("test")
@options.reward
@options.reward_range
@options.columns("the files call")
@options.missing
@options.confidence("intervals")
@options.seed
@click.option("--margin", metavar="M", type=float, help="A difference up to M does not matter: shown to be so, or not.")
@click.option("--test", type=click.Choice(TESTS), default="default", show_default=True, help="Of no difference.")
@click.option(
    "--anytime",
    is_flag=True,
    help="A verdict that may be asked for after every batch of tasks added to the runs; in place of --test.",
)
@click.option(
    "--adjust",
    type=click.Choice(["sidak", "holm", "bh", "none"]),
    default="sidak",
    show_default=True,
    help="How verdicts allow for several tests. sidak: the primary question first, the others below it.",
)
@click.option(
    "--primary",
    metavar="METRIC[KEY=VALUE]",
    help="The question asked first, at the full level [default: the first metric on all tasks].",
)
@click.option("--baseline", metavar="NAME", help="Compare every run with this one only: a path, a model or an agent.")
@click.option("--flips", metavar="N", type=int, default=10, show_default=True, help="Tasks of a kind that are shown.")
@click.option(
    "--fail-on",
    type=click.Choice(["worse", "undecided"]),
    help="Exit 1 when anything is worse; with undecided, also when it is not clear.",
)
@options.out("the comparison")
@options.shape()
@options.plugins
@options.verbose
def compare(
    paths: tuple[str, ...],
    metrics: tuple[str, ...],
    columns: tuple[str, ...],
    plugins: tuple[str, ...],
    out: str | None,
    shape: str,
    fail_on: str | None,
    **settings: Any,
) -> None:
    """Compare runs on the tasks they share: B less A, how sure, and in words. No model is called.

    Each path is anything that calipers score reads. One file with several models is compared within itself.
    """
    target = Target(out, paths) if out is not None else None
    names = options.roles(columns)
    with plugins_loaded(plugins), Progress() as progress:
        from calipers.analyses.compare.compare import compare as compare_runs

        shown = progress if progress.wanted else None
        comparison = compare_runs(*paths, metric=metrics or None, columns=names, progress=shown, **settings)
    if target:
        target.write(safe_json(comparison.to_json()).encode())
    from calipers.analyses.compare.document import document

    show(document(comparison), shape)
    tell_notes(comparison.notes)
    words = {"worse": {"worse"}, "undecided": {"worse", "undecided"}}.get(fail_on or "", set())
    if words & set(comparison.verdicts):
        raise click.exceptions.Exit(NO)
