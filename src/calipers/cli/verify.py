"""``calipers verify``: check a certificate."""

from __future__ import annotations

import click

from calipers.cli import options
from calipers.cli.output import show


@click.command(cls=options.Command)
@click.argument("certificate", metavar="CERTIFICATE", type=click.Path())
@click.argument("rollouts", metavar="[ROLLOUTS]...", nargs=-1, type=click.Path())
@options.file_option("--key", group=options.ROLLOUTS, help="Public key of the signer (Ed25519, PEM).")
@options.file_option(
    "--tree",
    group=options.ROLLOUTS,
    help="Tree file that calipers certify wrote.  [default: result.tree beside the certificate]",
)
@options.certified_plan
@options.option(
    "--rerun-verifier",
    group=options.ROLLOUTS,
    is_flag=True,
    help="Judge the stored completions again with the run's own verifier, and compare the rewards.",
)
@options.file_option(
    "--time-stamp",
    "stamp",
    group=options.ROLLOUTS,
    help="Reply of a time-stamp authority (RFC 3161) to check; needs --authority.",
)
@options.file_option(
    "--authority", group=options.ROLLOUTS, help="Certificate of the time-stamp authority that you trust (PEM)."
)
@options.columns_only
@options.shape("table", "json", "md")
@options.verbose
def verify(
    certificate: str,
    rollouts: tuple[str, ...],
    key: str | None,
    tree: str | None,
    plan: str | None,
    rerun_verifier: bool,
    stamp: str | None,
    authority: str | None,
    columns: tuple[str, ...],
    shape: str,
) -> None:
    """Check a CERTIFICATE: exit 0 verified, 1 refused, 3 not everything could be checked.

    ROLLOUTS are the rollouts that it is of, in any order, shards and format, or proofs that calipers certify --show
    wrote. Without rollouts the numbers cannot be recomputed, and the page says so.
    """
    from calipers.analyses.certify.verify import document, verify

    names = options.roles(columns) or None
    done = verify(
        certificate,
        rollouts,
        key=key,
        tree=tree,
        columns=names,
        plan=plan,
        rerun_verifier=rerun_verifier,
        stamp=stamp,
        authority=authority,
    )
    show(document(done), shape)
    raise click.exceptions.Exit(done.exit_code)
