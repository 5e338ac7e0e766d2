"""Check that nothing users rely on disappears: public names, commands, options, their values, JSON keys, outcomes.

    python scripts/kept.py            list names in tests/kept.json that no longer exist; exit 1 if there are any
    python scripts/kept.py --write    add new names to tests/kept.json; none is ever removed

JSON keys are dotted paths in the documents that commands print for the bundled example. A list is ``[]``; keys that
come from the data (names of metrics, outcomes, slices) are ``*``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import click

import calipers
from calipers import names
from calipers.cli import commands
from calipers.rollouts.record import OUTCOMES

KEPT = Path(__file__).parents[1] / "tests" / "kept.json"
EXAMPLES = files("calipers") / "examples"
FIRST, SECOND = str(EXAMPLES / "arith.jsonl"), str(EXAMPLES / "arith_next.jsonl")
PRINTED = {
    "score": ("score", FIRST, "--by", "difficulty"),
    "score evsys": ("score", FIRST, "--dialect", "evsys"),
    "score nemo_gym": ("score", FIRST, "--dialect", "nemo_gym"),
    "score harbor": ("score", FIRST, "--dialect", "harbor"),
    "compare": ("compare", FIRST, SECOND, "--margin", "0.05"),
    "gate": ("gate", SECOND, "--baseline", FIRST, "--require", "delta(mean_reward) >= 0"),
    "curve": ("curve", FIRST),
    "items": ("items", FIRST, SECOND),
    "plan": ("plan", FIRST, "--detect", "0.05"),
    "leaderboard": ("leaderboard", FIRST, SECOND, "--baseline", "tiny-calculator"),
    "matrix": ("score", "runs"),
}
BY_NAME = frozenset({"metrics", "outcomes", "breakdowns", "slices", "params", "own", "rewards", "versions"})


Run = Callable[[tuple[str, ...], Path], tuple[str, str]]
"""A function that runs a command in a folder and returns its standard output and standard error."""


def started(arguments: tuple[str, ...], folder: Path) -> tuple[str, str]:
    """Run a command in a process of its own."""
    command = [sys.executable, "-m", "calipers", *arguments]
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return process.stdout, process.stderr


def now(run: Run) -> dict[str, list[str]]:
    """All present names, sorted, by their kind."""
    indexes = [index for index in vars(names).values() if isinstance(index, names.Index)]
    entries = [f"{index.kind} {entry}" for index in indexes for entry in index.entries]
    return {
        "public": sorted(calipers.__all__),
        "groups": sorted(group for index in indexes for group in index._groups),
        "commands": sorted(commands.list_commands(click.Context(commands))),
        "options": sorted(set(options())),
        "outcomes": sorted(OUTCOMES),
        "names": sorted(entries),
        "keys": sorted(set(keys(run))),
    }


def options() -> Iterator[str]:
    """The options of all commands, and the values of options with a fixed set of values."""
    context = click.Context(commands)
    for name in commands.list_commands(context):
        command = commands.get_command(context, name)
        for parameter in command.params if command else ():
            for spelling in (*parameter.opts, *parameter.secondary_opts):
                if spelling.startswith("-"):
                    yield f"{name} {spelling}"
                    if isinstance(parameter.type, click.Choice):
                        yield from (f"{name} {spelling} {value}" for value in parameter.type.choices)


def keys(run: Run) -> Iterator[str]:
    """The schemas and keys of the JSON documents that commands print."""
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        runs.mkdir()
        for number, path in enumerate((FIRST, SECOND)):
            for dataset in ("arith", "more"):
                rows = [{**json.loads(row), "dataset": dataset} for row in Path(path).read_text().splitlines()]
                (runs / f"{dataset}{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        for title, arguments in PRINTED.items():
            printed, errors = run((*arguments, "--format", "json"), Path(folder))
            if not printed.startswith("{"):
                raise SystemExit(f"{title}: printed no JSON: {errors}")
            document = json.loads(printed)
            yield f"{title}: schema {document.get('schema')}"
            yield from (f"{title}: {path}" for path in paths(document))


def paths(value: Any, prefix: str = "", by_name: bool = False) -> Iterator[str]:
    """The dotted paths of a document's keys."""
    if isinstance(value, dict):
        for key, inner in value.items():
            path = f"{prefix}.{'*' if by_name else key}".lstrip(".")
            yield path
            yield from paths(inner, path, not by_name and key in BY_NAME)
    elif isinstance(value, list):
        for inner in value:
            yield from paths(inner, f"{prefix}[]", by_name)


def main(run: Run = started) -> None:
    """Compare the present names with tests/kept.json, or add them to it."""
    kept: dict[str, list[str]] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    present = now(run)
    if "--write" in sys.argv[1:]:
        merged = {kind: sorted({*kept.get(kind, ()), *present[kind]}) for kind in present}
        KEPT.write_text(json.dumps(merged, indent=1) + "\n")
        return
    lost = [
        f"{kind}: {name}" for kind, kept_names in kept.items() for name in kept_names if name not in set(present[kind])
    ]
    if lost:
        raise SystemExit("tests/kept.json lists these, and they no longer exist:\n" + "\n".join(lost))


if __name__ == "__main__":
    main()
