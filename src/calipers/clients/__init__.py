"""Models: on servers, on this machine, or replayed from a log.

A model has one of two interfaces: `Client` returns a completion for a request, `LikelihoodModel` returns
log-likelihoods of texts. A model is named by its spec ``KIND/NAME``: ``openai/gpt-x``, ``replay/rollouts.jsonl``,
``python/mine.py:answer``.

Log-likelihoods are encoded as a prompt and a completion::

    texts ──► prompt of a task ──► score ──► completion in the log: JSON, an object for each text

So they go through the same loop as completions, and a stored run of them can be replayed like any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from time import perf_counter
from typing import Any, Final, Literal, Protocol, cast, runtime_checkable

import msgspec

from calipers.clients.secrets import Secrets
from calipers.errors import CalipersError, ClientError, InputError, PluginError, UnknownName, nearest
from calipers.names import CLIENTS
from calipers.tasks import Message, Prompt
from calipers.typed import complete

Ending = Literal["", "refused", "truncated"]
"""How the model ended a completion early, as an outcome of the ledger; "" if it did not."""


LOCAL_KIND: Final = "hf"  # the kind of models that are loaded in this process
NONE_HERE = "likelihood"
"""The kind of the error for a server that does not return log-likelihoods."""


class Request(msgspec.Struct, frozen=True):
    """One request to a model. ``task`` and ``sample`` identify its rollout; only `replay/` uses them.

    It is a struct because one is made for every call: making a frozen dataclass takes ten times as long.
    """

    task: str
    sample: int
    prompt: Prompt
    system: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    stop: Sequence[str] = ()
    seed: int | None = None
    extra: Mapping[str, Any] = msgspec.field(default_factory=dict)  # from --gen-kwargs, sent unchanged

    @property
    def messages(self) -> list[Message]:
        """The prompt as chat messages, with the system message first."""
        turns: list[Message] = [{"role": "system", "content": self.system}] if self.system else []
        return [*turns, *([{"role": "user", "content": self.prompt}] if isinstance(self.prompt, str) else self.prompt)]


class Completion(msgspec.Struct, frozen=True):
    """What a model returned. ``usage`` has only known counts, by their names in `record.USAGE`, and no guesses."""

    text: str
    finish_reason: str | None = None  # the server's own word
    ending: Ending = ""
    usage: Mapping[str, float] = msgspec.field(default_factory=dict)
    asked_again: int = 0  # earlier requests for it, which were lost together with their workers
    request_id: str | None = None  # identifies the call in the server's own log
    seed: int | None = None  # the seed that was sent
    reasoning: str | None = None  # what the server returned apart from the text; never verified


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a million tokens, in dollars."""

    input: float
    output: float

    def of(self, usage: Mapping[str, float]) -> float | None:
        """The cost of one call; None unless both counts are known."""
        if "input_tokens" not in usage or "output_tokens" not in usage:
            return None
        return (usage["input_tokens"] * self.input + usage["output_tokens"] * self.output) / 1e6


def priced(usage: Mapping[str, float], price: Price | None) -> dict[str, float]:
    """The usage of one call with its cost by the price, if the cost is not known otherwise.

    >>> priced({"input_tokens": 1000, "output_tokens": 500}, Price(1.0, 2.0))
    {'input_tokens': 1000, 'output_tokens': 500, 'cost_usd': 0.002}
    """
    cost = None if price is None or "cost_usd" in usage else price.of(usage)
    return {**usage, **({} if cost is None else {"cost_usd": cost})}


class Callers:
    """The workers that call a client: their number, and how many of them wait for an answer.

    A worker waits for one answer at a time. When all workers wait, no more calls can arrive, so a client that answers
    in batches knows that its batch is complete. ``workers`` is None if their number is not known.
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
        """Set the number of workers that may call from now on."""
        self.workers = workers
        self._notify()

    def leave(self) -> None:
        """Record that a worker will not call again."""
        self.begin(max((self.workers or 0) - 1, 0))

    def wait(self) -> None:
        """Record that a worker waits for an answer."""
        self._waiting += 1
        self._notify()

    def answered(self) -> None:
        """Record that a worker has its answer, or has given up."""
        self._waiting -= 1

    def observe(self, observer: Callable[[], None]) -> None:
        """Add a function to call whenever a worker begins to wait, or the number of workers changes."""
        self._observers.append(observer)

    def _notify(self) -> None:
        for observer in self._observers:
            observer()


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach a model: the argument of every ``connect(name, connection) -> Client``."""

    base_url: str | None = None  # None: the kind's own default
    api: Literal["chat", "completions"] = "chat"
    timeout: float = 600.0  # seconds for one call, from the first byte sent to the last received
    most: int = 64  # maximum number of calls in flight
    price: Price | None = None
    secrets: Secrets = field(default_factory=Secrets)  # a client adds the keys it uses
    template: str | None = None  # a local model's chat template, applied as in lm-evaluation-harness; "": its own
    model_args: Mapping[str, Any] = field(default_factory=dict)  # the options for loading a local model
    trust: bool = False  # the user trusts code that comes with the model
    callers: Callers = field(default_factory=Callers)  # the callers of a local model, which answers in batches


class Client(Protocol):
    """A model. Many workers of one event loop call ``complete`` concurrently."""

    async def complete(self, request: Request) -> Completion:
        """The model's completion; `ClientError` if the request fails in any way."""

    async def close(self) -> None:
        """Close connections; called once, after the last request."""


def as_text(request: Request, instead: str) -> str:
    """The prompt as text, after the system message and a blank line if there is one; ClientError for a chat.

    ``instead`` is the advice for a chat. Chat messages are not joined: each model separates them in its own way, and a
    guess would change what is measured.
    """
    if not isinstance(request.prompt, str):
        raise ClientError(f"the prompt is a chat, but only text can be sent; {instead}", kind="prompt")
    return f"{request.system}\n\n{request.prompt}" if request.system else request.prompt


def connect(spec: str, connection: Connection) -> Client:
    """The client of a model. It sends nothing yet, but checks what can be checked before the first request.

    The kind is built in, or an entry point of the group ``calipers.clients``: a function ``connect(name, connection)``
    that gets everything after the first slash as the name.
    """
    kind, name = _parts(spec)
    if connection.model_args and not is_local(spec):
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


def is_local(spec: str) -> bool:
    """Whether a model is loaded in this process.

    >>> is_local("hf/my/checkpoint"), is_local("openai/gpt-x")
    (True, False)
    """
    return spec.strip().partition("/")[0] == LOCAL_KIND


def _parts(spec: str) -> tuple[str, str]:
    kind, slash, name = spec.strip().partition("/")
    if slash and kind and name:
        return kind, name
    if CLIENTS.match(kind):
        raise InputError(f"model {spec!r} has no name; expected {kind}/NAME")
    raise _unknown("", spec)


def _unknown(kind: str, spec: str) -> UnknownName:
    """The error for a spec of an unknown kind, with the known kinds and the nearest one."""
    kinds = CLIENTS.names()
    close = nearest(kind, kinds, most=1)
    example = f"{close[0]}/{spec.strip().partition('/')[2]}" if close else f"openai/{spec.strip().strip('/') or 'NAME'}"
    hint = f"did you mean {example!r}?" if close else f"expected KIND/NAME, such as {example!r}"
    error = CLIENTS.unknown(kind, hint=hint)
    message = str(error) if kind else f"model {spec!r} does not start with a kind; {hint}"
    return UnknownName(f"{message} (kinds: {', '.join(kinds)})")


@dataclass(frozen=True, slots=True)
class Continuation:
    """A request for the likelihood of a continuation after a context.

    Spaces at the end of the context belong to the continuation, because tokenizers put a space into the token that
    follows it. An empty context stands for the beginning of a text. A context may be a chat, to which a local model
    applies its template.
    """

    context: Prompt
    continuation: str


@dataclass(frozen=True, slots=True)
class Rolling:
    """A request for the likelihood of a whole text; one that exceeds the model's context length is cut into windows.

    Every token is scored once. Each window after the first begins one token earlier, so that its first scored token
    has a context, and the last window begins as early as the context length allows.
    """

    text: str


Text = Continuation | Rolling


@dataclass(frozen=True, slots=True)
class Scored:
    """The log-likelihood of a text: the sum of the natural logarithms of its tokens' probabilities."""

    logprob: float
    greedy: bool  # every token is the model's most likely one; true if there are no tokens
    tokens: int
    read: int | None = None  # input tokens that the server counted
    wrote: int | None = None  # output tokens that the server counted


@runtime_checkable
class LikelihoodModel(Protocol):
    """A model that returns log-likelihoods. Many workers of one event loop call ``score`` concurrently."""

    async def score(self, requests: Sequence[Text]) -> list[Scored]:
        """The likelihoods of texts, in their order; `ClientError` if one of them has none.

        Pass texts that belong together, such as the choices of one question, in one call: they succeed or fail
        together, and what they have in common is computed once.
        """
        ...


def likelihoods(client: Client, model: str) -> LikelihoodModel:
    """The client as a `LikelihoodModel`; InputError if it only generates text."""
    if isinstance(client, LikelihoodModel):
        return client
    expected = "expected hf/PATH, or openai/NAME with --api completions and a server that returns prompt logprobs"
    raise InputError(f"model {model!r} does not return log-likelihoods; {expected}")


def as_prompt(texts: Iterable[Text]) -> list[Message]:
    """Texts as the prompt of a task; continuations of the same context are grouped, so that it appears once.

    >>> as_prompt([Continuation("2 + 2 =", " 4"), Continuation("2 + 2 =", " 5"), Rolling("whole")])
    [{'context': '2 + 2 =', 'continuations': [' 4', ' 5']}, {'text': 'whole'}]
    """
    parts: list[Message] = []
    for context, group in groupby(texts, key=lambda text: text.context if isinstance(text, Continuation) else None):
        if context is None:
            parts += [{"text": text.text} for text in group if isinstance(text, Rolling)]
        else:
            continuations = [text.continuation for text in group if isinstance(text, Continuation)]
            parts.append({"context": context, "continuations": continuations})
    return parts


def texts_of(prompt: Prompt) -> list[Text]:
    """The texts of a prompt that `as_prompt` made; ClientError for any other prompt."""
    texts: list[Text] = []
    for part in () if isinstance(prompt, str) else prompt:
        if "text" in part:
            texts.append(Rolling(part["text"]))
        else:
            texts += [
                Continuation(part.get("context", ""), continuation) for continuation in part.get("continuations", ())
            ]
    if not texts:
        raise ClientError("the request is not a log-likelihood request", kind="prompt", hopeless=True)
    return texts


class Line(msgspec.Struct, frozen=True):
    """The likelihood of one text in the log, and the size of the text (for a continuation, with its delimiter)."""

    logprob: float
    greedy: bool
    tokens: int
    chars: int
    bytes: int


_decode = msgspec.json.Decoder(complete(list[Line])).decode


def written(texts: Sequence[Text], scored: Sequence[Scored]) -> str:
    """The likelihoods of texts as JSON for the log."""
    lines = []
    for text, score in zip(texts, scored, strict=True):
        content = text.text if isinstance(text, Rolling) else text.continuation
        size = len(content.encode("utf-8", "surrogatepass"))
        lines.append(Line(score.logprob, score.greedy, score.tokens, len(content), size))
    return msgspec.json.encode(lines).decode()


def read_back(text: str) -> list[Line]:
    """The likelihoods in a completion of the log; InputError if the text is not one of `written`.

    >>> [line.logprob for line in read_back('[{"logprob":-1.5,"greedy":true,"tokens":1,"chars":2,"bytes":2}]')]
    [-1.5]
    """
    try:
        return _decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        expected = "expected log-likelihoods, as a log-likelihood run logs them"
        raise InputError(f"the completion is {text[:40]!r}; {expected}") from None


class Likelihoods:
    """A likelihood model as a `Client`: the completion of a prompt of texts is their likelihoods as JSON."""

    def __init__(self, client: Client, model: LikelihoodModel, price: Price | None = None) -> None:
        self._client, self._model, self._price = client, model, price

    @property
    def notes(self) -> Sequence[str]:
        """The model's notes for the end of the run."""
        return tuple(getattr(self._client, "notes", ()))

    async def complete(self, request: Request) -> Completion:
        """The likelihoods of all texts of a prompt; `ClientError` if one of them has none."""
        texts = texts_of(request.prompt)
        started = perf_counter()
        scored = await self._model.score(texts)
        latency_s = perf_counter() - started
        for score in scored:
            if not math.isfinite(score.logprob):  # JSON cannot represent it, so the log could not be scored
                raise ClientError(f"a log-likelihood is {score.logprob}; expected a finite number", kind="malformed")
        return Completion(written(texts, scored), usage=self._usage(scored, latency_s))

    async def close(self) -> None:
        """Close the model."""
        await self._client.close()

    def _usage(self, scored: Sequence[Scored], latency_s: float) -> Mapping[str, float]:
        usage: dict[str, Any] = {}
        for name, counts in (
            ("input_tokens", [score.read for score in scored]),
            ("output_tokens", [score.wrote for score in scored]),
        ):
            known = [count for count in counts if count is not None]
            if len(known) == len(counts):
                usage[name] = sum(known)
        return {**priced(usage, self._price), "latency_s": latency_s}
