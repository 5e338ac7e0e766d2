"""``calipers explain``: explain a word, in Calipers or in a dialect."""

from __future__ import annotations

import click

from calipers.cli.options import Command
from calipers.cli.output import write
from calipers.glossary import explain as explained


@click.command(cls=Command)
@click.argument("name", metavar="WORD")
@click.option("--dialect", metavar="NAME", default="native", help="Explain the word as this dialect defines it.")
def explain(name: str, dialect: str) -> None:
    """Explain WORD: a metric (pass@3), an interval (wilson), a test (mcnemar), an adjustment (holm) or another
    statistical method (ppi++), a verifier (exact_match), a filter (last_number), a kind of model (openai), a format
    (parquet), an outcome (refused), a dialect (evsys), or any other word of a page (ledger, macro, undefined).
    """
    write(explained(name, dialect=dialect))
