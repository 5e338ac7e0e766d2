"""``calipers verify``: check a certificate."""

from __future__ import annotations

from typing import Any

import click

from calipers.cli import options
from calipers.cli.output import show


@click.command(cls=options.Command)
@click.argument("certificate", metavar="CERTIFICATE", type=click.Path())
@click.argument("rollouts", metavar="[ROLLOUTS]...", nargs=-1, type=click.Path())
@options.file_option(options.ROLLOUTS, "--key", "Public key of the signer (Ed25519, PEM).")
@options.file_option(
    options.ROLLOUTS, "--tree", "Tree file that calipers certify wrote.  [default: result.tree beside the certificate]"
)
@options.certified_plan
@options.flag(
    options.ROLLOUTS,
    "--rerun-verifier",
    "Judge the stored completions again with the run's own verifier, and compare the rewards.",
)
@options.file_option(
    options.ROLLOUTS, "--time-stamp stamp", "Reply of a time-stamp authority (RFC 3161) to check; needs --authority."
)
@options.file_option(options.ROLLOUTS, "--authority", "Certificate of the time-stamp authority that you trust (PEM).")
@options.columns_only
@options.shape("table", "json", "md")
def verify(certificate: str, rollouts: tuple[str, ...], columns: tuple[str, ...], shape: str, **settings: Any) -> None:
    """Check a CERTIFICATE: exit 0 verified, 1 refused, 3 not everything could be checked.

    ROLLOUTS are the rollouts that it is of, in any order, shards and format, or proofs that calipers certify --show
    wrote. Without rollouts the numbers cannot be recomputed, and the page says so.
    """
    from calipers.analyses.certify.verify import document, verify

    done = verify(certificate, rollouts, columns=options.roles(columns) or None, **settings)
    show(document(done), shape)
    raise click.exceptions.Exit(done.exit_code)
