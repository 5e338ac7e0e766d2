"""``calipers init``: a new dataset, or a new task, in Harbor's form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from calipers.cli.options import verbose
from calipers.cli.output import write
from calipers.cli.questions import make_benchmark, table_questions
from calipers.errors import InputError
from calipers.reports.untrusted_text import clean


@click.command()
@click.argument("name", metavar="[NAME]", required=False)
@table_questions
@click.option("--dataset", metavar="ORG/NAME", help="Make a dataset of the tasks in DIR, or an empty one.")
@click.option("--task", metavar="ORG/NAME", help="Write a task to start from into DIR/NAME.")
@click.option("--with-metric", is_flag=True, help="Also write a metric.py, and name it in dataset.toml.")
@click.option(
    "-o",
    "--output-dir",
    "--out",
    "directory",
    metavar="DIR",
    type=click.Path(path_type=Path),
    default=Path(),
    help="Where.  [default: the current folder]",
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
    """Start a benchmark of questions of your own; or a dataset or a task in Harbor's form, as harbor init does.

    NAME --from qa.csv writes NAME/tasks.jsonl with a question a line, and NAME/metadata.yaml with the verifier
    that judges them; a line may have a verifier of its own.

    --dataset writes dataset.toml (version 1.0.0) and README.md, and names every task that lies in DIR
    with the digest of its content. Where a dataset.toml is, --with-metric adds a metric.py to it;
    no file that exists is written over.
    """
    from calipers.systems.harbor.tasks.scaffold import make_dataset, make_task

    if table is not None:
        if dataset is not None or task is not None or with_metric:
            raise InputError.at("--from", "makes a benchmark of a table", "expected none of Harbor's options beside it")
        write(make_benchmark(name, table, directory, columns))
        return
    if name is not None:
        raise InputError.at(name, "nothing to make it of", f"expected calipers init {name} --from qa.csv")
    if (dataset is None) == (task is None):
        wrong = "nothing to make" if dataset is None else "a dataset and a task at once"
        raise InputError(f"{wrong}; expected one of --dataset ORG/NAME and --task ORG/NAME")
    if task is not None and with_metric:
        raise InputError.at("--with-metric", "a task has no metric", "it goes with --dataset")
    done = make_dataset(dataset, directory, with_metric) if dataset is not None else make_task(task or "", directory)
    write("".join(f"{clean(line, None)}\n" for line in done))
