"""NeMo Gym's models: what a resources server is sent and answers, how servers name each other, prompts, configuration.

Lent as ``nemo_gym.config_types``, ``nemo_gym.openai_utils``, ``nemo_gym.prompt`` and ``nemo_gym.global_config``; the
last is the configuration of all servers together, which a server is handed as YAML in an environment variable.

As there, a key that no class declares is dropped, unless the class allows it; but a request to a model may hold none.
OpenAI's objects are looser than there: a key that OpenAI does not know is kept, and an item of an unknown kind is an
object of its keys.
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

__all__ = [  # what is lent as ``nemo_gym.config_types``
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
TRIES: Final = 3  # of a request that the server could not answer
LIMITED_TRIES: Final = 20  # of one that it had no time for; NeMo Gym itself tries for ever
PAUSE: Final = 0.5  # seconds between two tries

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


Status = Literal["in_progress", "completed", "incomplete"]


class NeMoGymResponseOutputText(Opened):
    """Text in a message of a model's."""

    annotations: list[Any] = Field(default_factory=list)
    text: str
    type: Literal["output_text"] = "output_text"
    logprobs: list[Any] | None = None


class NeMoGymResponseOutputRefusal(Opened):
    """A refusal in a message of a model's."""

    refusal: str
    type: Literal["refusal"] = "refusal"


NeMoGymContent = NeMoGymResponseOutputText | NeMoGymResponseOutputRefusal


class NeMoGymResponseOutputMessage(Opened):
    """A message of a model's."""

    id: str
    content: list[NeMoGymContent]
    role: Literal["assistant"] = "assistant"
    status: Status = "completed"
    type: Literal["message"] = "message"


class NeMoGymEasyInputMessage(Opened):
    """A message to a model; the parts of its content are plain dicts."""

    content: str | list[dict[str, Any]]
    role: Literal["user", "assistant", "system", "developer"]
    type: Literal["message"] = "message"


class NeMoGymMessage(Opened):
    """A message to a model, in parts."""

    content: list[dict[str, Any]]
    role: Literal["user", "system", "developer"]
    status: Status = "completed"
    type: Literal["message"] = "message"


class NeMoGymFunctionCallOutput(Opened):
    """What a function answered."""

    call_id: str
    output: str | list[dict[str, Any]]
    type: Literal["function_call_output"] = "function_call_output"
    id: str | None = None
    status: Status | None = None


class NeMoGymResponseFunctionToolCall(Opened):
    """A function that a model calls."""

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
    """What a model thought before it answered."""

    id: str
    summary: list[NeMoGymSummary]
    type: Literal["reasoning"] = "reasoning"
    encrypted_content: str | None = None
    content: list[Opened] | None = None


NeMoGymResponseOutputItem = Annotated[
    NeMoGymResponseOutputMessage
    | NeMoGymResponseFunctionToolCall
    | NeMoGymFunctionCallOutput
    | NeMoGymResponseReasoningItem
    | Opened,
    Field(union_mode="left_to_right"),
]
"""An item of a response in its class; what fits none of them is an object with the keys it has."""

NeMoGymResponseInputItem = Annotated[
    NeMoGymResponseOutputMessage
    | NeMoGymResponseFunctionToolCall
    | NeMoGymFunctionCallOutput
    | NeMoGymResponseReasoningItem
    | NeMoGymEasyInputMessage
    | NeMoGymMessage
    | Opened,
    Field(union_mode="left_to_right"),
]
NeMoGymResponseInput = list[NeMoGymResponseInputItem]


class NeMoGymResponse(Opened):
    """What a model answered: an object of OpenAI's Responses API, of which only the output is demanded here."""

    output: list[NeMoGymResponseOutputItem]
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
        from calipers.systems.nemo_gym.lent.server_utils import get_response_json, raise_for_status, request  # the web

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


class ReverifyMode(StrEnum):
    """Whether a server can judge a finished rollout again."""

    STATELESS = "stateless"
    UNSUPPORTED = "unsupported"
    UNKNOWN = "unknown"


class BaseServerConfig(BaseModel):
    """Where a server listens."""

    host: str = "127.0.0.1"
    port: int = 0
    num_workers: int | None = None


class BaseRunServerConfig(BaseServerConfig):
    """How a server is started."""

    entrypoint: str = ""
    domain: str | None = None


class BaseRunServerInstanceConfig(BaseRunServerConfig):
    """One server, by its name."""

    name: str = ""


class BaseResourcesServerConfig(BaseRunServerInstanceConfig):
    """The settings of a server; a server with more of them says which in a class of its own."""

    model_config = ConfigDict(extra="allow")

    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.UNKNOWN

    expose_tools_over_mcp: bool = False


class AggregateMetricsRequest(BaseModel):
    """What ``/aggregate_metrics`` is sent: the stripped rows of one agent."""

    verify_responses: list[dict[str, Any]]


class AggregateMetrics(BaseModel):
    """What ``/aggregate_metrics`` answers with."""

    group_level_metrics: list[dict[str, Any]] = Field(default_factory=list)
    agent_metrics: dict[str, Any] = Field(default_factory=dict)
    key_metrics: dict[str, Any] = Field(default_factory=dict)


AGENT_REF_KEY = "agent_ref"


class ModelServerRef(BaseModel):
    """A model server, by its name."""

    type: Literal["responses_api_models"]
    name: str


class ResourcesServerRef(BaseModel):
    """A resources server, by its name."""

    type: Literal["resources_servers"]
    name: str


class AgentServerRef(BaseModel):
    """An agent, by its name."""

    type: Literal["responses_api_agents"]
    name: str


ServerRef = ModelServerRef | ResourcesServerRef | AgentServerRef


class ConfigError(Exception):
    """A mistake in a configuration."""


class ServerRefNotFoundError(ConfigError, ValueError):
    """A server was named that the configuration does not have."""


def is_server_ref(config_dict: Any) -> ServerRef | None:
    """The reference that an object is; None for one that is none."""
    adapter: TypeAdapter[ServerRef] = TypeAdapter(ServerRef)
    try:
        return adapter.validate_python(config_dict)
    except ValidationError:
        return None


class PromptConfig(BaseModel):
    """A prompt with ``{column}`` where a row's value goes."""

    user: str
    system: str | None = None


@lru_cache(maxsize=64)
def load_prompt_config(path: str) -> PromptConfig:
    """The prompt in a file; a path is looked for in the working folder, then in the root of the tree."""
    import yaml

    given = Path(path)
    file = given if given.exists() else lent.PARENT_DIR / given
    return PromptConfig.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))


def fill_prompt(prompt_config: PromptConfig, row: Mapping[str, Any]) -> list[dict[str, str]]:
    """The messages of a row. KeyError for a column it lacks.

    >>> fill_prompt(PromptConfig(user="{a} + 1?"), {"a": 2})
    [{'role': 'user', 'content': '2 + 1?'}]
    """
    roles = [("system", prompt_config.system), ("user", prompt_config.user)]
    try:
        return [{"role": role, "content": text.format_map(row)} for role, text in roles if text is not None]
    except KeyError as error:
        raise KeyError(f"the prompt needs {error}, but the row only has {', '.join(row)}") from None


def apply_prompt_to_row(row: Mapping[str, Any], prompt_config: PromptConfig) -> dict[str, Any]:
    """A row with the prompt as its input; what else it asks of the model stays."""
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
    """An object of the configuration, whose keys are attributes too.

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
        """What stands under a name, or the default."""
        try:
            return self[name]
        except KeyError:
            return default

    def values(self) -> Any:
        """What stands in it, as attributes too."""
        return [self[name] for name in self]


def maybe_get_global_config_dict() -> ServerSettings | None:
    """The configuration; None where the process was not handed one."""
    import yaml

    text = os.environ.get(NEMO_GYM_CONFIG_DICT_ENV_VAR_NAME)
    return ServerSettings(yaml.safe_load(text) or {}) if text else None


def get_global_config_dict(*_: Any, **__: Any) -> ServerSettings:
    """The configuration; an empty one where the process was not handed one."""
    return maybe_get_global_config_dict() or ServerSettings()


def get_first_server_config_dict(global_config_dict: Mapping[str, Any], top_level_path: str) -> Any:
    """The settings of a server by its name: what stands under its kind and its implementation."""
    kinds = global_config_dict[top_level_path]
    implementations = next(iter(kinds.values()))
    settings = next(iter(implementations.values()))
    return ServerSettings(settings) if isinstance(settings, dict) else settings
