"""``calipers merge``: merge partial scores into one."""

from __future__ import annotations

import click

from calipers.cli import options
from calipers.cli.output import Target, plugins_loaded, print_result_notes, show_result, write_json


@click.command(cls=options.GroupedCommand)
@click.argument("paths", metavar="PARTIAL...", nargs=-1, required=True, type=click.Path())
@options.metrics("  [default: those that the partials were made for]")
@options.file_option(
    options.ROLLOUTS,
    "--expect",
    "List of the inputs that must be in the partials: a path, a SHA-256, or a line of sha256sum on each line. "
    "Exits with 3 if one is missing.",
)
@options.out
@options.shape(*options.FORMATS, "latex", "github")
@options.page_options
@options.plugins
def merge(
    paths: tuple[str, ...],
    metrics: tuple[str, ...],
    expect: str | None,
    plugins: tuple[str, ...],
    out: str | None,
    shape: str,
    **page: bool,
) -> None:
    """Compute the score of all files that each PARTIAL was made of, without reading these files.

    calipers score --partial makes partials, on as many machines as you like. The numbers and the digest are those of
    scoring all files at once, in any order and any split.
    """
    target = Target(out, [*paths, *([expect] if expect else [])]) if out is not None else None
    with plugins_loaded(plugins):
        from calipers.partials import merge_partials

        result = merge_partials(paths, metrics or None, expect=expect)
    write_json(target, result)
    show_result(result, shape, paths, **page)
    print_result_notes(result, shape)
