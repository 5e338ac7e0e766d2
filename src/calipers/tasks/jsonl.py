"""A benchmark on disk: a directory with ``tasks.jsonl`` and optionally ``metadata.yaml``, or a single file of tasks.

Nothing else in the directory is read, neither ``images/`` nor ``raw/``.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Final

from calipers.errors import InputError, nearest
from calipers.formats.source import BOM, json_lines, opened, read_up_to
from calipers.tasks.benchmark_row import FIELDS, VERIFIER_FIELDS, HarborTask, TaskFault, as_task, harbor_task_from_dict
from calipers.tasks.task import Suite, Task

TASKS: Final = "tasks.jsonl"
METADATA: Final = "metadata.yaml"
LARGEST_METADATA: Final = 1 << 20  # bytes


class NotThere(InputError, FileNotFoundError):
    """A benchmark, or a part of one, that does not exist."""


def read_suite(path: str | os.PathLike[str]) -> Suite:
    """The tasks of a benchmark, checked: every id is unique, and every prompt can be sent to a model.

    InputError says file and line. A field that means nothing is passed over and mentioned in
    ``notes``, with the nearest name that means something.
    """
    folder = Path(path)
    if not folder.is_dir():
        return _read(_bare_file(folder), None, {}, folder.stem)
    metadata = read_metadata(folder)
    return _read(tasks_file(folder), folder, metadata, suite_name(folder, metadata))


def _read(file: Path, root: Path | None, metadata: Mapping[str, Any], name: str) -> Suite:
    digest = hashlib.sha256()
    lines: dict[str, int] = {}
    tasks: list[Task] = []
    passed_over = _PassedOver(file)
    common = CommonVerifier(root, metadata)
    for line, row in json_lines(file, digest):
        where = f"{file}:{line}"
        row = common.filled(row)
        try:
            task = as_task(harbor_task_from_dict(row))
        except TaskFault as fault:
            wrong = TaskFault(f"{fault} is missing") if isinstance(fault, KeyError) else fault
            raise wrong.placed(where, fault.right) from None
        first = lines.setdefault(task.id, line)
        if first != line:
            raise InputError.at(where, f"task_id {task.id!r} appears twice, first at line {first}", "expected it once")
        passed_over.look(line, row)
        tasks.append(task)
    return Suite(name, tasks, metadata, root, digest.hexdigest(), passed_over.notes())


class CommonVerifier:
    """The verifier that ``metadata.yaml`` names once, for every row that has none of its own.

    It is a name, or a mapping as a row has it; ``kind`` may be left out. Such a row says what is ``expected`` itself,
    and perhaps further ``params``. Nothing is looked at before a row needs it.
    """

    def __init__(self, directory: Path | None, metadata: Mapping[str, Any]) -> None:
        self._directory, self._written = directory, metadata.get("verifier")

    def filled(self, row: Any) -> Any:
        """A row with its verifier; one that has its own, or is no object, stays as it is."""
        if not isinstance(row, dict) or "verifier" in row or self._written is None:
            return row
        common = self._mapping
        judging = {name: row[name] for name in ("expected", "params") if name in row}
        params = judging.get("params") or {}  # null says nothing, as in a row with its own verifier
        if isinstance(common.get("params"), Mapping) and isinstance(params, Mapping):
            judging["params"] = {**common["params"], **params}
        rest = {name: value for name, value in row.items() if name not in judging}
        return {**rest, "verifier": {**common, **judging}}

    @cached_property
    def _mapping(self) -> dict[str, Any]:
        if isinstance(self._written, str):
            return {"kind": "in_process", "fn_name": self._written}
        where = str((self._directory or Path()) / METADATA)
        if isinstance(self._written, Mapping):
            try:
                return {"kind": "in_process", **json.loads(json.dumps(self._written))}
            except (TypeError, ValueError, RecursionError) as error:
                right = "expected what JSON can hold; put a date in quotes"
                raise InputError.at(where, f"verifier has a value that is no JSON ({error})", right) from None
        right = "expected its name, such as numeric_match, or a mapping with fn_name and params"
        raise InputError.at(where, f"verifier is {self._written!r:.60}", right)


def harbor_tasks(file: Path, common: CommonVerifier | None = None) -> Iterator[HarborTask]:
    """The tasks of a file as EvSys reads them: ids and prompts as they are, told apart or not."""
    for line, row in json_lines(file):
        try:
            yield harbor_task_from_dict(common.filled(row) if common else row)
        except TaskFault as fault:
            raise fault.placed(f"{file}:{line}") from None


def write_suite(directory: Path, suite: Suite, params: Mapping[str, Any], source: str) -> list[Path]:
    """Write a benchmark whose tasks one verifier judges: the verifier once, in ``metadata.yaml``; the files written.

    ``params`` are those that all tasks share. Where one of the two files is there already, nothing is written.
    """
    import yaml

    names = sorted({task.verifier for task in suite.tasks if task.verifier is not None})
    judge = {"kind": "in_process", "fn_name": names[0], **({"params": dict(params)} if params else {})}
    content = {"name": directory.name or directory.resolve().name, "verifier": judge}
    about = {**content, "source": {"path": source, "sha256": suite.sha256}}
    rows = []
    for task in suite.tasks:
        more = {name: value for name, value in task.params.items() if name not in params}
        rows.append(
            {
                "task_id": task.id,
                "instruction": task.prompt,
                "expected": task.target,
                **({"params": more} if more else {}),
                **({"metadata": dict(task.metadata)} if task.metadata else {}),
            }
        )
    files = {
        directory / TASKS: "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows),
        directory / METADATA: yaml.safe_dump(about, sort_keys=False, allow_unicode=True),
    }
    for file in files:
        if os.path.lexists(file):
            raise InputError.at(str(file), "already exists", "give another name, or remove it first")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            with open(file, "x", encoding="utf-8", newline="\n") as stream:
                stream.write(text)
    except OSError as error:
        raise InputError.at(str(directory), f"cannot be written ({error.strerror})", "give another name") from None
    return [*files]


def place_of(directory: Path, number: int, task_id: Any) -> str | None:
    """``path:line`` of a task by its place among the others; None when another one stands there by now."""
    with suppress(InputError):
        file = tasks_file(directory)
        for line, row in islice(json_lines(file), number, number + 1):
            if isinstance(row, dict) and row.get("task_id") == task_id:
                return f"{file}:{line}"
    return None


def tasks_file(directory: Path) -> Path:
    """The file of tasks inside a benchmark's directory."""
    file = directory / TASKS
    if not os.path.lexists(file):
        raise NotThere(f"benchmark missing tasks.jsonl: {directory}; expected a file with one task per line")
    return _inside(directory, file)


def read_metadata(directory: Path) -> dict[str, Any]:
    """The content of ``metadata.yaml``, by a safe loader; empty if there is none."""
    file = directory / METADATA
    if not os.path.lexists(file):
        return {}
    with opened(_inside(directory, file)) as stream:
        content = read_up_to(stream, LARGEST_METADATA + 1)
    if len(content) > LARGEST_METADATA:
        raise InputError.at(str(file), f"larger than {LARGEST_METADATA >> 20} MiB", "expected a few keys")
    metadata = _from_yaml(content, str(file)) or {}
    if not isinstance(metadata, dict):
        raise InputError.at(str(file), f"it is a {type(metadata).__name__}; it must be a mapping at the top level")
    return metadata


def suite_name(directory: Path, metadata: Mapping[str, Any]) -> str:
    """The benchmark's name: from its metadata, else the name of its directory."""
    name = metadata.get("name")
    if not name:
        return directory.name or directory.resolve().name
    if not isinstance(name, (str, int, float)):
        raise InputError.at(str(directory / METADATA), "name is not text", "expected a name such as arith")
    return str(name)


def _from_yaml(content: bytes, where: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(content.removeprefix(BOM).decode())
    except UnicodeDecodeError:
        raise InputError.at(where, "a byte is not UTF-8", "expected UTF-8 text") from None
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise InputError.at(
            f"{where}{line}", (f"it is not valid YAML: {_one_line(error.problem or error.context)}")
        ) from None
    except (yaml.YAMLError, AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError) as error:
        # a tag before a text it does not fit, such as `!!timestamp soon`, gives any of these
        raise InputError.at(where, f"it is not valid YAML: {_one_line(error) or type(error).__name__}") from None


def _one_line(message: object) -> str:
    return " ".join(str(message).split())


def _bare_file(path: Path) -> Path:
    if not os.path.lexists(path):
        raise NotThere(f"{path}: no such file or directory; expected a benchmark: a directory with {TASKS}, or a file")
    return path


def _inside(directory: Path, file: Path) -> Path:
    try:
        inside = file.resolve(strict=True).is_relative_to(directory.resolve())
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise InputError.at(str(file), f"cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if not inside:
        raise InputError.at(str(file), "it is a link to a file outside the benchmark", "expected a regular file")
    return file


class _PassedOver:
    """Unknown fields: each with its first line and the number of rows that have it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen: dict[tuple[str, ...], tuple[int, int]] = {}

    def look(self, line: int, row: Mapping[str, Any]) -> None:
        """Remember the fields of one good row."""
        verifier = row["verifier"]
        known = ("kind", *VERIFIER_FIELDS[verifier["kind"]])
        strange: list[tuple[str, ...]] = [(name, *FIELDS) for name in row if name not in FIELDS]
        strange += [(f"verifier.{name}", *known) for name in verifier if name not in known]
        for key in strange:
            first, count = self._seen.get(key, (line, 0))
            self._seen[key] = first, count + 1

    def notes(self) -> list[str]:
        """A line for each field."""
        notes = []
        for (name, *known), (line, count) in self._seen.items():
            close = nearest(name.removeprefix("verifier."), known, 1)
            right = f"did you mean {close[0]!r}?" if close else "put data about a task under metadata"
            rows = "1 row has" if count == 1 else f"{count} rows have"
            notes.append(f"{self._file}:{line}: {rows} the field {name!r}, which is ignored; {right}")
        return notes
