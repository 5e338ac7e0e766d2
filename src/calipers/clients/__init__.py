"""Models: on servers, on this machine, or replayed from a log.

Their two interfaces: a request in, a completion or log-likelihoods out; and how a model is named. A spec is
``KIND/NAME``: ``openai/gpt-x``, ``replay/rollouts.jsonl``, ``python/mine.py:answer``.

::

    texts ──► a task's prompt ──► score ──► a completion of the log: JSON, an object for each text

In that shape likelihoods go through the same loop as answers, and a stored run is replayed like any other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from time import perf_counter
from typing import Any, Final, Literal, Protocol, cast, runtime_checkable

import msgspec

from calipers.clients.secrets import Secrets
from calipers.errors import CalipersError, ClientError, InputError, PluginError, UnknownName, nearest
from calipers.names import CLIENTS
from calipers.tasks import Message, Prompt

Ending = Literal["", "refused", "truncated"]
"""How a completion ended early by the model's own doing, as an outcome of the ledger; "" for a whole one."""


LOCAL_KIND: Final = "hf"  # the kind of models that are loaded in this process
NONE_HERE = "likelihood"
"""The kind of the error for a server that turns out to give no log-likelihoods at all."""


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


@dataclass(frozen=True, slots=True)
class Continuation:
    """A text after another: asks how likely the second is once the model has read the first.

    Spaces that end the context count as the continuation's, as that is where a tokenizer keeps them.
    An empty context stands for the beginning of a text; one that is a chat is what a local model's template
    makes of its turns.
    """

    context: Prompt
    continuation: str


@dataclass(frozen=True, slots=True)
class Rolling:
    """A whole text from its beginning; one longer than the model reads at once is cut into windows.

    Every token is scored once; each window after the first begins one token early, for something to go
    by, and the last one as early as it can.
    """

    text: str


Text = Continuation | Rolling


@dataclass(frozen=True, slots=True)
class Scored:
    """The log-likelihood of a text: the sum of the natural logarithms of its tokens' probabilities."""

    logprob: float
    greedy: bool  # every token is the one the model itself holds likeliest; true of no tokens at all
    tokens: int
    read: int | None = None  # tokens that a server counted for it, and those it wrote beside
    wrote: int | None = None


@runtime_checkable
class LikelihoodModel(Protocol):
    """A model that says how likely texts are. ``score`` is called by many workers of one event loop at once."""

    async def score(self, requests: Sequence[Text]) -> list[Scored]:
        """The likelihoods of some texts, in their order; `ClientError` when one of them has none.

        Texts that belong together, such as the choices of one question, belong in one call: they
        succeed or fail together, and what they share is read once.
        """
        ...


def likelihoods(client: Client, model: str) -> LikelihoodModel:
    """The same model seen through this seam; InputError for one that only writes."""
    if isinstance(client, LikelihoodModel):
        return client
    right = "expected hf/PATH, or openai/NAME with --api completions and a server that returns prompt logprobs"
    raise InputError(f"model {model!r} does not return log-likelihoods; {right}")


def as_prompt(texts: Iterable[Text]) -> list[Message]:
    """Texts as the prompt of a task: continuations of one context together, so that it stands there once.

    >>> as_prompt([Continuation("2 + 2 =", " 4"), Continuation("2 + 2 =", " 5"), Rolling("whole")])
    [{'context': '2 + 2 =', 'continuations': [' 4', ' 5']}, {'text': 'whole'}]
    """
    parts: list[Message] = []
    for context, alike in groupby(texts, key=lambda text: text.context if isinstance(text, Continuation) else None):
        if context is None:
            parts += [{"text": text.text} for text in alike if isinstance(text, Rolling)]
        else:
            after = [text.continuation for text in alike if isinstance(text, Continuation)]
            parts.append({"context": context, "continuations": after})
    return parts


def texts_of(prompt: Prompt) -> list[Text]:
    """The texts of such a prompt; ClientError for one that is a question."""
    texts: list[Text] = []
    for part in () if isinstance(prompt, str) else prompt:
        if "text" in part:
            texts.append(Rolling(part["text"]))
        else:
            texts += [Continuation(part.get("context", ""), after) for after in part.get("continuations", ())]
    if not texts:
        raise ClientError("the request is not a log-likelihood request", kind="prompt", hopeless=True)
    return texts


class Line(msgspec.Struct, frozen=True):
    """The likelihood of one text in the log, with its size as it was asked: a continuation with its delimiter."""

    logprob: float
    greedy: bool
    tokens: int
    chars: int
    bytes: int


_decode = msgspec.json.Decoder(list[Line]).decode


def written(texts: Sequence[Text], scored: Sequence[Scored]) -> str:
    """The likelihoods of some texts as the log keeps them."""
    lines = []
    for text, score in zip(texts, scored, strict=True):
        content = text.text if isinstance(text, Rolling) else text.continuation
        size = len(content.encode("utf-8", "surrogatepass"))
        lines.append(Line(score.logprob, score.greedy, score.tokens, len(content), size))
    return msgspec.json.encode(lines).decode()


def read_back(text: str) -> list[Line]:
    """The likelihoods that the log holds; InputError for what is none.

    >>> [line.logprob for line in read_back('[{"logprob":-1.5,"greedy":true,"tokens":1,"chars":2,"bytes":2}]')]
    [-1.5]
    """
    try:
        return _decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        right = "expected log-likelihoods, as a log-likelihood run logs them"
        raise InputError(f"the completion is {text[:40]!r}; {right}") from None


class Likelihoods:
    """A model as a client of the loop: it is asked for the likelihoods of a prompt's texts, and writes nothing."""

    def __init__(self, client: Client, model: LikelihoodModel, price: Price | None = None) -> None:
        self._client, self._model, self._price = client, model, price

    @property
    def notes(self) -> Sequence[str]:
        """What the model has to say when all is over."""
        return tuple(getattr(self._client, "notes", ()))

    async def complete(self, request: Request) -> Completion:
        """The likelihoods of all texts of a prompt; `ClientError` when one of them has none."""
        texts = texts_of(request.prompt)
        started = perf_counter()
        scored = await self._model.score(texts)
        latency_s = perf_counter() - started
        for score in scored:
            if score.logprob != score.logprob:  # NaN: the log has no word for it, and no metric a use
                raise ClientError("a log-likelihood is not a number", kind="malformed")
        return Completion(written(texts, scored), usage=self._usage(scored, latency_s))

    async def close(self) -> None:
        """Give back what the model holds."""
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
        cost = self._price.of(usage) if self._price else None
        return {**usage, **({} if cost is None else {"cost_usd": cost}), "latency_s": latency_s}


Answer = str | Completion | ClientError
Answers = Mapping[tuple[str, int], Answer | Sequence[Answer]] | Callable[[Request], Answer]


class Scripted:
    """A model for tests: answers by (task, sample), or by a function of the request; an error among them is raised.

    A list holds the answers to successive calls, of which the last one stays. ``calls`` holds every
    request in the order of arrival. ``before`` is awaited ahead of each answer: a test that wants
    calls to overlap, or to wait for one another, says so there.

    >>> import asyncio
    >>> model = Scripted({("a", 0): [ClientError("busy", retry=True), "4"]})
    >>> asyncio.run(model.complete(Request("a", 0, "2 + 2?")))
    Traceback (most recent call last):
    calipers.errors.ClientError: busy
    >>> asyncio.run(model.complete(Request("a", 0, "2 + 2?"))).text
    '4'
    """

    def __init__(self, answers: Answers, before: Callable[[Request], Awaitable[None]] | None = None) -> None:
        self.calls: list[Request] = []
        self.closed = False
        self._answers, self._before = answers, before
        self._given: dict[tuple[str, int], int] = {}  # how many answers of each list were used

    async def complete(self, request: Request) -> Completion:
        """The next answer in the script."""
        self.calls.append(request)
        if self._before is not None:
            await self._before(request)
        answer = self._next(request)
        if isinstance(answer, ClientError):
            raise answer
        return Completion(answer) if isinstance(answer, str) else answer

    async def close(self) -> None:
        """Remember that the loop was polite."""
        self.closed = True

    def _next(self, request: Request) -> Answer:
        if callable(self._answers):
            return self._answers(request)
        key = request.task, request.sample
        if key not in self._answers:
            return ClientError(f"no answer to task {request.task!r}, sample {request.sample}", kind="absent")
        answers = self._answers[key]
        if isinstance(answers, (str, Completion, ClientError)):
            return answers
        turn = self._given.get(key, 0)
        self._given[key] = turn + 1
        return answers[min(turn, len(answers) - 1)]
