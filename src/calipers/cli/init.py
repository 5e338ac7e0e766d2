"""``calipers init``: a new dataset or a new task in Harbor's format."""

from __future__ import annotations

from pathlib import Path

import click

from calipers.cli.options import Command, verbose
from calipers.cli.output import write
from calipers.errors import InputError
from calipers.reports.untrusted_text import clean


@click.command(cls=Command)
@click.option("--dataset", metavar="ORG/NAME", help="Create a dataset of the tasks in DIR, or an empty dataset.")
@click.option("--task", metavar="ORG/NAME", help="Write a starter task to DIR/NAME.")
@click.option("--with-metric", is_flag=True, help="Also write a metric.py and add it to dataset.toml.")
@click.option(
    "-o",
    "--output-dir",
    "--out",
    "directory",
    metavar="DIR",
    type=click.Path(path_type=Path),
    default=Path(),
    help="Folder to write to.  [default: the current folder]",
)
@verbose
def init(dataset: str | None, task: str | None, with_metric: bool, directory: Path) -> None:
    """Create a dataset or a task in Harbor's format, as harbor init does.

    --dataset writes dataset.toml (version 1.0.0) and README.md, and lists every task in DIR with the digest of its
    content. If dataset.toml exists, --with-metric adds a metric.py to it. Existing files are not overwritten.
    """
    from calipers.systems.harbor.tasks.scaffold import make_dataset, make_task

    if (dataset is None) == (task is None):
        wrong = "nothing to create" if dataset is None else "a dataset and a task at once"
        raise InputError(f"{wrong}; expected one of --dataset ORG/NAME and --task ORG/NAME")
    if task is not None and with_metric:
        raise InputError.at("--with-metric", "a task has no metric", "use it with --dataset")
    done = make_dataset(dataset, directory, with_metric) if dataset is not None else make_task(task or "", directory)
    write("".join(f"{clean(line, None)}\n" for line in done))
