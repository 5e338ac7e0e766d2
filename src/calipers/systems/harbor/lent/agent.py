"""A Harbor agent that sends one chat request to an OpenAI-compatible server and stores the reply as its answer.

``harbor run -a calipers_harbor.agent:ChatAgent -m NAME --ak server=...``. Models of another provider
(``anthropic/...``) are called through the LiteLLM that Harbor installs. The key comes from the environment
(``OPENAI_API_KEY``), never from the job's configuration, which is written to disk. The answer is stored in the trial's
``agent/completion.txt`` and, for tests inside the environment, in ``/logs/agent/completion.txt``.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from harbor.agents.base import BaseAgent
from harbor.agents.installed.base import (
    AgentAuthenticationError,
    AgentSafetyRefusalError,
    ApiError,
    ApiInternalServerError,
    ApiRateLimitError,
    ModelNotFoundError,
)
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext

TRIES = 6
GIVE_UP = 4  # consecutive trials without a reply, after which a server gets no more requests
LONGEST_WAIT = 60.0  # seconds between two tries
TIMEOUT = 600.0  # seconds for one request
LARGEST = 64 << 20  # bytes of a reply
COMPLETION = "completion.txt"


class ChatAgent(BaseAgent):
    """Sends one request without tools and stores the answer."""

    def __init__(
        self,
        *args: Any,
        server: str | None = None,
        max_tokens: int = 512,
        temperature: float = 0.0,
        system_prompt: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        provider, _, rest = (self.model_name or "").partition("/")
        base = os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
        address = server or (base if provider == "openai" or not rest else None)
        self._server = address.rstrip("/") if address else None
        self._settings = {"max_tokens": int(max_tokens), "temperature": float(temperature)}
        self._system = system_prompt

    @staticmethod
    def name() -> str:
        """The agent's name in Harbor."""
        return "calipers-chat"

    def version(self) -> str:
        """The agent's version."""
        return "1"

    async def setup(self, environment: BaseEnvironment) -> None:
        """Install nothing; ValueError without a model."""
        if not self.model_name:
            raise ValueError("the chat agent needs a model; expected -m NAME")

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        """Send the request, record its usage, and store the answer."""
        system = [{"role": "system", "content": self._system}] if self._system else []
        request = {"messages": [*system, {"role": "user", "content": instruction}], **self._settings}
        if self._server is None:
            reply = await asyncio.to_thread(_by_litellm, {"model": self.model_name, **request})
        else:
            model = (self.model_name or "").removeprefix("openai/")
            reply = await asyncio.to_thread(self._ask, json.dumps({"model": model, **request}).encode())
        usage = reply.get("usage") or {}
        context.n_input_tokens = usage.get("prompt_tokens")
        context.n_output_tokens = usage.get("completion_tokens")
        context.n_cache_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        context.cost_usd = usage.get("cost")
        choice = (reply.get("choices") or [{}])[0]
        message = choice.get("message") or {}
        context.metadata = {"finish_reason": choice.get("finish_reason")}
        if message.get("refusal") or choice.get("finish_reason") == "content_filter":
            raise AgentSafetyRefusalError(str(message.get("refusal") or "the server filtered the answer"))
        text = message.get("content") or ""
        self.logs_dir.mkdir(parents=True, exist_ok=True)
        path = Path(self.logs_dir, COMPLETION)
        path.write_text(text, encoding="utf-8")
        await environment.upload_file(path, f"/logs/agent/{COMPLETION}")

    def _ask(self, body: bytes) -> dict[str, Any]:
        """The server's reply; temporary errors are retried after ``Retry-After`` or with exponential backoff.

        ServerNotAskedError without a request if the server did not reply to the last `GIVE_UP` trials.
        """
        server = str(self._server)
        for turn in range(TRIES):
            if _failed.get(server, 0) >= GIVE_UP:
                raise ServerNotAskedError(
                    f"{server} did not answer {GIVE_UP} trials in a row, so no more requests are sent; "
                    "run the same command again to resume"
                )
            try:
                reply = self._post(body)
                _failed[server] = 0
                return reply
            except urllib.error.HTTPError as error:
                message = error.read(2000).decode(errors="replace").strip()
                failure = _exception_type(error.code)(f"HTTP {error.code} from {self._server}: {message[:300]}")
                if error.code not in (408, 409, 429) and error.code < 500:
                    _failed[server] = _failed.get(server, 0) + 1 if error.code in (401, 403, 404) else 0
                    raise failure from None
                pause = _seconds(error.headers.get("Retry-After"))
            except (OSError, TimeoutError, ValueError) as error:
                failure, pause = ApiError(f"{self._server}: {type(error).__name__}: {error}"), None
            if turn == TRIES - 1:
                _failed[server] = _failed.get(server, 0) + 1
                raise failure
            time.sleep(min(LONGEST_WAIT, 2.0**turn if pause is None else pause))
        raise AssertionError("unreachable: the last try raises")

    def _post(self, body: bytes) -> dict[str, Any]:
        headers = {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', '')}",
        }
        request = urllib.request.Request(f"{self._server}/chat/completions", body, headers, method="POST")
        opener = urllib.request.build_opener(_NoRedirect)
        with opener.open(request, timeout=TIMEOUT) as response:
            reply = json.loads(response.read(LARGEST))
        if not isinstance(reply, dict):
            raise ValueError("the response is not a JSON object")
        return reply


def _by_litellm(request: dict[str, Any]) -> dict[str, Any]:
    """The reply of a provider that LiteLLM knows, in OpenAI's form, with the cost if LiteLLM knows the price."""
    import litellm

    response = litellm.completion(**request, timeout=TIMEOUT, num_retries=TRIES - 1)
    reply: dict[str, Any] = response.model_dump()
    try:
        cost = litellm.completion_cost(response)
    except Exception:  # LiteLLM raises a plain Exception for a model without a price
        cost = None
    return {**reply, "usage": {**(reply.get("usage") or {}), "cost": cost or None}}


_failed: dict[str, int] = {}
"""The number of consecutive trials without a reply, by server; Harbor runs all trials of a job in one process."""


class ServerNotAskedError(ApiError):
    """A trial whose request was not sent, because the server had failed too often before."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirects, so that the key is never sent to another server."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def _exception_type(code: int) -> type[Exception]:
    """Harbor's exception for an HTTP status."""
    known = {401: AgentAuthenticationError, 403: AgentAuthenticationError, 404: ModelNotFoundError}
    known[429] = ApiRateLimitError
    return known.get(code, ApiInternalServerError if code >= 500 else ApiError)


def _seconds(text: str | None) -> float | None:
    try:
        return max(0.0, float(text or ""))
    except ValueError:
        return None
