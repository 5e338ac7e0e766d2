"""``calipers convert``: convert rollouts of any format to JSON Lines or Parquet."""

from __future__ import annotations

from typing import Any

import click

from calipers.cli import options
from calipers.cli.output import Progress, print_lines, print_notes


@click.command(cls=options.Command)
@click.argument("source", metavar="IN", type=options.InputPath())
@click.argument("target", metavar="OUT", type=click.Path())
@options.columns
@options.flag(options.OUTPUT, "--no-texts", "Leave out prompts and completions; answers stay.")
@options.flag(options.OUTPUT, "--force", "Replace OUT if it exists.")
def convert(source: str, target: str, columns: tuple[str, ...], no_texts: bool, force: bool, **settings: Any) -> None:
    """Convert rollouts of any format to JSON Lines or Parquet.

    IN is anything that calipers score reads. The ending of OUT says what is written: .jsonl, .jsonl.gz, .jsonl.zst
    or .parquet. A score of OUT has the same numbers, outcomes and digest as a score of IN.
    """
    names = options.roles(columns)
    with Progress() as progress:
        from calipers.formats.convert import convert as converted

        done = converted(
            source,
            target,
            columns=names,
            texts=not no_texts,
            force=force,
            **settings,
            progress=progress.callback,
        )
    count = "1 rollout" if done.rollouts == 1 else f"{done.rollouts:,} rollouts"
    print_lines([f"{done.path}: {count}, converted from {done.format}"])
    print_notes(done.notes)
