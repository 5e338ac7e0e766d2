"""``calipers init``: a new benchmark from a table, or a new dataset or task in Harbor's format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from calipers.cli.options import HARBOR, OUTPUT, GroupedCommand, option, verbose
from calipers.cli.output import write
from calipers.cli.questions import make_benchmark, table_questions
from calipers.errors import InputError
from calipers.reports.untrusted_text import clean


@click.command(cls=GroupedCommand)
@click.argument("name", metavar="[NAME]", required=False)
@table_questions
@option(
    "--dataset", group=HARBOR, metavar="ORG/NAME", help="Create a dataset of the tasks in DIR, or an empty dataset."
)
@option("--task", group=HARBOR, metavar="ORG/NAME", help="Write a starter task to DIR/NAME.")
@option("--with-metric", group=HARBOR, is_flag=True, help="Also write a metric.py and add it to dataset.toml.")
@option(
    "-o",
    "--output-dir",
    "--out",
    "directory",
    group=OUTPUT,
    metavar="DIR",
    type=click.Path(path_type=Path),
    default=Path(),
    help="Folder to write to.  [default: the current folder]",
)
@verbose
def init(
    name: str | None,
    table: str | None,
    dataset: str | None,
    task: str | None,
    with_metric: bool,
    directory: Path,
    **columns: Any,
) -> None:
    """Create a benchmark from a table, or a dataset or a task in Harbor's format.

    NAME --from qa.csv writes NAME/tasks.jsonl with one question per line, and NAME/metadata.yaml with the verifier.

    --dataset writes dataset.toml (version 1.0.0) and README.md, and lists every task in DIR with the digest of its
    content. If dataset.toml exists, --with-metric adds a metric.py to it. Existing files are not overwritten.
    """
    from calipers.systems.harbor.tasks.scaffold import make_dataset, make_task

    if table is not None:
        if dataset is not None or task is not None or with_metric:
            raise InputError.at("--from", "makes a benchmark from a table", "remove Harbor's options")
        write(make_benchmark(name, table, directory, columns))
        return
    if name is not None:
        raise InputError.at(name, "--from is missing", f"expected calipers init {name} --from qa.csv")
    if (dataset is None) == (task is None):
        wrong = "nothing to create" if dataset is None else "a dataset and a task at once"
        raise InputError(f"{wrong}; expected one of --dataset ORG/NAME and --task ORG/NAME")
    if task is not None and with_metric:
        raise InputError.at("--with-metric", "a task has no metric", "use it with --dataset")
    done = make_dataset(dataset, directory, with_metric) if dataset is not None else make_task(task or "", directory)
    write("".join(f"{clean(line, None)}\n" for line in done))
