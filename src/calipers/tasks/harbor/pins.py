"""dataset.toml brought in line with its directory: names added, digests taken anew, all else as it was."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calipers.errors import InputError
from calipers.tasks.harbor.dataset import METRIC
from calipers.tasks.harbor.digest import file_digest
from calipers.tasks.harbor.manifest import Manifest
from calipers.tasks.harbor.paths import below, regular

if TYPE_CHECKING:
    from tomlkit import TOMLDocument


@dataclass(frozen=True, slots=True)
class Drift:
    """Where a dataset.toml and the directory around it differ. Every mapping goes from a name to its true digest."""

    tasks: Mapping[str, str]  # named, with another digest or none
    files: Mapping[str, str]
    new_tasks: Mapping[str, str]  # here, but not named
    new_files: Mapping[str, str]  # only metric.py is a file that ought to be named
    wrong: tuple[str, ...]  # what is named and not here, or a link that leads elsewhere

    @property
    def changes(self) -> list[str]:
        """What bringing dataset.toml in line would do to it, a line each."""
        old = [f"the digest of {name} is taken anew" for name in (*self.tasks, *self.files)]
        return old + [f"{name} is added" for name in (*self.new_tasks, *self.new_files)]


def drift(root: Path, manifest: Manifest, tasks: Mapping[str, str]) -> Drift:
    """What is out of line in a dataset.toml, given the true digests of the tasks that lie in its directory.

    A digest of "" is that of a task which is there, and of which nothing can be said.
    """
    named = {one.name: one.digest for one in manifest.tasks}
    wrong = [
        f"{manifest.source.place(('tasks', at, 'name'))}: {root} holds no valid task {one.name!r}"
        for at, one in enumerate(manifest.tasks)
        if one.name not in tasks
    ]
    pinned = {one.path: one.digest for one in manifest.files}
    files: dict[str, str] = {}
    for at, name in enumerate(pinned):
        place = manifest.source.place(("files", at, "path"))
        if not os.path.lexists(root / name):
            wrong.append(f"{place}: there is no file {name!r} in {root}; write it, or take the entry out")
        elif digest := _digest(root, name, place, wrong):
            files[name] = digest
    beside = os.path.lexists(root / METRIC) and METRIC not in pinned
    metric = _digest(root, METRIC, str(root), wrong) if beside else ""
    return Drift(
        {name: digest for name, digest in tasks.items() if digest and name in named and named[name] != digest},
        {path: digest for path, digest in files.items() if pinned[path] != digest},
        {name: digest for name, digest in tasks.items() if digest and name not in named},
        {METRIC: metric} if metric else {},
        tuple(wrong),
    )


def _digest(root: Path, name: str, place: str, wrong: list[str]) -> str:
    """The digest of a file beside the tasks; "" and one more thing that is wrong where it cannot be had."""
    try:
        path = below(root, name, place)
        return file_digest(path) if regular(root, path) else ""
    except InputError as error:
        wrong.append(str(error))
        return ""


def refreshed(
    manifest: Manifest, tasks: Mapping[str, str], files: Mapping[str, str], version: str | None = None
) -> str:
    """The text of dataset.toml with these digests, by the names of tasks and files; those not named yet are added.

    Comments, order and everything else in the file stay as they are.
    """
    import tomlkit

    document = tomlkit.parse(manifest.source.text)
    _pin(document, "tasks", "name", tasks)
    _pin(document, "files", "path", files)
    if version is not None:
        head: Any = document["dataset"]
        head["version"] = version
    return _spaced(tomlkit.dumps(document))


def new_document(name: str, version: str, description: str = "") -> str:
    """A dataset.toml without tasks."""
    import tomlkit

    document = tomlkit.document()
    document["schema_version"] = "1.0"
    head = tomlkit.table()
    head.update({"name": name, "version": version, "description": description, "authors": [], "keywords": []})
    document["dataset"] = head
    return tomlkit.dumps(document)


def _spaced(text: str) -> str:
    """The same TOML with an empty line before every table, and an end to its last line."""
    text = text.rstrip("\n") + "\n"
    spaced = re.sub(r"(?<=[^\n])\n(?=\[\[?[a-z])", "\n\n", text)
    return spaced if tomllib.loads(spaced) == tomllib.loads(text) else text  # a text of several lines may look like one


def replace_file(path: Path, text: str) -> None:
    """Write a file so that it holds the old text or the new one, never half of either."""
    beside = path.with_name(f".{path.name}.{os.urandom(4).hex()}.part")
    try:
        with open(beside, "x", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise InputError.at(str(path), f"cannot be written ({error.strerror})") from None


def _pin(document: TOMLDocument, table: str, key: str, digests: Mapping[str, str]) -> None:
    import tomlkit
    from tomlkit.items import AoT

    entries: Any = document.get(table)
    found = {entry[key]: entry for entry in entries or ()}
    for name, digest in digests.items():
        if name in found:
            found[name]["digest"] = digest
            continue
        if not entries:
            document.pop(table, None)  # `files = []` cannot be followed by [[files]]
            document[table] = tomlkit.aot()
            entries = document[table]
        entry = tomlkit.table() if isinstance(entries, AoT) else tomlkit.inline_table()
        entry.update({key: name, "digest": digest})
        entries.append(entry)
