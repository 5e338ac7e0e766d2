"""NeMo Gym's models: requests and answers of a resources server, references between servers, prompts, configuration.

They are the stand-in for ``nemo_gym.config_types``, ``nemo_gym.openai_utils``, ``nemo_gym.prompt`` and
``nemo_gym.global_config``. The last is the configuration of all servers, which a server gets as YAML in an environment
variable.

As in NeMo Gym, a key that a class does not declare is dropped, unless the class allows it; in a request to a model it
is an error. OpenAI's objects are less strict than in NeMo Gym: unknown keys are kept, and an item of an unknown type is
an object with its keys as attributes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypeAliasType

from calipers.systems.nemo_gym import AGENT, ROLLOUT, TASK, lent

__all__ = [  # the names of ``nemo_gym.config_types``
    "AGENT_REF_KEY",
    "AgentServerRef",
    "AggregateMetrics",
    "AggregateMetricsRequest",
    "BaseRunServerConfig",
    "BaseRunServerInstanceConfig",
    "BaseServerConfig",
    "ConfigError",
    "ModelServerRef",
    "ResourcesServerRef",
    "ServerRef",
    "ServerRefNotFoundError",
    "is_server_ref",
]

RATE_LIMIT_ERROR_CODES: Final = [429, 502, 503, 504, 520]
RETRY_ERROR_CODES: Final = [*RATE_LIMIT_ERROR_CODES, 500]
TRIES: Final = 3  # calls of a request that ends with HTTP 500
LIMITED_TRIES: Final = 20  # calls of a request that ends with a rate limit error; NeMo Gym tries endlessly
PAUSE: Final = 0.5  # seconds between two calls

Value = TypeAliasType("Value", Annotated["Opened | list[Value] | Any", Field(union_mode="left_to_right")])


class Opened(BaseModel):
    """A JSON object whose keys are attributes, also in nested objects: ``response.output[0].content[0].text``."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())
    __pydantic_extra__: dict[str, Value]

    def __getitem__(self, key: str) -> Any:
        try:
            return getattr(self, key)
        except AttributeError:
            raise KeyError(key) from None


Status = Literal["in_progress", "completed", "incomplete"]


class NeMoGymResponseOutputText(Opened):
    """A text part of a model's message."""

    annotations: list[Any] = Field(default_factory=list)
    text: str
    type: Literal["output_text"] = "output_text"
    logprobs: list[Any] | None = None


class NeMoGymResponseOutputRefusal(Opened):
    """A refusal part of a model's message."""

    refusal: str
    type: Literal["refusal"] = "refusal"


NeMoGymContent = NeMoGymResponseOutputText | NeMoGymResponseOutputRefusal


class NeMoGymResponseOutputMessage(Opened):
    """A message of a model."""

    id: str
    content: list[NeMoGymContent]
    role: Literal["assistant"] = "assistant"
    status: Status = "completed"
    type: Literal["message"] = "message"


class NeMoGymEasyInputMessage(Opened):
    """A message to a model; its content is text or parts that are plain dicts."""

    content: str | list[dict[str, Any]]
    role: Literal["user", "assistant", "system", "developer"]
    type: Literal["message"] = "message"


class NeMoGymMessage(Opened):
    """A message to a model; its content is a list of parts."""

    content: list[dict[str, Any]]
    role: Literal["user", "system", "developer"]
    status: Status = "completed"
    type: Literal["message"] = "message"


class NeMoGymFunctionCallOutput(Opened):
    """The output of a function call."""

    call_id: str
    output: str | list[dict[str, Any]]
    type: Literal["function_call_output"] = "function_call_output"
    id: str | None = None
    status: Status | None = None


class NeMoGymResponseFunctionToolCall(Opened):
    """A function call of a model."""

    arguments: str
    call_id: str
    name: str
    type: Literal["function_call"] = "function_call"
    id: str | None = None
    status: Status | None = None


class NeMoGymSummary(Opened):
    """A summary of a model's reasoning."""

    text: str
    type: Literal["summary_text"] = "summary_text"


class NeMoGymResponseReasoningItem(Opened):
    """The reasoning of a model before its answer."""

    id: str
    summary: list[NeMoGymSummary]
    type: Literal["reasoning"] = "reasoning"
    encrypted_content: str | None = None
    content: list[Opened] | None = None


_OutputItem = (
    NeMoGymResponseOutputMessage
    | NeMoGymResponseFunctionToolCall
    | NeMoGymFunctionCallOutput
    | NeMoGymResponseReasoningItem
)
NeMoGymResponseOutputItem = Annotated[_OutputItem | Opened, Field(union_mode="left_to_right")]
"""An item of a response. An item of an unknown type is an `Opened` object."""

NeMoGymResponseInputItem = Annotated[
    _OutputItem | NeMoGymEasyInputMessage | NeMoGymMessage | Opened, Field(union_mode="left_to_right")
]
NeMoGymResponseInput = list[NeMoGymResponseInputItem]


class NeMoGymResponse(Opened):
    """The answer of a model: a response object of OpenAI's Responses API. Only ``output`` is required."""

    output: list[NeMoGymResponseOutputItem]
    error: Opened | None = None
    incomplete_details: Opened | None = None
    metadata: dict[str, str] | None = None
    status: str | None = None
    usage: Opened | None = None

    @property
    def output_text(self) -> str:
        """The text of the answer: the ``output_text`` parts of all messages, concatenated."""
        return output_text(self.model_dump(include={"output"})["output"])


def output_text(output: list[Any]) -> str:
    """The text in the output of a response. Items that are not messages, and parts that are not text, are skipped.

    >>> output_text([{"type": "message", "content": [{"type": "output_text", "text": "42"}]}, {"type": "reasoning"}])
    '42'
    """
    messages = (item for item in output if isinstance(item, dict) and item.get("type", "message") == "message")
    contents = (message.get("content") for message in messages)
    parts = [part for content in contents if isinstance(content, list) for part in content if isinstance(part, dict)]
    texts = (part.get("text") for part in parts if part.get("type") == "output_text")
    return "".join(text for text in texts if isinstance(text, str))


class NeMoGymResponseCreateParamsNonStreaming(BaseModel):
    """The request to a model. Unknown keys are refused; a key that is not given is null in the answer."""

    model_config = ConfigDict(extra="forbid")

    input: str | NeMoGymResponseInput
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


class NeMoGymResponseInputTokensDetails(Opened):
    """Details of the input tokens."""

    cached_tokens: int | None


class NeMoGymResponseOutputTokensDetails(Opened):
    """Details of the output tokens."""

    reasoning_tokens: int | None


class NeMoGymResponseUsage(Opened):
    """The token counts of a response."""

    input_tokens: int
    input_tokens_details: NeMoGymResponseInputTokensDetails
    output_tokens: int
    output_tokens_details: NeMoGymResponseOutputTokensDetails
    total_tokens: int


class NeMoGymFunction(Opened):
    """The name and the arguments of a function call."""

    arguments: str
    name: str


class NeMoGymChatCompletionMessageToolCall(Opened):
    """A function call of a model in a chat."""

    id: str
    function: NeMoGymFunction
    type: Literal["function"] = "function"


class NeMoGymChatCompletionMessage(Opened):
    """A message of a model in a chat."""

    content: str | None = None
    refusal: str | None = None
    role: Literal["assistant"] = "assistant"
    tool_calls: list[NeMoGymChatCompletionMessageToolCall] | None = None


class NeMoGymChoice(Opened):
    """One of the answers to a chat request."""

    finish_reason: str | None = None
    index: int = 0
    message: NeMoGymChatCompletionMessage
    logprobs: Opened | None = None


class NeMoGymChatCompletion(Opened):
    """The answer to a chat request."""

    id: str = ""
    choices: list[NeMoGymChoice]
    created: int = 0
    model: str = ""
    object: Literal["chat.completion"] = "chat.completion"
    usage: Opened | None = None


class NeMoGymChatCompletionCreateParamsNonStreaming(BaseModel):
    """A chat request; its messages are plain dicts."""

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
    """A client of an OpenAI-compatible server. Each call returns the decoded JSON of the response."""

    base_url: str
    api_key: str
    internal: bool = False
    default_headers: dict[str, str] = Field(default_factory=dict)

    async def create_models(self) -> Any:
        """List the models of the server."""
        return await self._answer("GET", f"{self.base_url}/models")

    async def create_chat_completion(self, **body: Any) -> Any:
        """Request a chat completion."""
        return await self._answer("POST", f"{self.base_url}/chat/completions", json=body)

    async def create_completion(self, **body: Any) -> Any:
        """Request a completion of a text."""
        return await self._answer("POST", f"{self.base_url}/completions", json=body)

    async def create_response(self, **body: Any) -> Any:
        """Request an answer from the Responses API."""
        return await self._answer("POST", f"{self.base_url}/responses", json=body)

    async def create_tokenize(self, **body: Any) -> Any:
        """Request the tokens of a text."""
        return await self._answer("POST", f"{self.base_url.removesuffix('/v1')}/tokenize", json=body)

    async def _answer(self, method: str, url: str, **more: Any) -> Any:
        # imported here, because it loads a web client
        from calipers.systems.nemo_gym.lent.server_utils import get_response_json, raise_for_status, request

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


class BaseRunRequest(BaseModel):
    """A request to run a task."""

    responses_create_params: NeMoGymResponseCreateParamsNonStreaming


class BaseVerifyRequest(BaseRunRequest):
    """A request to verify the answer of a model."""

    response: NeMoGymResponse


class BaseVerifyResponse(BaseVerifyRequest):
    """A verdict. It contains the request, and so is the row of a rollout."""

    reward: float


class BaseMultiRewardVerifyResponse(BaseVerifyResponse):
    """A verdict with the components of its reward."""

    reward_components: dict[str, float]


class BaseSeedSessionRequest(BaseModel):
    """A request to begin a session."""


class BaseSeedSessionResponse(BaseModel):
    """The answer to a request to begin a session."""


class ReverifyMode(StrEnum):
    """Whether a server can judge a finished rollout again."""

    STATELESS = "stateless"
    UNSUPPORTED = "unsupported"
    UNKNOWN = "unknown"


class BaseServerConfig(BaseModel):
    """The address of a server."""

    host: str = "127.0.0.1"
    port: int = 0
    num_workers: int | None = None


class BaseRunServerConfig(BaseServerConfig):
    """The settings to start a server."""

    entrypoint: str = ""
    domain: str | None = None


class BaseRunServerInstanceConfig(BaseRunServerConfig):
    """The settings of a server with a name."""

    name: str = ""


class BaseResourcesServerConfig(BaseRunServerInstanceConfig):
    """The settings of a resources server; a server with further settings declares them in a subclass."""

    model_config = ConfigDict(extra="allow")

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.UNKNOWN

    expose_tools_over_mcp: bool = False


class AggregateMetricsRequest(BaseModel):
    """The request body of ``/aggregate_metrics``: the stripped rows of one agent."""

    verify_responses: list[dict[str, Any]]


class AggregateMetrics(BaseModel):
    """The answer of ``/aggregate_metrics``."""

    group_level_metrics: list[dict[str, Any]] = Field(default_factory=list)
    agent_metrics: dict[str, Any] = Field(default_factory=dict)
    key_metrics: dict[str, Any] = Field(default_factory=dict)


AGENT_REF_KEY = "agent_ref"


class ModelServerRef(BaseModel):
    """A reference to a model server by its name."""

    type: Literal["responses_api_models"]
    name: str


class ResourcesServerRef(BaseModel):
    """A reference to a resources server by its name."""

    type: Literal["resources_servers"]
    name: str


class AgentServerRef(BaseModel):
    """A reference to an agent by its name."""

    type: Literal["responses_api_agents"]
    name: str


ServerRef = ModelServerRef | ResourcesServerRef | AgentServerRef


class ConfigError(Exception):
    """A mistake in a configuration."""


class ServerRefNotFoundError(ConfigError, ValueError):
    """A reference to a server that the configuration does not have."""


def is_server_ref(config_dict: Any) -> ServerRef | None:
    """The object as a reference to a server; None if it is not a reference."""
    adapter: TypeAdapter[ServerRef] = TypeAdapter(ServerRef)
    try:
        return adapter.validate_python(config_dict)
    except ValidationError:
        return None


class PromptConfig(BaseModel):
    """A prompt template, with ``{column}`` for the value of a row."""

    user: str
    system: str | None = None


@lru_cache(maxsize=64)
def load_prompt_config(path: str) -> PromptConfig:
    """The prompt in a file. A relative path is searched in the working folder, and then in the root of the tree."""
    import yaml

    file = Path(path) if Path(path).exists() else lent.PARENT_DIR / path
    return PromptConfig.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))


def fill_prompt(prompt_config: PromptConfig, row: Mapping[str, Any]) -> list[dict[str, str]]:
    """The messages of a row. KeyError if the row lacks a column of the template.

    >>> fill_prompt(PromptConfig(user="{a} + 1?"), {"a": 2})
    [{'role': 'user', 'content': '2 + 1?'}]
    """
    roles = [("system", prompt_config.system), ("user", prompt_config.user)]
    try:
        return [{"role": role, "content": text.format_map(row)} for role, text in roles if text is not None]
    except KeyError as error:
        raise KeyError(f"the prompt needs {error}, but the row only has {', '.join(row)}") from None


def apply_prompt_to_row(row: Mapping[str, Any], prompt_config: PromptConfig) -> dict[str, Any]:
    """A row with the prompt as its input. Its other request parameters are kept."""
    given = row.get("responses_create_params")
    params = {**given} if isinstance(given, Mapping) else {}
    return {**row, "responses_create_params": {**params, "input": fill_prompt(prompt_config, row)}}


# -- the configuration of all servers together

NEMO_GYM_CONFIG_DICT_ENV_VAR_NAME: Final = "NEMO_GYM_CONFIG_DICT"
NEMO_GYM_CONFIG_PATH_ENV_VAR_NAME: Final = "NEMO_GYM_CONFIG_PATH"
TASK_INDEX_KEY_NAME: Final = TASK
ROLLOUT_INDEX_KEY_NAME: Final = ROLLOUT
AGENT_REF_KEY_NAME: Final = AGENT
RESPONSES_CREATE_PARAMS_KEY_NAME: Final = "responses_create_params"
RESPONSE_KEY_NAME: Final = "response"


class ServerSettings(dict[str, Any]):
    """An object of the configuration, whose keys are also attributes.

    >>> ServerSettings({"judge": {"port": 80}}).judge.port
    80
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        return ServerSettings(value) if type(value) is dict else value

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a key, or the default."""
        try:
            return self[name]
        except KeyError:
            return default

    def values(self) -> Any:
        """The values; objects among them are `ServerSettings`."""
        return [self[name] for name in self]


def maybe_get_global_config_dict() -> ServerSettings | None:
    """The configuration; None if the environment has none."""
    import yaml

    text = os.environ.get(NEMO_GYM_CONFIG_DICT_ENV_VAR_NAME)
    return ServerSettings(yaml.safe_load(text) or {}) if text else None


def get_global_config_dict(*_: Any, **__: Any) -> ServerSettings:
    """The configuration; an empty one if the environment has none."""
    return maybe_get_global_config_dict() or ServerSettings()


def get_first_server_config_dict(global_config_dict: Mapping[str, Any], top_level_path: str) -> Any:
    """The settings of a server by its name. They are nested below its kind and its implementation."""
    kinds = global_config_dict[top_level_path]
    implementations = next(iter(kinds.values()))
    settings = next(iter(implementations.values()))
    return ServerSettings(settings) if isinstance(settings, dict) else settings
