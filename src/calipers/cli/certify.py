"""``calipers certify``: certify the numbers of a run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import click

from calipers.cli import options
from calipers.cli.output import Target, print_lines, print_notes, targets
from calipers.errors import InputError
from calipers.reports.untrusted_text import clean

TREE = "result.tree"
OF_SHOW = {"paths", "shown", "tree", "out", "columns", "force"}
"""The parameters that apply to --show."""


@click.command(cls=options.GroupedCommand)
@click.argument("paths", metavar="RUN|RESULT...", nargs=-1, type=click.Path())
@options.file_option(
    options.OUTPUT,
    "-o --out",
    "File of the certificate; result.tree is written beside it.  [default: result.cert.json]",
)
@options.signing_key
@options.file_option(
    options.OUTPUT,
    "--new-key",
    "Only write a new private key to FILE, readable by you alone, and the public key to FILE.pub.",
)
@options.certified_plan
@options.option(
    options.OUTPUT,
    "--show shown",
    "TASK[#SAMPLE]",
    "Only write a proof of these rollouts, for people who do not get the others; needs --tree; may be repeated.",
    multiple=True,
)
@options.file_option(options.OUTPUT, "--tree", "Tree file that calipers certify wrote.")
@options.file_option(
    options.OUTPUT,
    "--time-stamp-request request",
    "Also write a request for a time stamp of the certificate (RFC 3161), to be sent to an authority.",
)
@options.flag(options.OUTPUT, "--force", "Replace the files if they exist.")
@options.metrics("  [default: those of the dialect; for native, mean_reward and pass_rate]")
@options.certified_options
@options.interval
@options.confidence(0.95)
@options.seed(0)
@options.dialect
def certify(
    paths: tuple[str, ...],
    out: str | None,
    key: str | None,
    new_key: str | None,
    plan: str | None,
    shown: tuple[str, ...],
    tree: str | None,
    request: str | None,
    force: bool,
    columns: tuple[str, ...],
    truth: dict[str, float] | None,
    **settings: Any,
) -> None:
    """Certify the numbers of a run, so that a stranger can check them.

    The certificate has the numbers, how they were computed, and the root of a tree of hashes over the rollouts. The
    file result.tree beside it has the salts: give it only to people who get the rollouts. A RESULT alone, such as
    result.json, has no rollouts, and the certificate says so.
    """
    from calipers.analyses.certify import envelope as envelopes

    every_option = click.get_current_context().params
    if new_key is not None:
        if paths:
            raise InputError.at("--new-key", "writes a key and nothing else", "run the command again with --key")
        options.refuse(every_option.keys() - {"new_key"}, "cannot be combined with --new-key", "leave one of them out")
        public = envelopes.new_key(new_key)
        print_lines([f"{new_key}: the private key; keep it to yourself", f"{public}: the public key; publish it"])
        return
    if not paths:
        raise InputError("no run; expected a run, files of rollouts or a result")
    if truth:
        raise InputError.at("--truth", "a certificate does not hold it", "convert the rollouts first: calipers convert")
    names = options.roles(columns)
    if shown:
        options.refuse(every_option.keys() - OF_SHOW, "cannot be combined with --show", "leave one of them out")
        _show(paths, tree, shown, out, names, force)
        return
    if tree is not None:
        raise InputError.at("--tree", "it is written, not read", f"{TREE} is beside the certificate; --show reads it")
    path = out or "result.cert.json"
    tree_path = os.path.join(os.path.dirname(path), TREE)
    files = new_files((path, tree_path, request), (*paths, key, plan), force)
    from calipers.analyses.certify import certify
    from calipers.reports.figures import counted

    certificate = certify(paths, columns=names or None, key=key, plan=plan, **settings)
    files[path].write(certificate.envelope.encoded())
    print_lines([f"{path}: {clean(certificate.result.headline(), 200)}"])
    if certificate.tree is not None:
        files[tree_path].write_all(certificate.tree.encoded())
        print_lines([f"{tree_path}: the salts and hashes of {counted(certificate.tree.count, 'rollout')}"])
    if request:
        files[request].write(envelopes.request_for(certificate.envelope))
        print_lines([f"{request}: a request for a time stamp"])
    if certificate.differences is not None:
        print_lines(f"plan: {clean(difference, 200)}" for difference in certificate.differences or ["as planned"])
    print_notes([*certificate.notes, *([] if key else ["nobody has signed the certificate; --key FILE signs it"])])


def _show(
    paths: tuple[str, ...],
    tree: str | None,
    shown: tuple[str, ...],
    out: str | None,
    names: dict[str, str],
    force: bool,
) -> None:
    if tree is None:
        raise InputError.at("--show", "there is no tree file", "expected --tree FILE, as calipers certify wrote it")
    [target] = new_files((out or "shown.json",), (*paths, tree), force).values()
    from calipers.analyses.certify.verify import show_rollouts

    target.write(show_rollouts(paths, tree, shown, names or None).encode())
    print_lines([f"{target.path}: the proof of {', '.join(clean(name, 60) for name in shown)}"])


def new_files(paths: Iterable[str | None], inputs: Sequence[str | None], force: bool) -> dict[str, Target]:
    """The files to write; InputError if one exists, unless ``force`` is set."""
    files = targets(paths, inputs)
    for path in files:
        if os.path.lexists(path) and not force:
            raise InputError.at(path, "already exists", "--force replaces it")
    return files
