"""``calipers publish``: a benchmark into the store of this project."""

from __future__ import annotations

import json

import click

from calipers.cli.group import verbose
from calipers.cli.output import write
from calipers.reports.safe import clean, safe_json
from calipers.tasks import store


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path())
@verbose
def publish(directory: str) -> None:
    """Put the benchmark in DIR into the store under .calipers, as its next version.

    DIR holds tasks.jsonl and perhaps metadata.yaml. Prints one JSON object; the same bytes again change nothing.
    """
    done = store.publish(directory)
    document = {
        "benchmark_id": done.id,
        "name": done.name,
        "version": done.version,
        "content_hash": done.sha256,
        "status": done.status,
        "n_tasks": done.tasks,
    }
    write(safe_json(json.dumps(document, indent=2, ensure_ascii=False) + "\n"))
    how = f"calipers run {done.id} --model SPEC runs it"
    for note in (*done.notes, f"{done.name} version {done.version} is {done.status}; {how}"):
        click.echo(f"note: {clean(note, None)}", err=True)
