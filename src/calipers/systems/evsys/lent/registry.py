"""EvSys' plug-ins: what it demands of a metric, a verifier and a client, and the registries of the first two.

Lent as ``evsys_sdk.registry``, ``protocols`` and ``verifiers``. What is registered here is known to
Calipers under the same name: a metric in every dialect, a verifier in every run, with the task's params as its
``Config``. Installed packages are asked when a name is missing and when all names are listed, not at import.

The ``Config`` of a class that is built in is a msgspec Struct where EvSys has a pydantic model; unknown fields are
refused by both.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol, TypeVar, runtime_checkable

import msgspec

from calipers.errors import PluginError
from calipers.names import METRICS, VERIFIERS, Index
from calipers.systems.evsys.metrics import Avg, MeanReward, PassAt1, PassAt3, PassHat3, PassRate

_OF_CLIENTS: Final = ("get_inference", "list_inference", "list_inferences", "register_inference")

__all__ = [  # what is lent as ``evsys_sdk.registry``
    "Registry",
    "get_metric",
    "get_verifier",
    "list_metrics",
    "list_verifiers",
    "register_metric",
    "register_verifier",
    "schema_for",
    *_OF_CLIENTS,
]

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


def schema_for(kind: str, name: str) -> dict[str, Any]:
    """The JSON schema of a plugin's ``Config``, one without properties where it has none, as metrics have.

    KeyError for an unknown kind or name.
    """
    from calipers.systems.evsys.lent.inference import INFERENCE_REGISTRY  # which imports this page

    registries = {registry.kind: registry for registry in (INFERENCE_REGISTRY, METRIC_REGISTRY, VERIFIER_REGISTRY)}
    if kind not in registries:
        raise KeyError(f"No registry of kind {kind!r}. Available: {', '.join(registries)}")
    config = getattr(registries[kind].get(name), "Config", None)
    if callable(written := getattr(config, "model_json_schema", None)):  # pydantic, as EvSys' own
        return dict(written())
    if isinstance(config, type) and issubclass(config, msgspec.Struct):
        return dict(msgspec.json.schema_components([config])[1][config.__name__])
    return {"type": "object", "properties": {}}


def __getattr__(name: str) -> Any:
    if name not in _OF_CLIENTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("calipers.systems.evsys.lent.inference"), name)
