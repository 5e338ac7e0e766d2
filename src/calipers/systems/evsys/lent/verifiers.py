"""EvSys' verifier classes: the protocol, the registry, and the one class that is built in.

A class registered here is a verifier of that name in every run, with the task's params as its ``Config``.
Ours is a msgspec Struct where EvSys has a pydantic model; unknown fields are refused by both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol, runtime_checkable

import msgspec

from calipers.names import VERIFIERS
from calipers.systems.evsys.lent.registry import Registry
from calipers.verifiers.text import tags, worth

__all__ = [
    "FormatOnly",
    "FormatOnlyConfig",
    "FormatOnlyVerifier",
    "VerificationResult",
    "Verifier",
    "get_verifier",
    "list_verifiers",
    "register_verifier",
]


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
        seen = tags(completion)
        rewards = {"has_think_reward": self.has_think_reward, "has_answer_reward": self.has_answer_reward}
        return VerificationResult(worth(seen, rewards), dict(seen))


FormatOnly = FormatOnlyVerifier
VERIFIER_REGISTRY: Final = Registry("verifier", {FormatOnlyVerifier.name: FormatOnlyVerifier}, VERIFIERS)

register_verifier = VERIFIER_REGISTRY.register
get_verifier = VERIFIER_REGISTRY.get
list_verifiers = VERIFIER_REGISTRY.names
