"""EvSys' benchmark row: a task and its verifier, and how both are read.

A row that is no task is an `InputError`. It is also the Python error that EvSys raises there, so
that code which catches that one still does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from sys import intern
from typing import Any, Final, TypeVar

from calipers.errors import InputError, UnknownName
from calipers.formats.source import json_lines
from calipers.tasks.task import Prompt, Task

T = TypeVar("T")

_NONE: Final[dict[str, Any]] = {}  # shared by all tasks that say nothing: two empty ones each are 13 MB in 100,000


class TaskFault(InputError):
    """A row that is no task: what is wrong and, apart from it, what would be right."""

    def __init__(self, wrong: str, right: str = "") -> None:
        super().__init__(wrong)
        self.right = right

    def placed(self, where: str, right: str = "") -> InputError:
        """The same error with its place before it; one of a file is no KeyError, which would be shown in quotes."""
        text = f"{where}: {self}; {right}" if right else f"{where}: {self}"
        return InputError(text) if isinstance(self, KeyError) else type(self)(text)


class MissingField(TaskFault, KeyError):
    """A row without a field that every row has; its text is the field's name in quotes, as a KeyError's is."""


class WrongType(TaskFault, TypeError):
    """A value of a kind that cannot be used here."""


class NoObject(TaskFault, AttributeError):
    """Something other than an object where fields are looked up."""


@dataclass(frozen=True, slots=True)
class InProcessVerifier:
    """A function, by name, that compares the completion with what is expected."""

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
    """One task as EvSys has it. Nothing is checked: a row of a file may hold any JSON."""

    task_id: Any
    instruction: Any
    verifier: Verifier | None = None  # None: completions are wanted, nobody judges them
    metadata: dict[str, Any] = field(default_factory=dict)


FIELDS: Final = ("task_id", "instruction", "verifier", "metadata")
VERIFIER_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "in_process": ("fn_name", "expected", "params"),
    "e2b": ("dockerfile", "test_sh", "test_state_py"),
    "llm_judge": ("judge_model", "rubric"),
}
_NEEDED: Final = {  # format -> the fields that tell it
    "harbor_task": ("task_id", "verifier"),
    "prompt_dataset": ("inputs", "expected"),
    "chat_messages": ("messages",),
}


def harbor_task_from_dict(row: Any) -> HarborTask:
    """The task that a decoded row is; fields that mean nothing are passed over.

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
    """The row that a task is, the verifier's ``kind`` included."""
    return asdict(task)


def detect_format(row: Any) -> str:
    """``harbor_task``, ``prompt_dataset`` or ``chat_messages``, by the fields a row has; else ``unknown``."""
    if isinstance(row, Mapping):
        for fmt, needed in _NEEDED.items():
            if all(name in row for name in needed):
                return fmt
    return "unknown"


def parse_rows(rows: Iterable[Any], fmt: str) -> list[HarborTask] | list[dict[str, Any]]:
    """The rows of one format: as tasks where they are tasks, else as they are; InputError names a bad row by number."""
    if fmt not in _NEEDED:
        raise UnknownName.of("format of rows", fmt, _NEEDED)
    if fmt == "harbor_task":
        return [_numbered(harbor_task_from_dict, row, number) for number, row in enumerate(rows)]
    return [_numbered(_whole(fmt), row, number) for number, row in enumerate(rows)]


def _whole(fmt: str) -> Callable[[Any], dict[str, Any]]:
    def checked(row: Any) -> dict[str, Any]:
        if not isinstance(row, Mapping):
            raise WrongType(f"it is {_shown(row)}; expected a JSON object")
        for name in _NEEDED[fmt]:
            if name not in row:
                raise MissingField(name)
        return dict(row)

    return checked


def _numbered(parse: Callable[[Any], T], row: Any, number: int) -> T:
    try:
        return parse(row)
    except TaskFault as fault:
        raise fault.placed(f"row {number}", fault.right) from None


def as_task(task: HarborTask) -> Task:
    """The task as Calipers has it: its id is text, its prompt text or chat messages; InputError for any other."""
    number = isinstance(task.task_id, int) and not isinstance(task.task_id, bool)
    if not number and not isinstance(task.task_id, str):
        raise TaskFault(f"task_id is {_shown(task.task_id)}", "expected text or an integer")
    name, prompt, verifier = str(task.task_id), _prompt(task.instruction), task.verifier
    if isinstance(verifier, InProcessVerifier):
        if not isinstance(verifier.fn_name, str):
            raise TaskFault(f"fn_name is {_shown(verifier.fn_name)}", "expected the name of a verifier")
        return Task(
            name, prompt, intern(verifier.fn_name), verifier.expected, verifier.params or _NONE, task.metadata or _NONE
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
    """The row that a task of ours is, one that a function judges or nobody."""
    verifier = None if task.verifier is None else InProcessVerifier(task.verifier, task.target, dict(task.params))
    return HarborTask(task.id, task.prompt, verifier, dict(task.metadata))


def iter_jsonl(path: str | Path) -> Iterator[Any]:
    """The rows of a JSON Lines file, decoded one at a time; only a newline ends a row."""
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
    """A copy of a mapping, or of a list of pairs; anything that is empty or absent is empty."""
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
    right = "expected text, or a list of chat messages, each with a role and a content"
    raise TaskFault(f"instruction is {_shown(instruction)}", right)


def _is_message(turn: Any) -> bool:
    return isinstance(turn, Mapping) and isinstance(turn.get("role"), str) and "content" in turn


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value, default=str)
    except (RecursionError, TypeError, ValueError):
        text = "an object that JSON cannot encode"
    return text if len(text) <= 60 else text[:57] + "..."
