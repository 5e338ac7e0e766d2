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
@options.option(VERIFIER, "--verifier", "NAME", "Verifier to use.  [default: the verifier of each task]")
@options.option(VERIFIER, "--param params", "KEY=VALUE", "Parameter of the verifier; may be repeated.", multiple=True)
@options.option(
    VERIFIER,
    "--filter filters",
    "NAME[=SETTING]",
    "Filter that extracts the answer before verification, such as last_number or 'regex=#### (.+)'. "
    "Repeat it to apply several in order.",
    multiple=True,
)
@options.reasoning(VERIFIER)
@options.option(
    VERIFIER,
    "--benchmark",
    "DIR",
    "Benchmark with the tasks and their targets.  [default: the one that the run recorded]",
)
@options.option(VERIFIER, "--scores", "FILE", "Use rewards from this file, by task and sample, instead of a verifier.")
@options.columns
@options.verifications
@options.engine
@options.option(
    options.ROLLOUTS,
    "--name",
    "NAME",
    "Name of the new reward.  [default: made from the filters and the verifier, or from FILE]",
)
@options.option(options.ROLLOUTS, "--reward", "KEY", "Old reward to compare with, if rollouts have several.")
@options.metrics()
@options.by
@options.file_option(options.OUTPUT, "--out", "File to write.  [default: rescored-NAME.jsonl beside the rollouts]")
@options.shape("table", "json")
@options.plugins
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
