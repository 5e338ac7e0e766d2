"""NeMo Gym's models, as far as a resources server needs them: what it is sent, and what it answers.

As there, a key that no class declares is dropped, unless the class allows it; but a request to a model may hold none.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypeAliasType

Value = TypeAliasType("Value", Annotated["Opened | list[Value] | Any", Field(union_mode="left_to_right")])


class Opened(BaseModel):
    """A JSON object whose keys are attributes, at any depth: ``response.output[0].content[0].text``."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())
    __pydantic_extra__: dict[str, Value]

    def __getitem__(self, key: str) -> Any:
        try:
            return getattr(self, key)
        except AttributeError:
            raise KeyError(key) from None


class NeMoGymResponse(Opened):
    """What a model answered: an object of OpenAI's Responses API, of which only the output is demanded here."""

    output: list[Opened]
    error: Opened | None = None
    incomplete_details: Opened | None = None
    metadata: dict[str, str] | None = None
    status: str | None = None
    usage: Opened | None = None

    @property
    def output_text(self) -> str:
        """The text of the answer: every ``output_text`` of every message, end to end."""
        return output_text(self.model_dump(include={"output"})["output"])


def output_text(output: list[Any]) -> str:
    """The text in the output of a response; what is no message, or no text in one, is passed over.

    >>> output_text([{"type": "message", "content": [{"type": "output_text", "text": "42"}]}, {"type": "reasoning"}])
    '42'
    """
    messages = (item for item in output if isinstance(item, dict) and item.get("type", "message") == "message")
    contents = (message.get("content") for message in messages)
    parts = [part for content in contents if isinstance(content, list) for part in content if isinstance(part, dict)]
    texts = (part.get("text") for part in parts if part.get("type") == "output_text")
    return "".join(text for text in texts if isinstance(text, str))


class NeMoGymResponseCreateParamsNonStreaming(BaseModel):
    """What a model was asked. A key beyond these is refused; what is not given is null in the answer."""

    model_config = ConfigDict(extra="forbid")

    input: str | list[Opened]
    background: bool | None = None
    include: list[str] | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    metadata: dict[str, str] | None = None
    model: str | None = None
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    prompt: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    service_tier: str | None = None
    store: bool | None = None
    stream: bool | None = None
    temperature: float | None = None
    text: dict[str, Any] | None = None
    tool_choice: str | dict[str, Any] = "auto"
    tools: list[dict[str, Any]] = Field(default_factory=list)
    top_logprobs: int | None = None
    top_p: float | None = None
    truncation: str | None = None
    user: str | None = None


class BaseRunRequest(BaseModel):
    """A request to run a task."""

    responses_create_params: NeMoGymResponseCreateParamsNonStreaming


class BaseVerifyRequest(BaseRunRequest):
    """A request to verify what a model answered."""

    response: NeMoGymResponse


class BaseVerifyResponse(BaseVerifyRequest):
    """A verdict. With the request it becomes the rollout row."""

    reward: float


class BaseMultiRewardVerifyResponse(BaseVerifyResponse):
    """A verdict of several parts."""

    reward_components: dict[str, float]


class BaseSeedSessionRequest(BaseModel):
    """A request to begin a session."""


class BaseSeedSessionResponse(BaseModel):
    """A session was begun."""


class BaseResourcesServerConfig(BaseModel):
    """The settings of a server; a server with more of them says which in a class of its own."""

    model_config = ConfigDict(extra="allow")

    name: str = ""
    host: str = "127.0.0.1"
    port: int = 0
    entrypoint: str = ""
    domain: str | None = None
    num_workers: int | None = None


class AggregateMetricsRequest(BaseModel):
    """What ``/aggregate_metrics`` is sent: the stripped rows of one agent."""

    verify_responses: list[dict[str, Any]]


class AggregateMetrics(BaseModel):
    """What ``/aggregate_metrics`` answers with."""

    group_level_metrics: list[dict[str, Any]] = Field(default_factory=list)
    agent_metrics: dict[str, Any] = Field(default_factory=dict)
    key_metrics: dict[str, Any] = Field(default_factory=dict)
