"""``calipers publish``: publish a benchmark to the store of this project, or a dataset to a registry."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from calipers.cli.options import Command
from calipers.cli.options import registry as registry_option
from calipers.cli.output import print_note, print_notes, write
from calipers.errors import InputError
from calipers.reports.untrusted_text import safe_json
from calipers.systems.harbor.dataset import is_dataset
from calipers.tasks import store


@click.command(cls=Command)
@click.argument("directory", metavar="DIR", type=click.Path())
@registry_option
@click.option(
    "--public", is_flag=True, help="Accepted because harbor publish has it; it has no effect on a local registry."
)
def publish(directory: str, registry: str | None, public: bool) -> None:
    """Publish the benchmark or the dataset in DIR under its name, and print a JSON object.

    A benchmark (tasks.jsonl, and optionally metadata.yaml) becomes the next version in the store under .calipers.
    Publishing the same bytes again changes nothing. A dataset (dataset.toml, a directory per task, and optionally
    metric.py) is published to a registry under the version that it states. Its digests in dataset.toml are
    computed again. A published version cannot be changed.
    """
    if is_dataset(directory):
        _publish_dataset(directory, registry, public)
        return
    if registry is not None:
        raise InputError.at("--registry", f"{directory} is not a dataset", "remove it: a benchmark goes to the store")
    published = store.publish(directory)
    document = {
        "benchmark_id": published.id,
        "name": published.name,
        "version": published.version,
        "content_hash": published.sha256,
        "status": published.status,
        "n_tasks": published.tasks,
    }
    state = f"{published.name} version {published.version} is {published.status}"
    advice = f"run it with calipers run {published.id} --model KIND/NAME"
    _print(document, (*published.notes, f"{state}; {advice}"), public)


def _publish_dataset(directory: str, registry: str | None, public: bool) -> None:
    from calipers.systems.harbor.registry import publish_dataset

    published = publish_dataset(directory, registry)
    document = {
        "name": published.name,
        "version": published.version,
        "digest": published.digest,
        "status": published.status,
        "n_tasks": published.tasks,
        "files": list(published.files),
        "registry": str(published.registry),
    }
    spec = f"{published.name}@{published.version}"
    option = f" --registry {published.registry}" if registry is not None else ""
    advice = f"run it with calipers run {spec}{option} --agent NAME"
    _print(document, (*published.notes, f"{spec} is {published.status}; {advice}"), public)


def _print(document: Mapping[str, Any], notes: Sequence[str], public: bool) -> None:
    write(safe_json(json.dumps(document, indent=2, ensure_ascii=False) + "\n"))
    print_notes(notes)
    if public:
        print_note("--public has no effect: file permissions decide who can read a local registry")
