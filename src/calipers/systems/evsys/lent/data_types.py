"""EvSys' rows: tasks with a verifier, conversations, examples for prompts; lent as ``evsys_sdk.data_types``.

A row that is of no format, or not of the one it should be, is an `InputError`, which is a ValueError, with its number
or its line.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from calipers.errors import UnknownName
from calipers.formats.source import json_lines
from calipers.tasks.jsonl import (
    E2BVerifier,
    HarborTask,
    InProcessVerifier,
    LLMJudgeVerifier,
    TaskFault,
    detect_format,
    harbor_task_from_dict,
    object_of,
)

__all__ = [
    "ChatMessagesRow",
    "E2BVerifier",
    "HarborTask",
    "InProcessVerifier",
    "LLMJudgeVerifier",
    "PromptExample",
    "TargetFormat",
    "VerifierPayload",
    "block_to_image_src",
    "chat_messages_row_from_dict",
    "detect_format",
    "from_dict",
    "harbor_task_from_dict",
    "has_images",
    "image_base64_block",
    "image_url_block",
    "iter_jsonl",
    "parse_rows",
    "prompt_example_from_dict",
    "text_block",
    "to_dict",
]

VerifierPayload = InProcessVerifier | E2BVerifier | LLMJudgeVerifier


class TargetFormat(str, enum.Enum):  # noqa: UP042 - its text is EvSys', not the bare value
    """What the rows of a dataset are."""

    CHAT_MESSAGES = "chat_messages"
    HARBOR_TASK = "harbor_task"
    PROMPT_DATASET = "prompt_dataset"


@dataclass(frozen=True)
class ChatMessagesRow:
    """A conversation; a message's content is text, or a list of blocks of text and images."""

    messages: list[dict[str, Any]]
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PromptExample:
    """Named inputs of a prompt, and what is expected of it."""

    inputs: dict[str, Any]
    expected: Any
    metadata: dict[str, Any] = field(default_factory=dict)


Row = ChatMessagesRow | HarborTask | PromptExample


def text_block(text: str) -> dict[str, Any]:
    """A block of text."""
    return {"type": "text", "text": text}


def image_url_block(url: str, *, detail: str | None = None) -> dict[str, Any]:
    """An image by its address, as OpenAI's interface has it."""
    return {"type": "image_url", "image_url": {"url": url} | ({"detail": detail} if detail else {})}


def image_base64_block(media_type: str, b64_data: str) -> dict[str, Any]:
    """An image by its bytes in base 64, as Anthropic's interface has it."""
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": b64_data}}


def block_to_image_src(block: Any) -> str | None:
    """The address of a block's image, a ``data:`` one for bytes; None for a block without an image.

    >>> block_to_image_src(image_base64_block("image/png", "AA=="))
    'data:image/png;base64,AA=='
    """
    kind, image = _text(block, "type"), _inner(block, "image_url")
    if kind == "image_url":
        return _text(image, "url")
    source = _inner(block, "source")
    if kind != "image":
        return None
    media_type, data = _text(source, "media_type"), _text(source, "data")
    if _text(source, "type") == "base64" and media_type is not None and data is not None:
        return f"data:{media_type};base64,{data}"
    return _text(source, "url") if _text(source, "type") == "url" else None


def has_images(row: ChatMessagesRow) -> bool:
    """Whether a message of a conversation has an image."""
    contents = [message.get("content") for message in row.messages if isinstance(message, Mapping)]
    return any(block_to_image_src(block) for content in contents if isinstance(content, list) for block in content)


def _inner(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else None


def _text(value: Any, key: str) -> str | None:
    text = _inner(value, key)
    return text if isinstance(text, str) else None


def chat_messages_row_from_dict(row: Mapping[str, Any]) -> ChatMessagesRow:
    """The conversation that a decoded row is; InputError without messages."""
    messages = row.get("messages")
    if not isinstance(messages, list) or not messages:
        raise TaskFault("a chat_messages row has no messages; expected a list of at least one")
    return ChatMessagesRow(list(messages), object_of(row.get("metadata"), "metadata"))


def prompt_example_from_dict(row: Mapping[str, Any]) -> PromptExample:
    """The example that a decoded row is."""
    inputs, metadata = (object_of(row.get(name), name) for name in ("inputs", "metadata"))
    return PromptExample(inputs, row.get("expected"), metadata)


_PARSERS: Final[Mapping[str, Callable[[Any], Row]]] = {
    "chat_messages": chat_messages_row_from_dict,
    "harbor_task": harbor_task_from_dict,
    "prompt_dataset": prompt_example_from_dict,
}


def from_dict(row: Mapping[str, Any]) -> Row:
    """The row of whatever format it has."""
    fmt = detect_format(row)
    if fmt not in _PARSERS:
        keys = ", ".join(map(str, row)) if isinstance(row, Mapping) else type(row).__name__
        raise TaskFault(f"the format of a row is unknown ({keys}); expected one of {', '.join(_PARSERS)}")
    return _PARSERS[fmt](row)


def parse_rows(rows: Iterable[Any], fmt: TargetFormat | str) -> list[Row]:
    """The rows of a format; InputError names by its number a row that is of another.

    >>> parse_rows([{"inputs": {"q": 1}, "expected": 2}], "prompt_dataset")
    [PromptExample(inputs={'q': 1}, expected=2, metadata={})]
    """
    wanted = fmt.value if isinstance(fmt, TargetFormat) else str(fmt)
    if wanted not in _PARSERS:
        raise UnknownName.of("format of rows", wanted, _PARSERS)
    parsed = []
    for number, row in enumerate(rows):
        if detect_format(row) != wanted:
            raise TaskFault(f"row {number} has format {detect_format(row)!r}; expected {wanted!r}")
        try:
            parsed.append(_PARSERS[wanted](row))
        except TaskFault as fault:
            raise fault.placed(f"row {number}", fault.right) from None
    return parsed


def to_dict(row: Row | VerifierPayload) -> dict[str, Any]:
    """The JSON object that a row, or a verifier, is."""
    return asdict(row)


def iter_jsonl(path: str | Path) -> Iterator[Row]:
    """The rows of a JSON Lines file, each of its own format, one at a time; InputError names the line of a bad one."""
    for line, row in json_lines(Path(path)):
        try:
            yield from_dict(row)
        except TaskFault as fault:
            raise fault.placed(f"{path}:{line}", fault.right) from None
