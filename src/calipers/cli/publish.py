"""``calipers publish``: a benchmark into the store of this project, a dataset into a registry."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from calipers.cli.options import verbose
from calipers.cli.output import tell, write
from calipers.errors import InputError
from calipers.reports.untrusted_text import clean, safe_json
from calipers.systems.harbor.tasks.dataset import is_dataset
from calipers.tasks import store


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path())
@click.option("--registry", metavar="DIR", type=click.Path(), help="Of datasets.  [default: .calipers/registry]")
@click.option("--public", is_flag=True, help="Accepted, as harbor publish has it; a local registry has no such thing.")
@verbose
def publish(directory: str, registry: str | None, public: bool) -> None:
    """Put the benchmark or the dataset in DIR where others find it by name. Prints one JSON object.

    A benchmark (tasks.jsonl and perhaps metadata.yaml) goes into the store under .calipers, as its next
    version; the same bytes again change nothing. A dataset (dataset.toml, a directory for each task
    and perhaps metric.py) goes into a registry under the version that it states: digests in
    dataset.toml are taken anew, and what is published once does not change.
    """
    if is_dataset(directory):
        _publish_dataset(directory, registry, public)
        return
    if registry is not None:
        raise InputError.at("--registry", f"{directory} is no dataset", "a benchmark goes into the store without it")
    done = store.publish(directory)
    document = {
        "benchmark_id": done.id,
        "name": done.name,
        "version": done.version,
        "content_hash": done.sha256,
        "status": done.status,
        "n_tasks": done.tasks,
    }
    how = f"calipers run {done.id} --model SPEC runs it"
    _say(document, (*done.notes, f"{done.name} version {done.version} is {done.status}; {how}"), public)


def _publish_dataset(directory: str, registry: str | None, public: bool) -> None:
    from calipers.systems.harbor.tasks.registry import publish_dataset

    done = publish_dataset(directory, registry)
    document = {
        "name": done.name,
        "version": done.version,
        "digest": done.digest,
        "status": done.status,
        "n_tasks": done.tasks,
        "files": list(done.files),
        "registry": str(done.registry),
    }
    spec = f"{done.name}@{done.version}"
    where = f" --registry {done.registry}" if registry is not None else ""
    _say(document, (*done.notes, f"{spec} is {done.status}; calipers run {spec}{where} --agent NAME runs it"), public)


def _say(document: Mapping[str, Any], notes: Sequence[str], public: bool) -> None:
    write(safe_json(json.dumps(document, indent=2, ensure_ascii=False) + "\n"))
    unneeded = "--public: what is on this disk is seen by whoever may read it; there is nothing to make public"
    for note in (*notes, unneeded) if public else notes:
        tell(f"note: {clean(note, None)}")
