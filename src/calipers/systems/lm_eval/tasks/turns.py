"""How a prompt is written: as one text, or as the turns of a chat, exactly as lm-evaluation-harness writes them.

::

    system instruction and description ── question ── answer ── question ── answer ── question ── how it begins
    text                                  one after another, each with its delimiter
    chat, several turns    [system]       [user]      [assistant] ...                 [user]      [assistant]
    chat, one turn         [system]       [user: all examples and the question]                   [assistant]

An answer's beginning, ``gen_prefix``, is a turn of the assistant that the model goes on with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from calipers.tasks.task import Message, Prompt


@dataclass(frozen=True, slots=True)
class Manner:
    """How the prompts of a task are written."""

    chat: bool = False  # as turns, for a chat template or a chat server
    multiturn: bool = True  # in a chat, each example is turns of its own
    system: str | None = None  # words before the description


PLAIN: Final = Manner()


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """A part of a prompt: who says it, and what parts it from the next one where all is one text."""

    role: str
    content: str
    delimiter: str = ""

    @property
    def message(self) -> Message:
        """It as a turn of a chat."""
        return {"role": self.role, "content": self.content}


def prompt(turns: Sequence[ChatTurn], manner: Manner) -> Prompt:
    """The turns as they are sent: a text, or a list of messages.

    >>> turns = [ChatTurn("user", "1 + 1", " "), ChatTurn("assistant", "2", "; "), ChatTurn("user", "2 + 2", " ")]
    >>> prompt(turns, PLAIN)
    '1 + 1 2; 2 + 2 '
    >>> prompt(turns, Manner(chat=True, multiturn=False))
    [{'role': 'user', 'content': '1 + 1 2; 2 + 2'}]
    """
    if not manner.chat:
        return _text(turns)
    return [turn.message for turn in (turns if manner.multiturn else _single(turns))]


def _single(turns: Sequence[ChatTurn]) -> list[ChatTurn]:
    """The turns between the system's and the beginning of the answer as one; nothing follows its last words."""
    first = 1 if turns[0].role == "system" else 0
    end = len(turns) - (turns[-1].role == "assistant")
    *before, last = turns[first:end]
    return [*turns[:first], ChatTurn("user", _text(before) + last.content), *turns[end:]]


def _text(turns: Sequence[ChatTurn]) -> str:
    return "".join(turn.content + turn.delimiter for turn in turns)
