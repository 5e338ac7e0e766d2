"""A benchmark on disk: a directory with ``tasks.jsonl`` and optionally ``metadata.yaml``, or a single file of tasks.

Nothing else in the directory is read, neither ``images/`` nor ``raw/``. The rows have EvSys' format: a task and its
verifier. An invalid row raises an `InputError` that is also an instance of the Python error that EvSys raises in this
case, so that code written for EvSys still catches it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from sys import intern
from typing import Any, Final

from calipers.errors import InputError, UnknownName, nearest
from calipers.formats.source import BOM, json_lines, opened, read_up_to
from calipers.tasks import Prompt, Suite, Task

TASKS: Final = "tasks.jsonl"
METADATA: Final = "metadata.yaml"
LARGEST_METADATA: Final = 1 << 20  # bytes
_EMPTY: Final[dict[str, Any]] = {}  # shared by all tasks: two empty dicts for each of 100,000 tasks take 13 MB


class NotThere(InputError, FileNotFoundError):
    """A benchmark, or a part of one, that does not exist."""


def read_suite(path: str | os.PathLike[str]) -> Suite:
    """The tasks of a benchmark, checked: every id is unique, and every prompt can be sent to a model.

    An InputError names file and line. Unknown fields are ignored; ``notes`` mentions them, with the nearest known name.
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
    unknown_fields = _UnknownFields(file)
    common = CommonVerifier(root, metadata)
    for line, row in json_lines(file, digest):
        location = f"{file}:{line}"
        row = common.filled(row)
        try:
            task = as_task(harbor_task_from_dict(row))
        except TaskFault as fault:
            located = TaskFault(f"{fault} is missing") if isinstance(fault, KeyError) else fault
            raise located.placed(location, fault.right) from None
        first = lines.setdefault(task.id, line)
        if first != line:
            raise InputError.at(
                location, f"task_id {task.id!r} appears twice, first at line {first}", "expected it once"
            )
        unknown_fields.add(line, row)
        tasks.append(task)
    return Suite(name, tasks, metadata, root, digest.hexdigest(), unknown_fields.notes())


class CommonVerifier:
    """The verifier in ``metadata.yaml``, which applies to every row without a verifier of its own.

    It is a name, or a mapping as in a row, in which ``kind`` is optional. A row that uses it has its own ``expected``,
    and optionally further ``params``. It is not checked before a row needs it.
    """

    def __init__(self, directory: Path | None, metadata: Mapping[str, Any]) -> None:
        self._directory, self._written = directory, metadata.get("verifier")

    def filled(self, row: Any) -> Any:
        """A row with its verifier; unchanged if it has its own, or if it is not an object."""
        if not isinstance(row, dict) or "verifier" in row or self._written is None:
            return row
        common = self._mapping
        own = {name: row[name] for name in ("expected", "params") if name in row}
        params = own.get("params") or {}  # null is the same as no params, as in a row with its own verifier
        if isinstance(common.get("params"), Mapping) and isinstance(params, Mapping):
            own["params"] = {**common["params"], **params}
        other_fields = {name: value for name, value in row.items() if name not in own}
        return {**other_fields, "verifier": {**common, **own}}

    @cached_property
    def _mapping(self) -> dict[str, Any]:
        if isinstance(self._written, str):
            return {"kind": "in_process", "fn_name": self._written}
        location = str((self._directory or Path()) / METADATA)
        if isinstance(self._written, Mapping):
            try:
                return {"kind": "in_process", **json.loads(json.dumps(self._written))}
            except (TypeError, ValueError, RecursionError) as error:
                expected = "expected what JSON can hold; put a date in quotes"
                raise InputError.at(location, f"verifier has a value that is no JSON ({error})", expected) from None
        expected = "expected its name, such as numeric_match, or a mapping with fn_name and params"
        raise InputError.at(location, f"verifier is {self._written!r:.60}", expected)


def harbor_tasks(file: Path, common: CommonVerifier | None = None) -> Iterator[HarborTask]:
    """The tasks of a file as EvSys reads them: ids and prompts are not checked, and ids may repeat."""
    for line, row in json_lines(file):
        try:
            yield harbor_task_from_dict(common.filled(row) if common else row)
        except TaskFault as fault:
            raise fault.placed(f"{file}:{line}") from None


def write_suite(directory: Path, suite: Suite, params: Mapping[str, Any], source: str) -> list[Path]:
    """Write a benchmark with one verifier, which is named once, in ``metadata.yaml``; return the written files.

    ``params`` are the parameters that all tasks have in common. If one of the two files exists, nothing is written.
    """
    import yaml

    names = sorted({task.verifier for task in suite.tasks if task.verifier is not None})
    verifier = {"kind": "in_process", "fn_name": names[0], **({"params": dict(params)} if params else {})}
    metadata = {
        "name": directory.name or directory.resolve().name,
        "verifier": verifier,
        "source": {"path": source, "sha256": suite.sha256},
    }
    rows = []
    for task in suite.tasks:
        own_params = {name: value for name, value in task.params.items() if name not in params}
        rows.append(
            {
                "task_id": task.id,
                "instruction": task.prompt,
                "expected": task.target,
                **({"params": own_params} if own_params else {}),
                **({"metadata": dict(task.metadata)} if task.metadata else {}),
            }
        )
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    try:
        lines.encode()
    except UnicodeEncodeError:
        problem = "a string contains half of a surrogate pair"  # which cannot be encoded as UTF-8
        raise InputError.at(source, problem, "expected full pairs, such as \\ud83d\\ude00") from None
    files = {
        directory / TASKS: lines,
        directory / METADATA: yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True),
    }
    for file in files:
        if os.path.lexists(file):
            raise InputError.at(str(file), "already exists", "give another name, or remove it first")
    written_files: list[Path] = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            with open(file, "x", encoding="utf-8", newline="\n") as stream:
                written_files.append(file)
                stream.write(text)
    except OSError as error:
        for file in written_files:  # an incomplete benchmark would block the next attempt
            file.unlink(missing_ok=True)
        raise InputError.at(str(directory), f"cannot be written ({error.strerror})", "give another name") from None
    return [*files]


def place_of(directory: Path, number: int, task_id: Any) -> str | None:
    """``path:line`` of a task by its index in the file; None if the file has another task there by now."""
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
    """The content of ``metadata.yaml``, read with a safe loader; empty if there is no such file."""
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


def _from_yaml(content: bytes, location: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(content.removeprefix(BOM).decode())
    except UnicodeDecodeError:
        raise InputError.at(location, "a byte is not UTF-8", "expected UTF-8 text") from None
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise InputError.at(
            f"{location}{line}", (f"it is not valid YAML: {_one_line(error.problem or error.context)}")
        ) from None
    except (yaml.YAMLError, AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError) as error:
        # a tag with a text that does not fit it, such as `!!timestamp soon`, raises any of these
        raise InputError.at(location, f"it is not valid YAML: {_one_line(error) or type(error).__name__}") from None


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


class _UnknownFields:
    """The unknown fields of a file, each with its first line and the number of rows that have it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen: dict[tuple[str, ...], tuple[int, int]] = {}

    def add(self, line: int, row: Mapping[str, Any]) -> None:
        """Add the unknown fields of a valid row."""
        verifier = row["verifier"]
        known = ("kind", *VERIFIER_FIELDS[verifier["kind"]])
        unknown: list[tuple[str, ...]] = [(name, *FIELDS) for name in row if name not in FIELDS]
        unknown += [(f"verifier.{name}", *known) for name in verifier if name not in known]
        for key in unknown:
            first, count = self._seen.get(key, (line, 0))
            self._seen[key] = first, count + 1

    def notes(self) -> list[str]:
        """A note for each unknown field."""
        notes = []
        for (name, *known), (line, count) in self._seen.items():
            close = nearest(name.removeprefix("verifier."), known, 1)
            advice = f"did you mean {close[0]!r}?" if close else "put data about a task under metadata"
            rows = "1 row has" if count == 1 else f"{count} rows have"
            notes.append(f"{self._file}:{line}: {rows} the field {name!r}, which is ignored; {advice}")
        return notes


class TaskFault(InputError):
    """An invalid row: the message says what is wrong, ``right`` what would be right."""

    def __init__(self, problem: str, expected: str = "") -> None:
        super().__init__(problem)
        self.right = expected

    def placed(self, location: str, expected: str = "") -> InputError:
        """The same error with its place in a file; not as a KeyError, whose text would be shown in quotes."""
        text = f"{location}: {self}; {expected}" if expected else f"{location}: {self}"
        return InputError(text) if isinstance(self, KeyError) else type(self)(text)


class MissingField(TaskFault, KeyError):
    """A row without a required field; the text is the field's name in quotes, like that of a KeyError."""


class WrongType(TaskFault, TypeError):
    """A value of the wrong type."""


class NoObject(TaskFault, AttributeError):
    """A value that must be an object with fields, and is not."""


@dataclass(frozen=True, slots=True)
class InProcessVerifier:
    """A function, given by name, that compares the completion with the expected value."""

    fn_name: str
    expected: Any = None
    params: dict[str, Any] = field(default_factory=dict)
    kind: str = "in_process"


@dataclass(frozen=True, slots=True)
class E2BVerifier:
    """A test script that is run in a container."""

    dockerfile: str = ""
    test_sh: str = ""
    test_state_py: str = ""
    kind: str = "e2b"


@dataclass(frozen=True, slots=True)
class LLMJudgeVerifier:
    """A model that grades the completion by a rubric."""

    judge_model: str = ""
    rubric: str = ""
    kind: str = "llm_judge"


Verifier = InProcessVerifier | E2BVerifier | LLMJudgeVerifier


@dataclass(frozen=True, slots=True)
class HarborTask:
    """A task in EvSys' format. Its values are not checked: they may be any JSON."""

    task_id: Any
    instruction: Any
    verifier: Verifier | None = None  # None: completions are not verified
    metadata: dict[str, Any] = field(default_factory=dict)


FIELDS: Final = ("task_id", "instruction", "verifier", "metadata")
VERIFIER_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "in_process": ("fn_name", "expected", "params"),
    "e2b": ("dockerfile", "test_sh", "test_state_py"),
    "llm_judge": ("judge_model", "rubric"),
}
_REQUIRED: Final = {  # format -> the fields by which it is recognised
    "harbor_task": ("task_id", "verifier"),
    "prompt_dataset": ("inputs", "expected"),
    "chat_messages": ("messages",),
}


def harbor_task_from_dict(row: Any) -> HarborTask:
    """The task in a decoded row; unknown fields are ignored.

    >>> harbor_task_from_dict({"task_id": 1, "instruction": "2 + 2?", "verifier": {"kind": "e2b"}}).task_id
    1
    """
    if not isinstance(row, Mapping):
        raise WrongType(f"a task is {_shown(row)}; expected a JSON object")
    for name in ("task_id", "instruction", "verifier"):
        if name not in row:
            raise MissingField(name, "expected task_id, instruction and verifier")
    verifier = _verifier(row["verifier"])
    return HarborTask(row["task_id"], row["instruction"], verifier, object_of(row.get("metadata"), "metadata"))


def to_dict(task: HarborTask) -> dict[str, Any]:
    """The row of a task, including the verifier's ``kind``."""
    return asdict(task)


def detect_format(row: Any) -> str:
    """``harbor_task``, ``prompt_dataset`` or ``chat_messages``, by the fields a row has; else ``unknown``."""
    if isinstance(row, Mapping):
        for fmt, required in _REQUIRED.items():
            if all(name in row for name in required):
                return fmt
    return "unknown"


def parse_rows(rows: Iterable[Any], fmt: str) -> list[HarborTask] | list[dict[str, Any]]:
    """The rows of one format: `HarborTask` objects for ``harbor_task``, else the checked rows themselves.

    An InputError names an invalid row by its number, counted from 0.
    """
    if fmt not in _REQUIRED:
        raise UnknownName.of("format of rows", fmt, _REQUIRED)
    parse: Callable[[Any], Any] = harbor_task_from_dict if fmt == "harbor_task" else partial(_checked_row, fmt)
    parsed = []
    for number, row in enumerate(rows):
        try:
            parsed.append(parse(row))
        except TaskFault as fault:
            raise fault.placed(f"row {number}", fault.right) from None
    return parsed


def _checked_row(fmt: str, row: Any) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        raise WrongType(f"it is {_shown(row)}; expected a JSON object")
    for name in _REQUIRED[fmt]:
        if name not in row:
            raise MissingField(name)
    return dict(row)


def as_task(task: HarborTask) -> Task:
    """The task in Calipers' form: its id is text, its prompt is text or chat messages; InputError for other values."""
    number = isinstance(task.task_id, int) and not isinstance(task.task_id, bool)
    if not number and not isinstance(task.task_id, str):
        raise TaskFault(f"task_id is {_shown(task.task_id)}", "expected text or an integer")
    name, prompt, verifier = str(task.task_id), _prompt(task.instruction), task.verifier
    params = verifier.params if isinstance(verifier, InProcessVerifier) else {}
    for field_name, mapping in (("metadata", task.metadata), ("verifier.params", params)):
        if not all(isinstance(key, str) for key in mapping):  # a list of pairs may have other keys
            raise TaskFault(f"{field_name} is {_shown(mapping)}", "expected an object with names that are text")
    if isinstance(verifier, InProcessVerifier):
        if not isinstance(verifier.fn_name, str):
            raise TaskFault(f"fn_name is {_shown(verifier.fn_name)}", "expected the name of a verifier")
        return Task(
            name,
            prompt,
            intern(verifier.fn_name),
            verifier.expected,
            verifier.params or _EMPTY,
            task.metadata or _EMPTY,
        )
    if isinstance(verifier, E2BVerifier):
        files = {"dockerfile": verifier.dockerfile, "test_sh": verifier.test_sh}
        params = {**files, "test_state_py": verifier.test_state_py}
        return Task(name, prompt, "test_sh", params=params, metadata=task.metadata)
    if isinstance(verifier, LLMJudgeVerifier):
        params = {"judge_model": verifier.judge_model, "rubric": verifier.rubric}
        return Task(name, prompt, "llm_judge", params=params, metadata=task.metadata)
    if verifier is not None:
        raise WrongType(f"unknown verifier type: {type(verifier).__name__}")
    return Task(name, prompt, metadata=task.metadata)


def from_task(task: Task) -> HarborTask:
    """A task of ours in EvSys' form, with an in-process verifier or none."""
    verifier = None if task.verifier is None else InProcessVerifier(task.verifier, task.target, dict(task.params))
    return HarborTask(task.id, task.prompt, verifier, dict(task.metadata))


def iter_jsonl(path: str | Path) -> Iterator[Any]:
    """The rows of a JSON Lines file, decoded one at a time; only the newline character separates rows."""
    for _, row in json_lines(Path(path)):
        yield row


def _verifier(payload: Any) -> Verifier:
    if not isinstance(payload, Mapping):
        raise NoObject(f"verifier is {_shown(payload)}; expected an object with a kind")
    kind = payload.get("kind")
    if kind == "in_process":
        if "fn_name" not in payload:
            raise MissingField("fn_name", "expected the name of a verifier")
        return InProcessVerifier(
            payload["fn_name"], payload.get("expected"), object_of(payload.get("params"), "verifier.params")
        )
    if kind == "e2b":
        return E2BVerifier(**{name: payload.get(name, "") for name in VERIFIER_FIELDS["e2b"]})
    if kind == "llm_judge":
        return LLMJudgeVerifier(**{name: payload.get(name, "") for name in VERIFIER_FIELDS["llm_judge"]})
    raise TaskFault(f"unknown verifier kind: {kind!r}", f"expected {', '.join(VERIFIER_FIELDS)}")


def object_of(value: Any, what: str) -> dict[str, Any]:
    """A mapping or a list of pairs as a new dict; an empty or absent value is an empty dict."""
    try:
        return dict(value or {})
    except (TypeError, ValueError) as error:
        kind = WrongType if isinstance(error, TypeError) else TaskFault
        raise kind(f"{what} is {_shown(value)}; expected an object") from None


def _prompt(instruction: Any) -> Prompt:
    if isinstance(instruction, str):
        return instruction
    if isinstance(instruction, Sequence) and instruction and all(map(_is_message, instruction)):
        return list(instruction)
    expected = "expected text, or a list of chat messages, each with a role and a content"
    raise TaskFault(f"instruction is {_shown(instruction)}", expected)


def _is_message(turn: Any) -> bool:
    return isinstance(turn, Mapping) and isinstance(turn.get("role"), str) and "content" in turn


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value, default=str)
    except (RecursionError, TypeError, ValueError):
        text = "an object that JSON cannot encode"
    return text if len(text) <= 60 else text[:57] + "..."
