"""``calipers audit``: look for signs that a run is not what it seems."""

from __future__ import annotations

from typing import Any

import click

from calipers.cli import options
from calipers.cli.output import Target, show
from calipers.reports.page import encoded
from calipers.reports.untrusted_text import safe_json


@click.command(cls=options.Command)
@click.argument("run", metavar="RUN", type=click.Path())
@click.argument("others", metavar="[OTHER]...", nargs=-1, type=click.Path())
@options.flag(options.ROLLOUTS, "--rejudge", "Also judge the stored completions again with the run's own verifier.")
@options.reward()
@options.columns_only
@options.seed(0)
@options.out
@options.shape()
def audit(
    run: str, others: tuple[str, ...], columns: tuple[str, ...], out: str | None, shape: str, **settings: Any
) -> None:
    """Look for signs that the rollouts of RUN are not what they seem. No model is called.

    A finding is impossible in an honest run, or a test at 1 %. A list proves nothing. OTHER runs of the same tasks
    show tasks whose key every strong run contradicts. Exit 0 without a finding, 1 with one.
    """
    target = Target(out, (run, *others)) if out is not None else None
    names = options.roles(columns)
    from calipers.analyses.audit import audit, document

    done = audit(run, *others, columns=names, **settings)
    if target:
        target.write(safe_json(encoded(done.to_dict())).encode())
    show(document(done), shape)
    raise click.exceptions.Exit(done.exit_code)
