"""``calipers rescore``: verify the stored completions of a run again."""

from __future__ import annotations

from typing import Any

import click

from calipers.cli import options
from calipers.cli.options import params_of
from calipers.cli.output import plugins_loaded, print_notes, rendered, write

VERIFIER = "Verifier"  # a group of options


@click.command(cls=options.GroupedCommand)
@click.argument("run", metavar="RUN", type=click.Path())
@options.option(
    "--verifier", group=VERIFIER, metavar="NAME", help="Verifier to use.  [default: the verifier of each task]"
)
@options.option(
    "--param",
    "params",
    group=VERIFIER,
    metavar="KEY=VALUE",
    multiple=True,
    help="Parameter of the verifier; may be repeated.",
)
@options.option(
    "--filter",
    "filters",
    group=VERIFIER,
    metavar="NAME[=SETTING]",
    multiple=True,
    help="Filter that extracts the answer before verification, such as last_number or 'regex=#### (.+)'. "
    "Repeat it to apply several in order.",
)
@options.option(
    "--benchmark",
    group=VERIFIER,
    metavar="DIR",
    help="Benchmark with the tasks and their targets.  [default: the one that the run recorded]",
)
@options.option(
    "--scores",
    group=VERIFIER,
    metavar="FILE",
    help="Use rewards from this file, by task and sample, instead of a verifier.",
)
@options.columns
@options.verifications
@options.engine
@options.option(
    "--name",
    group=options.ROLLOUTS,
    metavar="NAME",
    help="Name of the new reward.  [default: made from the filters and the verifier, or from FILE]",
)
@options.option(
    "--reward", group=options.ROLLOUTS, metavar="KEY", help="Old reward to compare with, if rollouts have several."
)
@options.metrics()
@options.by
@options.option(
    "--out",
    group=options.OUTPUT,
    metavar="FILE",
    type=click.Path(),
    help="File to write.  [default: rescored-NAME.jsonl beside the rollouts]",
)
@options.shape("table", "json")
@options.plugins
@options.verbose
def rescore(
    run: str, params: tuple[str, ...], columns: tuple[str, ...], shape: str, plugins: tuple[str, ...], **settings: Any
) -> None:
    """Verify the stored completions of RUN again and show which rollouts flipped. No new completions are requested.

    RUN is a run folder, or a JSON Lines file with a rollout per line. The log is not changed: the new reward is
    written, beside the old ones, to a new file.
    """
    with plugins_loaded(plugins):
        from calipers.analyses.rescore import rescore as verify_again

        rescored = verify_again(run, params=params_of(params), columns=options.roles(columns), **settings)
    from calipers.analyses.rescore import document

    write(rendered(document(rescored), shape))
    print_notes(rescored.notes)
