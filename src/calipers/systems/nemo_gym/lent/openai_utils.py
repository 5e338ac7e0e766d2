"""OpenAI's objects as NeMo Gym has them, and a client; lent as ``nemo_gym.openai_utils``.

Looser than there: a key that OpenAI does not know is kept, and an item of an unknown kind is an object of its keys.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, Literal

from pydantic import BaseModel, Field

from calipers.systems.nemo_gym.lent.models import (
    NeMoGymContent,
    NeMoGymEasyInputMessage,
    NeMoGymFunctionCallOutput,
    NeMoGymMessage,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseFunctionToolCall,
    NeMoGymResponseInput,
    NeMoGymResponseInputItem,
    NeMoGymResponseOutputItem,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseOutputRefusal,
    NeMoGymResponseOutputText,
    NeMoGymResponseReasoningItem,
    NeMoGymSummary,
    Opened,
)
from calipers.systems.nemo_gym.lent.server_utils import get_response_json, raise_for_status, request

__all__ = [
    "RATE_LIMIT_ERROR_CODES",
    "RETRY_ERROR_CODES",
    "NeMoGymAsyncOpenAI",
    "NeMoGymChatCompletion",
    "NeMoGymChatCompletionCreateParamsNonStreaming",
    "NeMoGymChatCompletionMessage",
    "NeMoGymChatCompletionMessageToolCall",
    "NeMoGymChoice",
    "NeMoGymContent",
    "NeMoGymEasyInputMessage",
    "NeMoGymFunction",
    "NeMoGymFunctionCallOutput",
    "NeMoGymMessage",
    "NeMoGymResponse",
    "NeMoGymResponseCreateParamsNonStreaming",
    "NeMoGymResponseFunctionToolCall",
    "NeMoGymResponseInput",
    "NeMoGymResponseInputItem",
    "NeMoGymResponseInputTokensDetails",
    "NeMoGymResponseOutputItem",
    "NeMoGymResponseOutputMessage",
    "NeMoGymResponseOutputRefusal",
    "NeMoGymResponseOutputText",
    "NeMoGymResponseOutputTokensDetails",
    "NeMoGymResponseReasoningItem",
    "NeMoGymResponseUsage",
    "NeMoGymSummary",
]

RATE_LIMIT_ERROR_CODES: Final = [429, 502, 503, 504, 520]
RETRY_ERROR_CODES: Final = [*RATE_LIMIT_ERROR_CODES, 500]
TRIES: Final = 3  # of a request that the server could not answer
LIMITED_TRIES: Final = 20  # of one that it had no time for; NeMo Gym itself tries for ever
PAUSE: Final = 0.5  # seconds between two tries


class NeMoGymResponseInputTokensDetails(Opened):
    """Of the tokens that were sent."""

    cached_tokens: int | None


class NeMoGymResponseOutputTokensDetails(Opened):
    """Of the tokens that were answered."""

    reasoning_tokens: int | None


class NeMoGymResponseUsage(Opened):
    """What a response cost in tokens."""

    input_tokens: int
    input_tokens_details: NeMoGymResponseInputTokensDetails
    output_tokens: int
    output_tokens_details: NeMoGymResponseOutputTokensDetails
    total_tokens: int


class NeMoGymFunction(Opened):
    """A function and what it is called with."""

    arguments: str
    name: str


class NeMoGymChatCompletionMessageToolCall(Opened):
    """A function that a model calls, in a chat."""

    id: str
    function: NeMoGymFunction
    type: Literal["function"] = "function"


class NeMoGymChatCompletionMessage(Opened):
    """A model's message in a chat."""

    content: str | None = None
    refusal: str | None = None
    role: Literal["assistant"] = "assistant"
    tool_calls: list[NeMoGymChatCompletionMessageToolCall] | None = None


class NeMoGymChoice(Opened):
    """One of the answers to a chat."""

    finish_reason: str | None = None
    index: int = 0
    message: NeMoGymChatCompletionMessage
    logprobs: Opened | None = None


class NeMoGymChatCompletion(Opened):
    """What a model answered in a chat."""

    id: str = ""
    choices: list[NeMoGymChoice]
    created: int = 0
    model: str = ""
    object: Literal["chat.completion"] = "chat.completion"
    usage: Opened | None = None


class NeMoGymChatCompletionCreateParamsNonStreaming(BaseModel):
    """What a model is asked in a chat; messages are plain dicts."""

    messages: list[dict[str, Any]]
    model: str | None = None
    audio: dict[str, Any] | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, int] | None = None
    logprobs: bool | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    metadata: dict[str, str] | None = None
    modalities: list[str] | None = None
    n: int | None = None
    parallel_tool_calls: bool = True
    prediction: dict[str, Any] | None = None
    presence_penalty: float | None = None
    reasoning_effort: str | None = None
    response_format: dict[str, Any] | None = None
    seed: int | None = None
    service_tier: str | None = None
    stop: str | list[str] | None = None
    store: bool | None = None
    stream: Literal[False] | None = None
    stream_options: dict[str, Any] | None = None
    temperature: float | None = None
    tool_choice: str | dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    top_logprobs: int | None = None
    top_p: float | None = None
    user: str | None = None
    web_search_options: dict[str, Any] | None = None


class NeMoGymAsyncOpenAI(BaseModel):
    """A client of one OpenAI-style server; each call gives the decoded JSON of the answer."""

    base_url: str
    api_key: str
    internal: bool = False
    default_headers: dict[str, str] = Field(default_factory=dict)

    async def create_models(self) -> Any:
        """The models that are there."""
        return await self._answer("GET", f"{self.base_url}/models")

    async def create_chat_completion(self, **body: Any) -> Any:
        """The answer to a chat."""
        return await self._answer("POST", f"{self.base_url}/chat/completions", json=body)

    async def create_completion(self, **body: Any) -> Any:
        """How a text goes on."""
        return await self._answer("POST", f"{self.base_url}/completions", json=body)

    async def create_response(self, **body: Any) -> Any:
        """The answer of the Responses API."""
        return await self._answer("POST", f"{self.base_url}/responses", json=body)

    async def create_tokenize(self, **body: Any) -> Any:
        """A text in tokens."""
        return await self._answer("POST", f"{self.base_url.removesuffix('/v1')}/tokenize", json=body)

    async def _answer(self, method: str, url: str, **more: Any) -> Any:
        headers = {**self.default_headers, "Authorization": f"Bearer {self.api_key}"}
        failed = limited = 0
        while True:
            response = await request(method, url, _internal=self.internal, headers=dict(headers), **more)
            limited += response.status in RATE_LIMIT_ERROR_CODES
            failed += response.status in RETRY_ERROR_CODES and response.status not in RATE_LIMIT_ERROR_CODES
            if response.status not in RETRY_ERROR_CODES or failed >= TRIES or limited >= LIMITED_TRIES:
                break
            response.release()
            await asyncio.sleep(PAUSE)
        await raise_for_status(response)
        return await get_response_json(response)
