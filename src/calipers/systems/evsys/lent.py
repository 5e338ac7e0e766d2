"""The stand-in for ``registry``, ``protocols``, ``verifiers``, ``inference`` and ``data_types`` of ``evsys_sdk``.

Metrics and verifiers that are registered here can be used in Calipers under the same name: a metric in every dialect, a
verifier in every run, with the task's params as its ``Config``. Plug-ins of installed packages are loaded when a name
is missing and when all names are listed, not at import. The ``Config`` of a built-in class is a msgspec Struct, where
EvSys has a pydantic model; both refuse unknown fields.

Of EvSys' clients, the mock and the chat-template wrapper are provided. For clients of services and of local weights,
the error says that they are not.

A row of an unknown or a wrong format is an `InputError`, which is a ValueError, and names its number or its line.
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
from calipers.typed import complete

# -- plug-ins: their protocols, and the class of their registries

C = TypeVar("C", bound=type)
Keys = list[str]
Pairs = list[tuple[str, type]]


class Registry:
    """Classes of one kind by name. A name that is taken cannot be registered for another class."""

    def __init__(self, kind: str, classes: Mapping[str, type] | None = None, index: Index | None = None) -> None:
        self.kind = kind
        self._classes = dict(classes or {})
        self._index = index or Index(kind, {})

    def register(self, name: str | None = None) -> Callable[[C], C]:
        """A class decorator that registers a class under ``name``, or else under the class's attribute ``name``.

        The attribute is set to the key. ValueError without either name, and if another class has the key.
        """

        def decorate(cls: Any) -> Any:
            key = name or getattr(cls, "name", None)
            if not key:
                raise ValueError(f"{self.kind} class {cls.__name__} has no `name` and was registered without one")
            existing = self._classes.get(key) or self._index.added.get(key)
            if existing is not None and existing is not cls:
                classes = f"existing={_qualified_name(existing)}, new={_qualified_name(cls)}"
                raise ValueError(f"{self.kind} {key!r} already registered ({classes})")
            if key not in self._classes:
                self._classes[key] = cls
                self._index.add(key, cls)
            with suppress(AttributeError, TypeError):  # a class whose attributes cannot be set keeps its name
                cls.name = key
            return cls

        return decorate

    def get(self, name: str) -> type:
        """The class registered under a name; a KeyError lists the known names."""
        failure = ""
        if name not in self._classes:
            try:
                self._index.plugin(name)  # lets installed packages register it
            except PluginError as error:
                failure = f" ({error})"
        if name not in self._classes:
            known = ", ".join(sorted(self._classes)) or "(none)"
            raise KeyError(f"No {self.kind} registered under {name!r}. Available: {known}{failure}")
        return self._classes[name]

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

    list = names  # EvSys' name for it

    def items(self) -> Pairs:
        """(name, class) for each name, sorted."""
        for error in self._index.load_packages():
            warnings.warn(str(error), stacklevel=3)
        return sorted(self._classes.items(), key=lambda item: item[0])

    def unregister(self, name: str) -> None:
        """Remove a name; an unknown name is ignored."""
        self._classes.pop(name, None)
        self._index.discard(name)


def _qualified_name(plugin: Any) -> str:
    if isinstance(plugin, type):
        return f"{plugin.__module__}.{plugin.__qualname__}"
    return repr(plugin)


@runtime_checkable
class Metric(Protocol):
    """A metric: a ``name`` and a ``compute``. ``isinstance`` only checks that both attributes exist."""

    name: ClassVar[str]

    def compute(self, task_rewards: Sequence[Sequence[float]]) -> float:
        """One number from the rewards of every sample, ``task_rewards[task][sample]``."""
        ...


class TextGenerator(Protocol):
    """The part of a client that `Benchmark.score` needs: a prompt in, a completion out."""

    def generate(
        self, *, prompt: str, max_tokens: int = 256, temperature: float = 0.0, stop: list[str] | None = None
    ) -> str:
        """The completion of a prompt."""
        ...


@runtime_checkable
class InferenceClient(TextGenerator, Protocol):
    """A client: a ``name`` and a ``generate``. ``isinstance`` only checks that both attributes exist."""

    name: ClassVar[str]


@dataclass(frozen=True)
class VerificationResult:
    """The reward of a completion, and further information on the verdict."""

    reward: float
    info: dict[str, Any] = field(default_factory=dict)


@runtime_checkable
class Verifier(Protocol):
    """A verifier: a ``name``, a ``Config`` and a ``verify``. ``isinstance`` only checks that the attributes exist."""

    name: ClassVar[str]
    Config: ClassVar[type]

    def verify(self, *, prompt: Any, completion: str, target: Mapping[str, Any]) -> VerificationResult:
        """The reward of one completion."""
        ...


class FormatOnlyConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The rewards for the two pairs of tags."""

    has_think_reward: float = 0.5
    has_answer_reward: float = 0.5


class FormatOnlyVerifier:
    """One reward for ``<think>`` tags and one for ``<answer>`` tags, anywhere in the completion and in any order."""

    name: ClassVar[str] = "format_only"
    Config: ClassVar[type[FormatOnlyConfig]] = FormatOnlyConfig

    def __init__(self, config: FormatOnlyConfig | None = None, **params: float) -> None:
        self.config = config or msgspec.convert(params, complete(self.Config))
        self.has_think_reward, self.has_answer_reward = self.config.has_think_reward, self.config.has_answer_reward

    def verify(self, *, prompt: Any, completion: str, target: Mapping[str, Any]) -> VerificationResult:
        """The reward of one completion; prompt and target are not used.

        >>> FormatOnlyVerifier(has_think_reward=0.2).verify(prompt="", completion="<think>4</think>", target={})
        VerificationResult(reward=0.2, info={'has_think': True, 'has_answer': False})
        """
        from calipers.verifiers.text import tags, worth  # imported here, because a file of metrics does not need it

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
    """A client without a model. It answers every prompt with a template, in which ``{prompt}`` is replaced."""

    name: ClassVar[str] = "mock"
    Config: ClassVar[type] = MockInferenceConfig

    def __init__(self, template: str | None = None) -> None:
        self.template = MOCK_TEMPLATE if template is None else template

    def generate(
        self, *, prompt: str, max_tokens: int = 256, temperature: float = 0.0, stop: list[str] | None = None
    ) -> str:
        """The filled template up to the first stop string; ``max_tokens`` and ``temperature`` have no effect.

        A template with other fields than ``{prompt}`` is returned as it is. A single brace is a ValueError.

        >>> MockInference("A:{prompt}|END").generate(prompt="hi", stop=["|"])
        'A:hi'
        """
        try:
            text = self.template.format(prompt=prompt)
        except (KeyError, IndexError):
            text = self.template
        for stop_string in stop or ():
            if stop_string:
                text = text.partition(stop_string)[0]
        return text


class ChatTemplatedInference:
    """A client that wraps another, and turns each prompt into a user turn with the other's chat template.

    The other client must have a ``_tokenizer`` with ``apply_chat_template``, as EvSys' client of a local model has.
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
        """The completions of many chats, in one batch if the wrapped client supports it, or else one by one."""
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
    """The client class registered under a name; a KeyError lists the known names."""
    if name in NOT_LENT and not INFERENCE_REGISTRY.has(name):
        advice = "install evsys_sdk, or pass any object with generate(prompt=, max_tokens=, temperature=, stop=)"
        raise UnknownName(f"Calipers does not provide the inference_client {name!r}; {advice}")
    return INFERENCE_REGISTRY.get(name)


def schema_for(kind: str, name: str) -> dict[str, Any]:
    """The JSON schema of a plugin's ``Config``; a schema without properties if it has none, as metrics do.

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


class TargetFormat(str, enum.Enum):  # noqa: UP042 - str() gives the member's name as in EvSys, not only the value
    """The format of a dataset's rows."""

    CHAT_MESSAGES = "chat_messages"
    HARBOR_TASK = "harbor_task"
    PROMPT_DATASET = "prompt_dataset"


@dataclass(frozen=True)
class ChatMessagesRow:
    """A conversation. The content of a message is text, or a list of text and image blocks."""

    messages: list[dict[str, Any]]
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PromptExample:
    """The named inputs of a prompt, and the expected answer."""

    inputs: dict[str, Any]
    expected: Any
    metadata: dict[str, Any] = field(default_factory=dict)


Row = ChatMessagesRow | HarborTask | PromptExample


def text_block(text: str) -> dict[str, Any]:
    """A text block."""
    return {"type": "text", "text": text}


def image_url_block(url: str, *, detail: str | None = None) -> dict[str, Any]:
    """An image block with a URL, in OpenAI's format."""
    return {"type": "image_url", "image_url": {"url": url} | ({"detail": detail} if detail else {})}


def image_base64_block(media_type: str, b64_data: str) -> dict[str, Any]:
    """An image block with base64 data, in Anthropic's format."""
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": b64_data}}


def block_to_image_src(block: Any) -> str | None:
    """The URL of a block's image, a ``data:`` URL for base64 data; None for a block without an image.

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
    """Whether any message of a conversation has an image."""
    contents = [message.get("content") for message in row.messages if isinstance(message, Mapping)]
    return any(block_to_image_src(block) for content in contents if isinstance(content, list) for block in content)


def _inner(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else None


def _text(value: Any, key: str) -> str | None:
    text = _inner(value, key)
    return text if isinstance(text, str) else None


def chat_messages_row_from_dict(row: Mapping[str, Any]) -> ChatMessagesRow:
    """A decoded row as a conversation; InputError without messages."""
    messages = row.get("messages")
    if not isinstance(messages, list) or not messages:
        raise TaskFault("a chat_messages row has no messages; expected a list of at least one")
    return ChatMessagesRow(list(messages), object_of(row.get("metadata"), "metadata"))


def prompt_example_from_dict(row: Mapping[str, Any]) -> PromptExample:
    """A decoded row as a prompt example."""
    inputs, metadata = (object_of(row.get(name), name) for name in ("inputs", "metadata"))
    return PromptExample(inputs, row.get("expected"), metadata)


_PARSERS: Final[Mapping[str, Callable[[Any], Row]]] = {
    "chat_messages": chat_messages_row_from_dict,
    "harbor_task": harbor_task_from_dict,
    "prompt_dataset": prompt_example_from_dict,
}


def from_dict(row: Mapping[str, Any]) -> Row:
    """A decoded row as an object of the format that it has; InputError for an unknown format."""
    fmt = detect_format(row)
    if fmt not in _PARSERS:
        keys = ", ".join(map(str, row)) if isinstance(row, Mapping) else type(row).__name__
        raise TaskFault(f"the format of a row is unknown ({keys}); expected one of {', '.join(_PARSERS)}")
    return _PARSERS[fmt](row)


def parse_rows(rows: Iterable[Any], fmt: TargetFormat | str) -> list[Row]:
    """The rows as objects of a format. InputError, which names the row's number, for a row of another format.

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
    """A row or a verifier as a JSON object."""
    return asdict(row)


def iter_jsonl(path: str | Path) -> Iterator[Row]:
    """Iterate over the rows of a JSON Lines file, each in its own format. InputError names the line of a bad row."""
    for line, row in json_lines(Path(path)):
        try:
            yield from_dict(row)
        except TaskFault as fault:
            raise fault.placed(f"{path}:{line}", fault.right) from None
