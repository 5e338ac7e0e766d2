"""NeMo Gym's rows as its files hold them: their keys, every struct of them, and what an index may be."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import astuple

from calipers.formats import Raw
from calipers.formats.lines import NOTHING, UNREADABLE, Kinds, LineError, odd_key, struct_of, union, unreadable
from calipers.formats.repeated_keys import Doubled, said_twice, twice
from calipers.rollouts.record import named, shown
from calipers.systems.nemo_gym import AGENT, FAILURE, LEAST_INT, MOST_INT, PARAMS, REWARD, ROLLOUT, TASK, TERMINAL

MIXED: Final = "task indices are text in some rows and numbers in others; expected only one of the two"
TARGETS: Final = ("target", "expected_answer", "expected")
"""Where a row may hold what the answer is compared with; the first that is there counts."""
TEXTS: Final = ("input_text", "output_text", "text")  # kinds of a part of a message that is text
_USAGE = attrgetter("f0")  # of a response
_NUMBER = int | float | bool


def as_index(value: Any) -> Any:
    """An index as the integer it is: NeMo Gym takes 3.0 for 3. Anything else as it stands.

    >>> as_index(3.0), as_index(3.5), as_index("3.0")
    (3, 3.5, '3.0')
    """
    return int(value) if isinstance(value, float) and value.is_integer() else value


def index_fault(key: str, value: Any) -> tuple[str, str] | None:
    """What is wrong with a task or rollout index, and what would be right; None for a good one."""
    value = as_index(value)
    right = "expected an integer" if key == ROLLOUT else "expected an integer or text"
    if value is UNSET:
        return f"no key {key!r}", right
    if isinstance(value, bool) or not isinstance(value, int if key == ROLLOUT else (int, str)):
        return f"{key} is {shown(value)}", right
    if isinstance(value, int) and not LEAST_INT <= value <= MOST_INT:
        return f"{key} is {shown(value)}", f"{right} of at most 64 bits"
    return None


def agent_name(row: Mapping[str, Any]) -> str | None:
    """The agent that a row names, if it is text."""
    agent = row.get(AGENT)
    name = agent.get("name") if isinstance(agent, Mapping) else None
    return name if isinstance(name, str) else None


def target_of(row: Mapping[str, Any]) -> Any:
    """What an answer to the row is compared with; None where the row says nothing of it."""
    return next((row[key] for key in TARGETS if key in row), None)


def response_object(
    name: str,
    model: str,
    content: Mapping[str, Any],
    *,
    created: float,
    cut: bool,
    usage: Mapping[str, Any] | None,
    before: Sequence[Any] = (),
) -> dict[str, Any]:
    """An object of OpenAI's Responses API with one message, and the items before it."""
    message = {"id": f"msg_{name}", "type": "message", "role": "assistant", "status": "completed", "content": [content]}
    return {
        "id": f"resp_{name}",
        "object": "response",
        "created_at": float(created),
        "model": model,
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": [*before, message],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": usage,
    }


def response_usage(given: int, made: int, total: int, cached: int = 0, reasoning: int = 0) -> dict[str, Any]:
    """How many tokens an object of the Responses API counts: those of the input and those of the output."""
    return {
        "input_tokens": given,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": total,
    }


def too_large(key: str, value: int) -> tuple[str, str]:
    """The fault of a number beyond 64 bits."""
    return f"{named(key)} is {shown(value)}", "expected an integer of at most 64 bits"


def check_once(number: int, line: bytes) -> None:
    """LineError for a line with a key twice: at its top, or in the usage of its response."""
    try:
        key = twice(line, ("response.usage",))
    except RecursionError as error:
        raise LineError(number, *unreadable(error)) from None
    if key is not None:
        raise LineError(number, *said_twice(key))


def decoded(number: int, line: bytes) -> dict[str, Any]:
    """A line as Python reads JSON; LineError for one that is no row, or has a key twice."""
    odd = Doubled()
    try:
        row = json.loads(line.decode(), object_pairs_hook=odd)
        json.dumps(row, ensure_ascii=False).encode()
    except UNREADABLE as error:
        raise LineError(number, *unreadable(error)) from None
    except ValueError:  # an integer of thousands of digits
        raise LineError(number, "a number is out of range", "expected an integer of at most 64 bits") from None
    if not isinstance(row, dict):
        raise LineError(number, "a rollout is not an object", "expected one JSON object per line")
    if odd.found:
        check_once(number, line)
    return row


class GymAgent(msgspec.Struct, gc=False):
    """Who ran a rollout."""

    name: str | None = None


class CompanionRow(msgspec.Struct, gc=False):
    """A failed attempt or a planned rollout, in a file beside the rollouts."""

    task: int | float | str = msgspec.field(name=TASK)
    rollout: int | float = msgspec.field(name=ROLLOUT)
    agent: GymAgent | None = msgspec.field(name=AGENT, default=None)
    failure: str | None = msgspec.field(name=FAILURE, default=None)


class CreateParams(msgspec.Struct, gc=False):
    """What a model was asked, as far as it is text."""

    input: Raw = NOTHING


class TextRow(msgspec.Struct, gc=False):
    """A rollout, as far as it says something."""

    task: int | float | str = msgspec.field(name=TASK, default="")
    sample: int | float = msgspec.field(name=ROLLOUT, default=0)
    agent: GymAgent | None = msgspec.field(name=AGENT, default=None)
    params: Raw = msgspec.field(name=PARAMS, default=NOTHING)
    response: Raw = NOTHING


class StoredRow(msgspec.Struct, gc=False):
    """The keys of a row that continuing a collection asks for; all others are passed over."""

    task: int | float | str = msgspec.field(name=TASK)  # a planned 3.0 is written as it is planned
    rollout: int | float = msgspec.field(name=ROLLOUT)
    failure: str | None = msgspec.field(name=FAILURE, default=None)
    terminal: bool | None = msgspec.field(name=TERMINAL, default=None)


class AggregateRequest(msgspec.Struct):
    """What ``/aggregate_metrics`` is sent: the stripped rows of one agent, not decoded yet."""

    verify_responses: list[Raw]


class GymSchema:
    """The keys and kinds of value seen so far, and a decoder for exactly those.

    ``raws`` are the keys whose values somebody asked for: they are kept as raw JSON.
    """

    ids_elsewhere = "expected ids as values, not as keys"
    skips = True  # the response, above all

    def __init__(self, raws: Collection[str]) -> None:
        self.raws = raws
        self.kinds, self.usage = Kinds(), Kinds()  # of the keys of a row, and of its response's usage
        self.rebuild()

    def learn(self, number: int, line: bytes) -> bool:
        """Widen the schema to one line; LineError for one that is no row."""
        return self.learn_row(decoded(number, line))

    def learn_row(self, row: Mapping[str, Any]) -> bool:
        """Widen the schema to one row; False when it knew all of it, or a struct cannot say it."""
        response = row.get("response")
        usage = response.get("usage") if isinstance(response, dict) else None
        usage = usage if isinstance(usage, dict) else {}
        if odd_key([*row, *usage]) is not None:
            return False
        learnt = False
        for kinds, values in ((self.kinds, row), (self.usage, usage)):
            for key, value in values.items():
                learnt |= kinds.learn(key, _kind(value))
        return learnt

    def size(self) -> tuple[int, int]:
        """How many columns of numbers the schema holds, and how many keys."""
        indices = sum("number" in self.kinds.get(key, ()) for key in (TASK, ROLLOUT))
        return self.kinds.numeric - indices + self.usage.numeric, len(self.kinds) + len(self.usage)

    def sound(self, columns: Sequence[Sequence[Any]]) -> bool:
        """Whatever is passed over may be anything."""
        return True

    def refuse(self, number: int, line: bytes) -> None:
        """Nothing: a line that never fits is read as Python reads JSON."""

    def rebuild(self) -> None:
        """Make the decoder for what is known now; `fields` says what stands where in its rows."""
        self.fields: list[tuple[str, str]] = [("task", TASK), ("rollout", ROLLOUT)]  # (what, key)
        spec: list[Any] = [(TASK, int | float | str, msgspec.NODEFAULT), (ROLLOUT, int | float, msgspec.NODEFAULT)]
        for key, kinds in self.kinds.items():
            if key not in (TASK, ROLLOUT):
                what, kind = self._field(key, kinds)
                spec.append((key, kind, NOTHING if what == "raw" else UNSET))
                self.fields.append((what, key))
        self.decoder = msgspec.json.Decoder(struct_of("Row", spec))

    def _field(self, key: str, kinds: set[str]) -> tuple[str, Any]:
        if key in self.raws:
            return "raw", Raw
        if key == "response":
            return "response", self._response() | None
        if key == AGENT:
            return "agent", GymAgent | None
        if key == FAILURE:
            return "failure", str | None
        if key == REWARD and kinds != {"number"}:
            return "number", Any  # NeMo Gym shows a reward as it is, whatever it is
        return "number" if "number" in kinds else "other", union(kinds, _NUMBER)

    def _response(self) -> Any:
        usage = struct_of("Usage", [(key, union(kinds, _NUMBER), UNSET) for key, kinds in self.usage.items()])
        return struct_of("Response", [("usage", usage | None, None)], strict=False)


def usages(responses: Sequence[Any], size: int) -> list[tuple[Any, ...]]:
    """The values of each response's usage, UNSET where it has none."""
    try:
        return list(map(astuple, map(_USAGE, responses)))
    except (AttributeError, TypeError):  # some have no usage, or are no response at all
        nothing = (UNSET,) * size
        return [astuple(response.f0) if response and response.f0 else nothing for response in responses]


def count_given(column: Sequence[Any]) -> int:
    """How many values there are, null among them."""
    return len(column) - (list(map(type, column)).count(UnsetType) if UnsetType in set(map(type, column)) else 0)


def _kind(value: Any) -> str:
    """The kind of a value, "" for null."""
    for kind, types in (("text", str), ("object", dict), ("list", list), ("number", (int, float))):
        if isinstance(value, types):
            return kind
    return ""
