"""Model servers of a configuration: each a loopback address that passes requests on, with the model and the key put in.

A model behind ``/v1/responses`` is asked there; one that has only chats (NeMo Gym's ``vllm_model``) is asked in a chat,
and its answer put into a response.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from socket import socket
from typing import Any, Final

import aiohttp
import msgspec
from aiohttp import web

from calipers.errors import InputError
from calipers.systems.nemo_gym.serve.configuration import ConfiguredServer

BODY: Final = 64 << 20  # bytes of a request
CHAT: Final = "/chat/completions"
_SAMPLING: Final = {"max_output_tokens": "max_tokens", "temperature": "temperature", "top_p": "top_p", "user": "user"}
_PARTS: Final = ("input_text", "output_text", "text")


@dataclass(frozen=True, slots=True)
class ModelServer:
    """A model and where it really is."""

    name: str
    base_url: str
    model: str
    key: str
    headers: Mapping[str, str]
    extra: Mapping[str, Any]
    chats_only: bool


def model_server(server: ConfiguredServer, where: str) -> ModelServer:
    """The model behind a server's settings. InputError for settings that lead to none."""
    settings = server.settings
    for chats_only, prefix, model in ((False, "openai_", "openai_model"), (True, "", "model")):
        urls = settings.get(f"{prefix}base_url")
        url = urls[0] if isinstance(urls, list) and urls else urls
        if isinstance(url, str) and url and settings.get(model):
            return ModelServer(
                server.name,
                url.rstrip("/"),
                str(settings[model]),
                str(settings.get(f"{prefix}api_key") or ""),
                settings.get(f"{prefix}default_headers") or settings.get("default_headers") or {},
                settings.get("extra_body") or {},
                chats_only,
            )
    right = "expected openai_base_url and openai_model, or base_url and model, or the host and port of a running server"
    raise InputError.at(where, f"{server.name}: its settings name no model", right)


def as_chat(body: Mapping[str, Any]) -> dict[str, Any]:
    """A request to the Responses API as a chat. InputError for what a chat has no words for.

    >>> as_chat({"input": "2 + 2?", "max_output_tokens": 8})
    {'messages': [{'role': 'user', 'content': '2 + 2?'}], 'max_tokens': 8}
    """
    if body.get("tools"):
        raise InputError.at("tools", "this model server only forwards chats", "expected a request without tools")
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    messages = [{"role": "system", "content": body["instructions"]}] if body.get("instructions") else []
    for number, item in enumerate(items or []):
        if not isinstance(item, Mapping) or "role" not in item:
            raise InputError.at(f"input.{number}", "it is not a message", "expected role and content")
        messages.append({"role": item["role"], "content": _text(item.get("content"), number)})
    return {"messages": messages, **{new: body[old] for old, new in _SAMPLING.items() if body.get(old) is not None}}


def _text(content: Any, number: int) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part["text"] for part in parts if isinstance(part, Mapping) and part.get("type") in _PARTS]
    if len(texts) != len(parts):
        raise InputError.at(f"input.{number}", "it contains more than text", "expected text for a chat model")
    return "".join(texts)


def as_response(chat: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a chat as one of the Responses API."""
    choice = chat["choices"][0]
    message, usage = choice["message"], chat.get("usage") or {}
    made = uuid.uuid4().hex
    text: dict[str, Any] = {"type": "output_text", "text": message.get("content") or "", "annotations": []}
    items: list[dict[str, Any]] = []
    if reasoning := message.get("reasoning_content") or message.get("reasoning"):
        thought = [{"type": "summary_text", "text": reasoning}]
        items.append({"id": f"rs_{made}", "type": "reasoning", "summary": thought})
    items.append(
        {"id": f"msg_{made}", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
    )
    cut = choice.get("finish_reason") == "length"
    return {
        "id": f"resp_{made}",
        "object": "response",
        "created_at": float(chat.get("created") or int(time.time())),
        "model": chat.get("model") or body.get("model") or "",
        "output": items,
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": usage.get("prompt_tokens", 0),
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": usage.get("completion_tokens", 0),
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.get("total_tokens", 0),
        },
    }


def model_app(server: ModelServer, client: aiohttp.ClientSession) -> web.Application:
    """The web application of one model server."""

    async def passed(path: str, body: Mapping[str, Any]) -> tuple[int, bytes]:
        headers = {**server.headers, **({"Authorization": f"Bearer {server.key}"} if server.key else {})}
        sent = {**server.extra, **body, "model": server.model}
        url = f"{server.base_url}{path}"
        async with client.post(url, json=sent, headers=headers, allow_redirects=False) as response:
            return response.status, await response.read()

    async def answer(request: web.Request) -> web.Response:
        body = await request.json(loads=msgspec.json.decode)
        path = request.path.removeprefix("/v1")
        try:
            in_chat = server.chats_only and path != CHAT
            status, raw = await passed(CHAT if in_chat else path, as_chat(body) if in_chat else body)
            if in_chat and status == 200:
                return web.json_response(as_response(msgspec.json.decode(raw), body))
        except InputError as error:
            return _failed(400, str(error))
        except aiohttp.ClientError as error:
            return _failed(502, f"{server.name}: {error}")  # never repr: it may hold the key
        except (msgspec.DecodeError, KeyError, IndexError, TypeError):
            return _failed(502, f"{server.name}: the response is not a chat completion")
        return web.Response(body=raw, status=status, content_type="application/json")

    app = web.Application(client_max_size=BODY)
    app.router.add_post("/v1/responses", answer)
    app.router.add_post("/v1/chat/completions", answer)
    return app


def _failed(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=status)


@asynccontextmanager
async def running(servers: Sequence[tuple[ModelServer, socket]]) -> AsyncIterator[None]:
    """Inside, every model server answers on its socket."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as client:
        runners = []
        try:
            for server, bound in servers:
                runner = web.AppRunner(model_app(server, client), access_log=None)
                await runner.setup()
                runners.append(runner)
                await web.SockSite(runner, bound).start()
            yield
        finally:
            for runner in runners:
                await runner.cleanup()
