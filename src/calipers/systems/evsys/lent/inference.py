"""EvSys' clients, as far as they are lent; lent as ``evsys_sdk.inference`` and its ``mock`` and ``chat_templated``.

The mock and the chat-template wrapper are here, and the registry for clients of one's own. EvSys'
clients for services and for weights on disk are not: asking for one says so.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import msgspec

from calipers.errors import UnknownName
from calipers.names import Index
from calipers.systems.evsys.lent.registry import Registry
from calipers.tasks.jsonl import WrongType

__all__ = [
    "ChatTemplatedInference",
    "MockInference",
    "MockInferenceConfig",
    "get_inference",
    "list_inference",
    "list_inferences",
    "register_inference",
]

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
