"""Helpers that write Harbor's tasks and datasets to disk."""

from __future__ import annotations

from pathlib import Path

FILES = {
    "task.toml": "",
    "instruction.md": "Do it.\n",
    "environment/Dockerfile": "FROM scratch\n",
    "tests/test.sh": "#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n",
}
ARITH = Path(__file__).parents[2] / "golden" / "harbor" / "dataset_arith_mini"


def task(folder: Path, toml: str = "", without: tuple[str, ...] = (), **more: str) -> Path:
    """Write a task's directory, which is valid unless files are left out; ``more`` are further files."""
    files = {**FILES, "task.toml": toml, **more}
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        if name not in without:
            write(folder / name, text)
    return folder


def dataset(
    folder: Path, *tasks: str, toml: str | None = '[dataset]\nname = "acme/arith"\nversion = "1.0.0"\n'
) -> Path:
    """Write a dataset's directory with some tasks, each with its own instruction."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in tasks:
        task(folder / name, **{"instruction.md": f"Do {name}.\n"})
    if toml is not None:
        write(folder / "dataset.toml", toml)
    return folder


def write(path: Path, text: str) -> Path:
    """Write a file and create its parent directories."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def tree(folder: Path) -> dict[str, bytes]:
    """The bytes of every file below a directory, by path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
