"""The wire format of NeMo Gym's rows: their keys, their structs, and the checks of their indices."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET
from msgspec.structs import astuple

from calipers.errors import VerifierError
from calipers.formats import Raw
from calipers.formats.lines import NOTHING, UNREADABLE, Kinds, LineError, odd_key, struct_of, union, unreadable
from calipers.formats.repeated_keys import KeyCheck, repeated_key, repeated_key_fault
from calipers.rollouts.record import CODE, FIRST_GAP, FIRST_NIL, SCORED, named, shown
from calipers.systems.nemo_gym import AGENT, FAILURE, LEAST_INT, MOST_INT, PARAMS, REWARD, ROLLOUT, TASK, TERMINAL
from calipers.typed import complete

if TYPE_CHECKING:
    from calipers.verifiers import Verdict

MIXED: Final = "task indices are text in some rows and numbers in others; expected only one of the two"
TARGETS: Final = ("target", "expected_answer", "expected")
"""The keys of the target of a row; the first that the row has counts."""
TEXTS: Final = ("input_text", "output_text", "text")  # the types of a message part that is text
_USAGE = attrgetter("f0")  # the only field of the struct that `_response` defines
_NUMBER = int | float | bool


def as_index(value: Any) -> Any:
    """An index with a whole float turned into an integer, because NeMo Gym accepts 3.0 for 3.

    >>> as_index(3.0), as_index(3.5), as_index("3.0")
    (3, 3.5, '3.0')
    """
    return int(value) if isinstance(value, float) and value.is_integer() else value


def index_fault(key: str, value: Any) -> tuple[str, str] | None:
    """The problem with a task or rollout index, and what was expected; None if the index is valid."""
    value = as_index(value)
    expected = "expected an integer" if key == ROLLOUT else "expected an integer or text"
    if value is UNSET:
        return f"no key {key!r}", expected
    if isinstance(value, bool) or not isinstance(value, int if key == ROLLOUT else (int, str)):
        return f"{key} is {shown(value)}", expected
    if isinstance(value, int) and not LEAST_INT <= value <= MOST_INT:
        return f"{key} is {shown(value)}", f"{expected} of at most 64 bits"
    return None


def agent_name(row: Mapping[str, Any]) -> str | None:
    """The name of a row's agent; None unless it is text."""
    agent = row.get(AGENT)
    name = agent.get("name") if isinstance(agent, Mapping) else None
    return name if isinstance(name, str) else None


def target_of(row: Mapping[str, Any]) -> Any:
    """The target that an answer to the row is compared with; None if the row has none."""
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
    """A response object of OpenAI's Responses API with one message, after the items ``before``."""
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


def response_usage(read: int, written: int, total: int, cached: int = 0, reasoning: int = 0) -> dict[str, Any]:
    """The usage of a response object: its counts of input and output tokens."""
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": total,
    }


def verdict_keys(verdict: Verdict) -> dict[str, Any]:
    """The keys that a verdict adds to a row. VerifierError if its outcome is missing data, or it has no single reward.

    An outcome that is the model's own failure, such as a text without an answer, is worth 0 if there is no reward.
    """
    code, reward = CODE[verdict.outcome or "scored"], verdict.reward
    if code >= FIRST_GAP:
        raise VerifierError(f"the verifier's verdict is {verdict.outcome}", outcome=verdict.outcome)
    if reward is None and len(verdict.rewards) == 1:
        (reward,) = verdict.rewards.values()
    if code >= FIRST_NIL or (reward is None and code != SCORED and not verdict.rewards):
        reward = 0.0
    if reward is None:
        raise VerifierError("the verdict has no single reward")
    keys: dict[str, Any] = {**verdict.fields, REWARD: reward}
    if verdict.rewards:
        keys["reward_components"] = dict(verdict.rewards)
    return keys if verdict.answer is None else {**keys, "extracted_answer": verdict.answer}


def too_large(key: str, value: int) -> tuple[str, str]:
    """The problem with an integer beyond 64 bits, and what was expected."""
    return f"{named(key)} is {shown(value)}", "expected an integer of at most 64 bits"


def check_once(number: int, line: bytes) -> None:
    """Raise LineError if a line has a key twice, at its top level or in the usage of its response."""
    try:
        key = repeated_key(line, ("response.usage",))
    except RecursionError as error:
        raise LineError(number, *unreadable(error)) from None
    if key is not None:
        raise LineError(number, *repeated_key_fault(key))


def decoded(number: int, line: bytes) -> dict[str, Any]:
    """A line as Python's parser reads it, NaN included; LineError if it is not a row, or has a key twice."""
    doubled = KeyCheck()
    try:
        row = json.loads(line.decode(), object_pairs_hook=doubled)
        json.dumps(row, ensure_ascii=False).encode()
    except UNREADABLE as error:
        raise LineError(number, *unreadable(error)) from None
    except ValueError:  # an integer of thousands of digits
        raise LineError(number, "a number is out of range", "expected an integer of at most 64 bits") from None
    if not isinstance(row, dict):
        raise LineError(number, "a rollout is not an object", "expected one JSON object per line")
    if doubled.repeats:
        check_once(number, line)
    return row


class GymAgent(msgspec.Struct, gc=False):
    """The agent of a rollout."""

    name: str | None = None


class CompanionRow(msgspec.Struct, gc=False):
    """A failed attempt or a planned rollout in a file beside the rollouts."""

    task: int | float | str = msgspec.field(name=TASK)
    rollout: int | float = msgspec.field(name=ROLLOUT)
    agent: GymAgent | None = msgspec.field(name=AGENT, default=None)
    failure: str | None = msgspec.field(name=FAILURE, default=None)


class CreateParams(msgspec.Struct, gc=False):
    """The request to a model: its messages."""

    input: Raw = NOTHING


class TextRow(msgspec.Struct, gc=False):
    """The texts of a rollout, and what identifies it."""

    task: int | float | str = msgspec.field(name=TASK, default="")
    sample: int | float = msgspec.field(name=ROLLOUT, default=0)
    agent: GymAgent | None = msgspec.field(name=AGENT, default=None)
    params: Raw = msgspec.field(name=PARAMS, default=NOTHING)
    response: Raw = NOTHING


class StoredRow(msgspec.Struct, gc=False):
    """The keys of a row that resuming a collection needs; other keys are skipped."""

    task: int | float | str = msgspec.field(name=TASK)  # a float, because a planned 3.0 is written as 3.0
    rollout: int | float = msgspec.field(name=ROLLOUT)
    failure: str | None = msgspec.field(name=FAILURE, default=None)
    terminal: bool | None = msgspec.field(name=TERMINAL, default=None)
    agent: Raw = msgspec.field(name=AGENT, default=NOTHING)
    response: Raw = NOTHING


class ResponseModel(msgspec.Struct, gc=False):
    """The model in the response of a rollout."""

    model: str = ""


class AggregateRequest(msgspec.Struct):
    """The request body of ``/aggregate_metrics``: the stripped rows of one agent, not yet decoded."""

    verify_responses: list[Raw]


class GymSchema:
    """The keys and kinds of value seen so far, and a decoder for exactly these.

    ``raws`` are keys that labels or columns were requested of: their values are kept as raw JSON.
    """

    ids_elsewhere = "expected ids as values, not as keys"
    skips = True  # undeclared parts of a row are skipped, most of all in the response

    def __init__(self, raws: Collection[str]) -> None:
        self.raws = raws
        self.kinds, self.usage = Kinds(), Kinds()  # the keys of rows, and those of their usage
        self.rebuild()

    def learn(self, number: int, line: bytes) -> bool:
        """Extend the schema to fit one line; LineError if it is not a row."""
        return self.learn_row(decoded(number, line))

    def learn_row(self, row: Mapping[str, Any]) -> bool:
        """Extend the schema to fit one row; False if it already did, or if no struct can have the row's keys."""
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
        """The number of numeric columns in the schema, and the number of its keys."""
        indices = sum("number" in self.kinds.get(key, ()) for key in (TASK, ROLLOUT))
        return self.kinds.numeric - indices + self.usage.numeric, len(self.kinds) + len(self.usage)

    def sound(self, columns: Sequence[Sequence[Any]]) -> bool:
        """Accept all columns: the values of skipped keys may be anything."""
        return True

    def refuse(self, number: int, line: bytes) -> None:
        """Accept the line: one that the decoder cannot fit is read with Python's parser."""

    def rebuild(self) -> None:
        """Build the decoder for the keys known now, and `fields`, which names the role and the key of each column."""
        self.fields: list[tuple[str, str]] = [("task", TASK), ("rollout", ROLLOUT)]  # (role, key)
        spec: list[Any] = [(TASK, int | float | str, msgspec.NODEFAULT), (ROLLOUT, int | float, msgspec.NODEFAULT)]
        for key, kinds in self.kinds.items():
            if key not in (TASK, ROLLOUT):
                role, kind = self._field(key, kinds)
                spec.append((key, kind, NOTHING if role == "raw" else UNSET))
                self.fields.append((role, key))
        self.decoder = msgspec.json.Decoder(complete(struct_of("Row", spec)))

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
            return "number", Any  # NeMo Gym shows a reward unchanged, whatever its type
        return "number" if "number" in kinds else "other", union(kinds, _NUMBER)

    def _response(self) -> Any:
        usage = struct_of("Usage", [(key, union(kinds, _NUMBER), UNSET) for key, kinds in self.usage.items()])
        return struct_of("Response", [("usage", usage | None, None)], strict=False)


def usages(responses: Sequence[Any], size: int) -> list[tuple[Any, ...]]:
    """The values of each response's usage; UNSET for keys that it does not have."""
    try:
        return list(map(astuple, map(_USAGE, responses)))
    except (AttributeError, TypeError):  # some response has no usage, or is null
        nothing = (UNSET,) * size
        return [astuple(response.f0) if response and response.f0 else nothing for response in responses]


def _kind(value: Any) -> str:
    """The kind of a value, "" for null."""
    for kind, types in (("text", str), ("object", dict), ("list", list), ("number", (int, float))):
        if isinstance(value, types):
            return kind
    return ""
