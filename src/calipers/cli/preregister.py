"""``calipers preregister``: certify a plan before its runs."""

from __future__ import annotations

import click

from calipers.cli import options
from calipers.cli.certify import new_files
from calipers.cli.output import print_lines, print_note
from calipers.reports.figures import counted


@click.command(cls=options.Command)
@click.argument("suite", metavar="SUITE", type=click.Path())
@options.file_option(options.OUTPUT, "-o --out", "File of the certified plan.", default="plan.cert.json")
@options.signing_key
@options.flag(options.OUTPUT, "--force", "Replace the file if it exists.")
def preregister(suite: str, out: str, key: str | None, force: bool) -> None:
    """Certify the plan of a SUITE before its runs: tasks, prompts, sampling, samples, metrics and thresholds.

    SUITE is a file for calipers run, such as suite.yaml. No model is called. After the runs, calipers certify --plan
    says what differs.
    """
    [target] = new_files((out,), (suite, key), force).values()
    from calipers.analyses.certify.preregister import preregister

    plan = preregister(suite, key=key)
    target.write(plan.envelope.encoded())
    runs = plan.predicate["runs"]
    rollouts = sum(run["tasks"] * run["samples"] for run in runs)
    print_lines([f"{out}: {counted(len(runs), 'run')}, {counted(rollouts, 'rollout')}; no model was called"])
    if key is None:
        print_note("nobody has signed the plan; --key FILE signs it")
