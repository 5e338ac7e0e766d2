"""``litellm/ID``: a model of any provider that the litellm package knows."""

from __future__ import annotations

import importlib
import os
import re
from time import perf_counter
from typing import Any

import msgspec

from calipers.clients import Completion, Connection, Request, as_text, reply
from calipers.clients.reply import Refusal, cleaned, from_status
from calipers.errors import ClientError, InputError
from calipers.typed import complete


def connect(name: str, connection: Connection) -> LitellmModel:
    """The client of a model by litellm's id, such as ``anthropic/claude-x``.

    Only litellm knows which key a provider needs, so every key in the environment is treated as a secret.
    """
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # use the installed price list, download none
    try:
        package: Any = importlib.import_module("litellm")
    except ModuleNotFoundError as error:
        if error.name != "litellm":
            raise
        raise InputError(f"model 'litellm/{name}' needs litellm; pip install 'calipers[litellm]'") from error
    connection.secrets.add_environment()
    package.suppress_debug_info = True  # it prints advice on standard output
    try:
        package.get_llm_provider(model=name, api_base=connection.base_url)
    except package.exceptions.BadRequestError as error:
        raise InputError(
            f"litellm knows no provider for {name!r}; expected PROVIDER/NAME, as in litellm's list of models"
        ) from error
    return LitellmModel(name, connection, package)


class LitellmModel:
    """Completions from one model through litellm. litellm makes no retries; the loop does."""

    def __init__(self, name: str, connection: Connection, package: Any) -> None:
        self.notes: list[str] = []
        self._name, self._connection, self._litellm = name, connection, package
        self._seeds = True

    async def complete(self, request: Request) -> Completion:
        """The model's completion; `ClientError` if the request fails in any way."""
        started = perf_counter()
        try:
            response = await self._ask(request)
        except Exception as error:  # litellm's dependencies raise many types; after any of them there is no answer
            if (
                self._seeds
                and request.seed is not None
                and re.search(r"\bseed\b", str(error))
                and _status(error) == 400
            ):
                self._seeds = False
                self.notes.append(
                    "the provider does not accept a seed; none is sent, so answers may differ between runs"
                )
                return await self.complete(request)
            raise self._failed(error) from None  # its repr may hold headers
        latency_s = perf_counter() - started
        document = response.model_dump()
        if not self._connection.price and (cost := self._cost(response)) is not None:
            document["usage"] = {"cost": cost, **(document.get("usage") or {})}
        try:
            replied = msgspec.convert(document, complete(reply.Reply))
        except msgspec.ValidationError as error:
            raise reply.malformed("the response is not a chat completion") from error
        seed = request.extra.get("seed", request.seed if self._seeds else None)
        sent = seed if isinstance(seed, int) else None
        return reply.completion(replied, latency_s, self._connection.price, self._connection.secrets, sent)

    async def close(self) -> None:
        """Close the connections."""
        await self._litellm.close_litellm_async_clients()

    async def _ask(self, request: Request) -> Any:
        given = {
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "stop": list(request.stop) or None,
            "seed": request.seed if self._seeds else None,
            "base_url": self._connection.base_url,
        }
        settings = {name: value for name, value in given.items() if value is not None} | dict(request.extra)
        settings |= {"timeout": self._connection.timeout, "max_retries": 0}
        if self._connection.api == "chat":
            return await self._litellm.acompletion(model=self._name, messages=request.messages, **settings)
        prompt = as_text(request, "use the chat route")
        return await self._litellm.atext_completion(model=self._name, prompt=prompt, **settings)

    def _cost(self, response: Any) -> float | None:
        """The cost of the call by litellm's price list; None for a model that is not in the list."""
        try:
            return float(self._litellm.completion_cost(completion_response=response))
        except Exception:  # the type depends on what is missing
            return None

    def _failed(self, error: Exception) -> ClientError:
        if isinstance(error, ClientError):
            return error
        exceptions, secrets = self._litellm.exceptions, self._connection.secrets
        message = str(getattr(error, "message", error))
        if isinstance(error, exceptions.Timeout):
            return ClientError(f"no answer within {self._connection.timeout:g} s", kind="timeout", retry=True)
        if isinstance(error, exceptions.APIConnectionError):
            return ClientError(cleaned(message, secrets), kind="connection", retry=True, hopeless=True)
        status = _status(error)
        if status is None:
            return ClientError(cleaned(f"{type(error).__name__}: {message}", secrets), kind="litellm")
        return from_status(status, Refusal(message), getattr(error, "litellm_response_headers", None) or {}, secrets)


def _status(error: Exception) -> int | None:
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else None
