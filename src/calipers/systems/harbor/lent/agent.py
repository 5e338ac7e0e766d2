"""Harbor's agent for a plain question: one chat request to an OpenAI-compatible server, its text kept as the answer.

``harbor run -a calipers_harbor.agent:ChatAgent -m NAME --ak server=...``. A model of another provider
(``anthropic/...``) is asked through the LiteLLM that Harbor brings. The key is read from the environment
(``OPENAI_API_KEY``), never from the job's configuration, which is written to disk. What the model wrote is in the
trial's ``agent/completion.txt`` and, for tests inside the environment, in ``/logs/agent/completion.txt``.
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
GIVE_UP = 4  # trials in a row without an answer, after which a server is asked no more
LONGEST_WAIT = 60.0  # seconds between two tries
TIMEOUT = 600.0  # seconds for one request
LARGEST = 64 << 20  # bytes of an answer
COMPLETION = "completion.txt"


class ChatAgent(BaseAgent):
    """Asks once and writes down the answer; it uses no tools."""

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
        """What Harbor calls it."""
        return "calipers-chat"

    def version(self) -> str:
        """Which form of it this is."""
        return "1"

    async def setup(self, environment: BaseEnvironment) -> None:
        """Nothing is installed; ValueError without a model."""
        if not self.model_name:
            raise ValueError("the chat agent needs a model; expected -m NAME")

    async def run(self, instruction: str, environment: BaseEnvironment, context: AgentContext) -> None:
        """Ask, note what it took, and write the answer down."""
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
        """The server's answer; a refusal that may pass is tried again, as the server asks or ever more slowly.

        ServerNotAskedError without a request, once so many trials in a row had no answer from the server.
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
                wrong = _meaning(error.code)(f"HTTP {error.code} from {self._server}: {message[:300]}")
                if error.code not in (408, 409, 429) and error.code < 500:
                    _failed[server] = _failed.get(server, 0) + 1 if error.code in (401, 403, 404) else 0
                    raise wrong from None
                pause = _seconds(error.headers.get("Retry-After"))
            except (OSError, TimeoutError, ValueError) as error:
                wrong, pause = ApiError(f"{self._server}: {type(error).__name__}: {error}"), None
            if turn == TRIES - 1:
                _failed[server] = _failed.get(server, 0) + 1
                raise wrong
            time.sleep(min(LONGEST_WAIT, 2.0**turn if pause is None else pause))
        raise AssertionError("unreachable: the last try raises")

    def _post(self, body: bytes) -> dict[str, Any]:
        headers = {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', '')}",
        }
        request = urllib.request.Request(f"{self._server}/chat/completions", body, headers, method="POST")
        opener = urllib.request.build_opener(_NoRedirect)
        with opener.open(request, timeout=TIMEOUT) as answer:
            reply = json.loads(answer.read(LARGEST))
        if not isinstance(reply, dict):
            raise ValueError("the response is not a JSON object")
        return reply


def _by_litellm(request: dict[str, Any]) -> dict[str, Any]:
    """The answer of any provider that LiteLLM knows, in OpenAI's form; its price where LiteLLM knows that too."""
    import litellm

    answer = litellm.completion(**request, timeout=TIMEOUT, num_retries=TRIES - 1)
    reply: dict[str, Any] = answer.model_dump()
    try:
        cost = litellm.completion_cost(answer)
    except Exception:  # LiteLLM raises its own for a model whose price it does not know
        cost = None
    return {**reply, "usage": {**(reply.get("usage") or {}), "cost": cost or None}}


_failed: dict[str, int] = {}
"""How many trials in a row had no answer, by the server: Harbor runs all trials of a job in one process."""


class ServerNotAskedError(ApiError):
    """A trial whose request was not sent, as the server had failed too often before."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A key is for the server it was given for."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def _meaning(code: int) -> type[Exception]:
    """Harbor's name for what an HTTP status says."""
    known = {401: AgentAuthenticationError, 403: AgentAuthenticationError, 404: ModelNotFoundError}
    known[429] = ApiRateLimitError
    return known.get(code, ApiInternalServerError if code >= 500 else ApiError)


def _seconds(text: str | None) -> float | None:
    try:
        return max(0.0, float(text or ""))
    except ValueError:
        return None
