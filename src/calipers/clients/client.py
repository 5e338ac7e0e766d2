"""The interface of models: a request in, a completion out, or a `ClientError`; and how a model is named.

A spec is ``KIND/NAME``: ``openai/gpt-x``, ``replay/rollouts.jsonl``, ``python/mine.py:answer``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, cast

import msgspec

from calipers.clients.secrets import Secrets
from calipers.errors import CalipersError, ClientError, InputError, PluginError, UnknownName, nearest
from calipers.names import CLIENTS
from calipers.tasks.task import Message, Prompt

Ending = Literal["", "refused", "truncated"]
"""How a completion ended early by the model's own doing, as an outcome of the ledger; "" for a whole one."""


LOCAL_KIND: Final = "hf"  # the kind of models that are loaded in this process


class Request(msgspec.Struct, frozen=True):
    """One request to a model. ``task`` and ``sample`` identify its rollout; only `replay/` uses them.

    A struct and no dataclass, as one is made for every call: a frozen dataclass takes ten times as long.
    """

    task: str
    sample: int
    prompt: Prompt
    system: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    stop: Sequence[str] = ()
    seed: int | None = None
    extra: Mapping[str, Any] = msgspec.field(default_factory=dict)  # what --gen-kwargs adds, sent as it is

    @property
    def messages(self) -> list[Message]:
        """The prompt as the turns of a chat, the system's before them."""
        turns: list[Message] = [{"role": "system", "content": self.system}] if self.system else []
        return [*turns, *([{"role": "user", "content": self.prompt}] if isinstance(self.prompt, str) else self.prompt)]


class Completion(msgspec.Struct, frozen=True):
    """What a model returned. ``usage`` has only the known counts among `record.USAGE`, never a guess."""

    text: str
    finish_reason: str | None = None  # in the server's own word
    ending: Ending = ""
    usage: Mapping[str, float] = msgspec.field(default_factory=dict)
    asked_again: int = 0  # times that it was asked for before, of workers that were lost with it
    request_id: str | None = None  # by which the server's own log knows the call
    seed: int | None = None  # that was sent


@dataclass(frozen=True, slots=True)
class Price:
    """What a million tokens cost, in dollars."""

    input: float
    output: float

    def of(self, usage: Mapping[str, float]) -> float | None:
        """The cost of one call; None unless both counts are known."""
        if "input_tokens" not in usage or "output_tokens" not in usage:
            return None
        return (usage["input_tokens"] * self.input + usage["output_tokens"] * self.output) / 1e6


class Callers:
    """Who calls a client: how many workers there are, and how many of them wait for an answer.

    A worker waits for one answer at a time. When all of them wait, no more calls can come, so a client that answers in
    batches knows that a batch is whole. ``workers`` is None if nobody says how many there are.
    """

    def __init__(self) -> None:
        self.workers: int | None = None
        self._waiting = 0
        self._observers: list[Callable[[], None]] = []

    @property
    def all_wait(self) -> bool:
        """Whether every worker waits for an answer."""
        return self.workers is not None and self._waiting >= self.workers

    def begin(self, workers: int) -> None:
        """So many workers may call from now on."""
        self.workers = workers
        self._tell()

    def leave(self) -> None:
        """A worker will not call again."""
        self.begin(max((self.workers or 0) - 1, 0))

    def wait(self) -> None:
        """A worker waits for an answer."""
        self._waiting += 1
        self._tell()

    def answered(self) -> None:
        """A worker has its answer, or has given up."""
        self._waiting -= 1

    def observe(self, changed: Callable[[], None]) -> None:
        """Have a function called whenever a worker begins to wait, or their number changes."""
        self._observers.append(changed)

    def _tell(self) -> None:
        for changed in self._observers:
            changed()


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach a model: the argument of every ``connect(name, connection) -> Client``."""

    base_url: str | None = None  # None: the kind's own default
    api: Literal["chat", "completions"] = "chat"
    timeout: float = 600.0  # seconds for one call, from the first byte sent to the last received
    most: int = 64  # calls in flight at once
    price: Price | None = None
    secrets: Secrets = field(default_factory=Secrets)  # a client adds the keys it uses
    template: str | None = None  # of a local model, for chats as lm-evaluation-harness writes them; "": its own
    model_args: Mapping[str, Any] = field(default_factory=dict)  # how a local model is loaded, by its own names
    trust: bool = False  # the user trusts code that comes with the model
    callers: Callers = field(default_factory=Callers)  # of a local model, which answers in batches


class Client(Protocol):
    """A model. ``complete`` is called by many workers of one event loop at once."""

    async def complete(self, request: Request) -> Completion:
        """The model's completion; `ClientError` if the request fails in any way."""
        ...

    async def close(self) -> None:
        """Close connections; called once, after the last request."""
        ...


def as_text(request: Request, instead: str) -> str:
    """The prompt, the system's words before it and a blank line between; ClientError for a chat.

    ``instead`` says what would take a chat. Turns are not joined: which words tell them apart is
    the model's own affair, and a guess would change what is measured.
    """
    if not isinstance(request.prompt, str):
        raise ClientError(f"the prompt is a chat, but only text can be sent; {instead}", kind="prompt")
    return f"{request.system}\n\n{request.prompt}" if request.system else request.prompt


def connect(spec: str, connection: Connection) -> Client:
    """The client of a model. It sends nothing yet, but checks what can be checked before the first request.

    The kind is built in, or an entry point of the group ``calipers.clients``: a function
    ``connect(name, connection)``, where the name is all that follows the first slash.
    """
    kind, name = _parts(spec)
    if connection.model_args and kind != LOCAL_KIND:
        raise InputError.at("--model-args", f"{spec} takes none", f"expected {LOCAL_KIND}/PATH, or no arguments")
    if CLIENTS.match(kind):
        return cast(Client, CLIENTS.load(kind)(name, connection))
    factory = CLIENTS.plugin(kind)
    if factory is None:
        raise _unknown(kind, spec)
    from calipers.clients.python import guarded

    try:
        client = factory(name, connection)
    except CalipersError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(f"model {spec!r}: the plugin failed: {type(error).__name__}: {error}") from error
    return guarded(client, spec, connection)


def _parts(spec: str) -> tuple[str, str]:
    kind, slash, name = spec.strip().partition("/")
    if slash and kind and name:
        return kind, name
    if CLIENTS.match(kind):
        raise InputError(f"model {spec!r} has no name; expected {kind}/NAME")
    raise _unknown("", spec)


def _unknown(kind: str, spec: str) -> UnknownName:
    """A spec nobody can serve: which kinds there are, and what was probably meant."""
    kinds = CLIENTS.names()
    close = nearest(kind, kinds, most=1)
    example = f"{close[0]}/{spec.strip().partition('/')[2]}" if close else f"openai/{spec.strip().strip('/') or 'NAME'}"
    hint = f"did you mean {example!r}?" if close else f"expected KIND/NAME, such as {example!r}"
    error = CLIENTS.unknown(kind, hint=hint)
    message = str(error) if kind else f"model {spec!r} does not start with a kind; {hint}"
    return UnknownName(f"{message} (kinds: {', '.join(kinds)})")
