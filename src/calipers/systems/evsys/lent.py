"""EvSys' plug-ins, clients and rows of datasets, as far as they are lent.

Lent as ``registry``, ``protocols``, ``verifiers``, ``inference`` and ``data_types`` of ``evsys_sdk``.

What is registered here is known to Calipers under the same name: a metric in every dialect, a verifier in every run,
with the task's params as its ``Config``. Installed packages are asked when a name is missing and when all names are
listed, not at import. The ``Config`` of a class that is built in is a msgspec Struct where EvSys has a pydantic model;
unknown fields are refused by both.

Of EvSys' clients, the mock and the chat-template wrapper are here. Those for services and for weights on disk are not:
asking for one says so.

A row that is of no format, or not of the one it should be, is an `InputError`, which is a ValueError, with its number
or its line.
"""

from __future__ import annotations

import enum
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, TypeVar, runtime_checkable

import msgspec

from calipers.errors import PluginError, UnknownName
from calipers.formats.source import json_lines
from calipers.names import METRICS, VERIFIERS, Index
from calipers.systems.evsys.metrics import Avg, MeanReward, PassAt1, PassAt3, PassHat3, PassRate
from calipers.tasks.jsonl import (
    E2BVerifier,
    HarborTask,
    InProcessVerifier,
    LLMJudgeVerifier,
    TaskFault,
    WrongType,
    detect_format,
    harbor_task_from_dict,
    object_of,
)

# -- plug-ins: what is demanded of them, and where they are registered

C = TypeVar("C", bound=type)
Keys = list[str]
Pairs = list[tuple[str, type]]


class Registry:
    """Classes of one kind by name. A name belongs to the class that took it first."""

    def __init__(self, kind: str, classes: Mapping[str, type] | None = None, index: Index | None = None) -> None:
        self.kind = kind
        self._held = dict(classes or {})
        self._index = index or Index(kind, {})

    def register(self, name: str | None = None) -> Callable[[C], C]:
        """A class decorator; the key is ``name``, else the class's own ``name``, which becomes the key.

        ValueError without either, and for a key that another class holds.
        """

        def decorate(cls: Any) -> Any:
            key = name or getattr(cls, "name", None)
            if not key:
                raise ValueError(f"{self.kind} class {cls.__name__} has no `name` and was registered without one")
            existing = self._held.get(key) or self._index.added.get(key)
            if existing is not None and existing is not cls:
                classes = f"existing={_called(existing)}, new={_called(cls)}"
                raise ValueError(f"{self.kind} {key!r} already registered ({classes})")
            if key not in self._held:
                self._held[key] = cls
                self._index.add(key, cls)
            with suppress(AttributeError, TypeError):  # one that cannot be written to keeps its own
                cls.name = key
            return cls

        return decorate

    def get(self, name: str) -> type:
        """The class registered under a name; a KeyError lists the names there are."""
        if name not in self._held:
            broken = self._ask(name)
            if name not in self._held:
                known = ", ".join(sorted(self._held)) or "(none)"
                raise KeyError(f"No {self.kind} registered under {name!r}. Available: {known}{broken}")
        return self._held[name]

    def has(self, name: str) -> bool:
        """Whether a name is registered."""
        try:
            self.get(name)
        except KeyError:
            return False
        return True

    def names(self) -> Keys:
        """The names, sorted."""
        return [name for name, _ in self.items()]

    list = names  # EvSys' word

    def items(self) -> Pairs:
        """(name, class) for each name, sorted."""
        for error in self._index.load_packages():
            warnings.warn(str(error), stacklevel=3)
        return sorted(self._held.items(), key=lambda item: item[0])

    def unregister(self, name: str) -> None:
        """Remove a name; one that is not there is no error."""
        self._held.pop(name, None)
        self._index.discard(name)

    def _ask(self, name: str) -> str:
        """Let installed packages register a name; what to say when they cannot."""
        try:
            self._index.plugin(name)
        except PluginError as error:
            return f" ({error})"
        return ""


def _called(thing: Any) -> str:
    if isinstance(thing, type):
        return f"{thing.__module__}.{thing.__qualname__}"
    return repr(thing)


@runtime_checkable
class Metric(Protocol):
    """A name and a ``compute``; ``isinstance`` looks for both attributes and at nothing else."""

    name: ClassVar[str]

    def compute(self, task_rewards: Sequence[Sequence[float]]) -> float:
        """One number from the rewards of every sample, ``task_rewards[task][sample]``."""
        ...


class TextGenerator(Protocol):
    """What `Benchmark.score` needs of a client: text in, text out."""

    def generate(
        self, *, prompt: str, max_tokens: int = 256, temperature: float = 0.0, stop: list[str] | None = None
    ) -> str:
        """The completion of a prompt."""
        ...


@runtime_checkable
class InferenceClient(TextGenerator, Protocol):
    """A name and a ``generate``. ``isinstance`` looks for both attributes and at nothing else."""

    name: ClassVar[str]


@dataclass(frozen=True)
class VerificationResult:
    """What a completion is worth, and what was seen on the way."""

    reward: float
    info: dict[str, Any] = field(default_factory=dict)


@runtime_checkable
class Verifier(Protocol):
    """A name, a ``Config`` and a ``verify``; ``isinstance`` looks for the attributes and at nothing else."""

    name: ClassVar[str]
    Config: ClassVar[type]

    def verify(self, *, prompt: Any, completion: str, target: Mapping[str, Any]) -> VerificationResult:
        """The reward of one completion."""
        ...


class FormatOnlyConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What each pair of tags is worth."""

    has_think_reward: float = 0.5
    has_answer_reward: float = 0.5


class FormatOnlyVerifier:
    """A reward for ``<think>`` tags and one for ``<answer>`` tags, wherever and in whatever order they are."""

    name: ClassVar[str] = "format_only"
    Config: ClassVar[type[FormatOnlyConfig]] = FormatOnlyConfig

    def __init__(self, config: FormatOnlyConfig | None = None, **params: float) -> None:
        self.config = config or msgspec.convert(params, self.Config)
        self.has_think_reward, self.has_answer_reward = self.config.has_think_reward, self.config.has_answer_reward

    def verify(self, *, prompt: Any, completion: str, target: Mapping[str, Any]) -> VerificationResult:
        """The reward of one completion; prompt and target are not looked at.

        >>> FormatOnlyVerifier(has_think_reward=0.2).verify(prompt="", completion="<think>4</think>", target={})
        VerificationResult(reward=0.2, info={'has_think': True, 'has_answer': False})
        """
        from calipers.verifiers.text import tags, worth  # which a metric's file does not need

        seen = tags(completion)
        rewards = {"has_think_reward": self.has_think_reward, "has_answer_reward": self.has_answer_reward}
        return VerificationResult(worth(seen, rewards), dict(seen))


# -- clients

MOCK_TEMPLATE: Final = "<think>mock thinking</think>\n<answer>MOCK_ANSWER</answer>"
NOT_LENT: Final = ("claude", "gemini", "local", "openai", "tinker")


class MockInferenceConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The parameters of the mock."""

    template: str = MOCK_TEMPLATE


class MockInference:
    """A client without a model: the same template for every prompt, ``{prompt}`` in it filled in."""

    name: ClassVar[str] = "mock"
    Config: ClassVar[type] = MockInferenceConfig

    def __init__(self, template: str | None = None) -> None:
        self.template = MOCK_TEMPLATE if template is None else template

    def generate(
        self, *, prompt: str, max_tokens: int = 256, temperature: float = 0.0, stop: list[str] | None = None
    ) -> str:
        """The template up to the first stop string, each stop in turn; length and temperature change nothing.

        A template that asks for anything but the prompt is given as it is, a lone brace is a ValueError.

        >>> MockInference("A:{prompt}|END").generate(prompt="hi", stop=["|"])
        'A:hi'
        """
        try:
            text = self.template.format(prompt=prompt)
        except (KeyError, IndexError):
            text = self.template
        for end in stop or ():
            if end:
                text = text.partition(end)[0]
        return text


class ChatTemplatedInference:
    """A client for prompts as chat: each becomes a user turn in the chat template of the client within.

    That one must have a ``_tokenizer`` with ``apply_chat_template``, as a local model has.
    """

    name: ClassVar[str] = "chat_templated"

    def __init__(
        self,
        base: Any,
        *,
        system_prompt: str | None = None,
        user_template: str = "{prompt}",
        enable_thinking: bool | None = None,
    ) -> None:
        if not callable(getattr(getattr(base, "_tokenizer", None), "apply_chat_template", None)):
            raise WrongType(f"{type(base).__name__} has no _tokenizer; expected a client with a chat template")
        self._base = base
        self.system_prompt, self.user_template, self.enable_thinking = system_prompt, user_template, enable_thinking

    def generate(
        self, *, prompt: str, max_tokens: int = 256, temperature: float = 0.0, stop: list[str] | None = None
    ) -> str:
        """The completion of one chat."""
        text: str = self._base.generate(
            prompt=self._chat(prompt), max_tokens=max_tokens, temperature=temperature, stop=stop
        )
        return text

    def generate_batch(
        self, *, prompts: list[str], max_tokens: int = 256, temperature: float = 0.0, stop: list[str] | None = None
    ) -> list[str]:
        """The completions of many chats, at once where the client within can do that, else one by one."""
        chats = [self._chat(prompt) for prompt in prompts]
        settings: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature, "stop": stop}
        if callable(getattr(self._base, "generate_batch", None)):
            return list(self._base.generate_batch(prompts=chats, **settings))
        return [self._base.generate(prompt=chat, **settings) for chat in chats]

    def _chat(self, prompt: str) -> str:
        turns = [{"role": "system", "content": self.system_prompt}] if self.system_prompt else []
        turns.append({"role": "user", "content": self.user_template.format(prompt=prompt)})
        thinking = {} if self.enable_thinking is None else {"enable_thinking": self.enable_thinking}
        chat: str = self._base._tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=True, **thinking
        )
        return chat


# -- the registries

FormatOnly = FormatOnlyVerifier
METRIC_REGISTRY: Final = Registry(
    "metric", {cls.name: cls for cls in (Avg, MeanReward, PassAt1, PassAt3, PassHat3, PassRate)}, METRICS
)
VERIFIER_REGISTRY: Final = Registry("verifier", {FormatOnlyVerifier.name: FormatOnlyVerifier}, VERIFIERS)

register_metric = METRIC_REGISTRY.register
get_metric = METRIC_REGISTRY.get
list_metrics = METRIC_REGISTRY.names
register_verifier = VERIFIER_REGISTRY.register
get_verifier = VERIFIER_REGISTRY.get
list_verifiers = VERIFIER_REGISTRY.names

INFERENCE_REGISTRY: Final = Registry(
    "inference_client",
    {"mock": MockInference},
    Index("inference_client", {}, groups={"evsys_sdk.inference": "calipers.compat:borrowing"}),
)

register_inference = INFERENCE_REGISTRY.register
list_inference = list_inferences = INFERENCE_REGISTRY.names


def get_inference(name: str) -> type:
    """The client class registered under a name; a KeyError lists the names there are."""
    if name in NOT_LENT and not INFERENCE_REGISTRY.has(name):
        right = "install evsys_sdk, or pass any object with generate(prompt=, max_tokens=, temperature=, stop=)"
        raise UnknownName(f"Calipers does not provide the inference_client {name!r}; {right}")
    return INFERENCE_REGISTRY.get(name)


def schema_for(kind: str, name: str) -> dict[str, Any]:
    """The JSON schema of a plugin's ``Config``, one without properties where it has none, as metrics have.

    KeyError for an unknown kind or name.
    """
    registries = {registry.kind: registry for registry in (INFERENCE_REGISTRY, METRIC_REGISTRY, VERIFIER_REGISTRY)}
    if kind not in registries:
        raise KeyError(f"No registry of kind {kind!r}. Available: {', '.join(registries)}")
    config = getattr(registries[kind].get(name), "Config", None)
    if callable(written := getattr(config, "model_json_schema", None)):  # pydantic, as EvSys' own
        return dict(written())
    if isinstance(config, type) and issubclass(config, msgspec.Struct):
        return dict(msgspec.json.schema_components([config])[1][config.__name__])
    return {"type": "object", "properties": {}}


# -- rows

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
