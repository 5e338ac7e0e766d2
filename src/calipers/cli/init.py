"""``calipers init``: a new benchmark from a table, or a new dataset or task in Harbor's format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from calipers.cli.options import HARBOR, OUTPUT, GroupedCommand, flag, option, refuse, table_options
from calipers.cli.output import print_lines, print_notes
from calipers.errors import InputError
from calipers.names import is_code


@click.command(cls=GroupedCommand)
@click.argument("name", metavar="[NAME]", required=False)
@table_options
@option(HARBOR, "--dataset", "ORG/NAME", "Create a dataset of the tasks in DIR, or an empty dataset.")
@option(HARBOR, "--task", "ORG/NAME", "Write a starter task to DIR/NAME.")
@flag(HARBOR, "--with-metric", "Also write a metric.py and add it to dataset.toml.")
@option(
    OUTPUT,
    "-o --output-dir --out directory",
    "DIR",
    "Folder to write to.  [default: the current folder]",
    type=click.Path(path_type=Path),
    default=Path(),
)
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
    from calipers.systems.harbor.dataset import make_dataset, make_task

    if table is not None:
        if dataset is not None or task is not None or with_metric:
            raise InputError.at("--from", "makes a benchmark from a table", "remove Harbor's options")
        print_lines(make_benchmark(name, table, directory, columns))
        return
    refuse(columns, "is for a benchmark from a table", "add --from FILE")
    if name is not None:
        raise InputError.at(name, "--from is missing", f"expected calipers init {name} --from qa.csv")
    if (dataset is None) == (task is None):
        problem = "nothing to create" if dataset is None else "a dataset and a task at once"
        raise InputError(f"{problem}; expected one of --dataset ORG/NAME and --task ORG/NAME")
    if task is not None and with_metric:
        raise InputError.at("--with-metric", "a task has no metric", "use it with --dataset")
    lines = make_dataset(dataset, directory, with_metric) if dataset is not None else make_task(task or "", directory)
    print_lines(lines)


def make_benchmark(name: str | None, table: str, parent: Path, settings: Mapping[str, Any]) -> list[str]:
    """Write the benchmark ``parent/name`` from a table; return the lines to print."""
    from calipers.tasks.jsonl import write_suite
    from calipers.tasks.questions import Questions, questions_suite
    from calipers.tasks.table import read_table
    from calipers.verifiers.user_code import named_verifier

    if not name:
        raise InputError.at("--from", "the benchmark has no name", f"expected calipers init NAME --from {table}")
    given = {key: value for key, value in settings.items() if value is not None}
    questions = Questions(**given)
    suite = questions_suite(read_table(table), questions)
    verifier = named_verifier(str(suite.tasks[0].verifier))
    for task in suite.tasks:
        try:
            verifier.check(task)
        except InputError as error:
            raise InputError(f"{suite.places[task.id]}: {error}") from None
    folder = parent / name
    files = write_suite(folder, suite, questions.params, table)
    print_notes(suite.notes)
    verifier_option = f" --verifier {questions.verifier}" if is_code(questions.verifier or "") else ""
    return [
        *suite.opening,
        *(f"wrote {file}" for file in files),
        f"run it with: calipers run {folder}{verifier_option} --model ...",
    ]
