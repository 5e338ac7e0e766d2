"""A server that runs until it is stopped, with timeouts for slow clients, and the model servers beside it.

Each model server of a configuration is a loopback address that forwards requests, with the model and the key added. For
a model that only has a chat API (NeMo Gym's ``vllm_model``), a request to ``/v1/responses`` is converted to a chat, and
the answer to a response.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import signal
import socket
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import uvicorn
from aiohttp import web
from uvicorn.protocols.http.h11_impl import H11Protocol

from calipers.errors import InputError
from calipers.systems.nemo_gym.hooks import load_server
from calipers.systems.nemo_gym.lent.server_utils import hang_up
from calipers.systems.nemo_gym.serve import LIMITS, Workers, WorkerSettings
from calipers.systems.nemo_gym.serve.app import Door, Offer, make_app
from calipers.systems.nemo_gym.serve.configuration import (
    SERVER,
    SERVERS,
    ConfiguredServer,
    chosen_server,
    handed_on,
    own_settings,
    read_configuration,
)
from calipers.systems.nemo_gym.wire import TEXTS, response_object, response_usage
from calipers.verifiers import ready
from calipers.verifiers.user_code import find_verifier

BODY: Final = 64 << 20  # bytes of a request to a model server
CHAT: Final = "/chat/completions"
_SAMPLING: Final = {"max_output_tokens": "max_tokens", "temperature": "temperature", "top_p": "top_p", "user": "user"}
_THOUGHTS: Final = re.compile(r"<think>(.*?)</think>", re.DOTALL)
HEAD: Final = 64 << 10  # bytes of a request's first line and headers
IDLE: Final = 60.0  # seconds for all headers, and between two pieces of a body or of an answer


@dataclass(frozen=True, slots=True)
class ModelServer:
    """A model server: the model and its real address."""

    name: str
    base_url: str
    model: str
    key: str
    headers: Mapping[str, str]
    extra: Mapping[str, Any]
    chats_only: bool
    template: Mapping[str, Any] = field(default_factory=dict)  # chat_template_kwargs
    system_only: bool = False  # send developer messages with the role system
    parses_thoughts: bool = False  # text between <think> and </think> is reasoning, and not part of the answer


def model_server(server: ConfiguredServer, files: str) -> ModelServer:
    """The model server of a configured server. InputError, which names ``files``, if its settings name no model."""
    settings = server.settings
    if settings.get("use_completions_api"):
        advice = "start this model server with NeMo Gym and give its host and port"
        raise InputError.at(files, f"{server.name}: use_completions_api is not supported", advice)
    for chats_only, prefix, model in ((False, "openai_", "openai_model"), (True, "", "model")):
        urls = settings.get(f"{prefix}base_url")
        url = urls[0] if isinstance(urls, list) and urls else urls
        if isinstance(url, str) and url and settings.get(model):
            key = str(settings.get(f"{prefix}api_key") or "")
            named = f"{prefix}default_headers" if settings.get(f"{prefix}default_headers") else "default_headers"
            headers = {str(name): str(value) for name, value in _object(server, named, files).items()}
            if not "".join((key, *headers, *headers.values())).isprintable():
                problem = f"{server.name}: its key or a header contains control characters"
                raise InputError.at(files, problem, "expected text on one line")
            return ModelServer(
                server.name,
                url.rstrip("/"),
                str(settings[model]),
                key,
                headers,
                _object(server, "extra_body", files),
                chats_only and not settings.get("is_responses_native"),
                _object(server, "chat_template_kwargs", files),
                bool(settings.get("replace_developer_role_with_system")),
                bool(settings.get("uses_reasoning_parser")),
            )
    keys = "expected openai_base_url and openai_model, or base_url and model, or the host and port of a running server"
    raise InputError.at(files, f"{server.name}: its settings name no model", keys)


def _object(server: ConfiguredServer, key: str, files: str) -> Mapping[str, Any]:
    """The object under a key of a server's settings; empty if there is none."""
    value = server.settings.get(key) or {}
    if not isinstance(value, Mapping):
        raise InputError.at(files, f"{server.name}: {key} is not an object", "expected keys with values")
    return value


def as_chat(body: Mapping[str, Any]) -> dict[str, Any]:
    """A request to the Responses API as a chat request. InputError if it has tools, or anything but messages of text.

    >>> as_chat({"input": "2 + 2?", "max_output_tokens": 8})
    {'messages': [{'role': 'user', 'content': '2 + 2?'}], 'max_tokens': 8}
    """
    if body.get("tools"):
        raise InputError.at("tools", "this model server only forwards chats", "expected a request without tools")
    prompt = body.get("input")
    items = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [] if prompt is None else prompt
    if not isinstance(items, list):
        raise InputError.at("input", "it is neither text nor a list", "expected text or a list of messages")
    messages = [{"role": "system", "content": body["instructions"]}] if body.get("instructions") else []
    for number, item in enumerate(items):
        if not isinstance(item, Mapping) or "role" not in item:
            raise InputError.at(f"input.{number}", "it is not a message", "expected role and content")
        messages.append({"role": item["role"], "content": _text(item.get("content"), number)})
    return {"messages": messages, **{new: body[old] for old, new in _SAMPLING.items() if body.get(old) is not None}}


def _text(content: Any, number: int) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    values = [part.get("text") for part in parts if isinstance(part, Mapping) and part.get("type") in TEXTS]
    texts = [text for text in values if isinstance(text, str)]
    if len(texts) != len(parts):
        raise InputError.at(f"input.{number}", "it contains more than text", "expected text for a chat model")
    return "".join(texts)


def as_sent(server: ModelServer, body: Mapping[str, Any], in_chat: bool) -> dict[str, Any]:
    """The request to send: the client's, with additions from the server's settings and from the request's metadata.

    InputError for a request that cannot be sent.
    """
    sent = as_chat(body) if in_chat else dict(body)
    metadata = body.get("metadata") if server.chats_only else None
    if server.system_only and isinstance(messages := sent.get("messages"), list):
        sent["messages"] = [_without_developer(message) for message in messages]
    if template := {**server.template, **_in_metadata(metadata, "chat_template_kwargs")}:
        sent["chat_template_kwargs"] = template
    return {**server.extra, **_in_metadata(metadata, "extra_body"), **sent, "model": server.model}


def _without_developer(message: Any) -> Any:
    is_developer = isinstance(message, Mapping) and message.get("role") == "developer"
    return {**message, "role": "system"} if is_developer else message


def _in_metadata(metadata: Any, name: str) -> Mapping[str, Any]:
    """A JSON object that is a string in a request's metadata; empty if there is none."""
    text = metadata.get(name) if isinstance(metadata, Mapping) else None
    try:
        value = msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, TypeError):
        value = None
    if not isinstance(value, Mapping):
        raise InputError.at(f"metadata.{name}", "is not a JSON object", "expected one, as text")
    return value


def as_response(chat: Mapping[str, Any], body: Mapping[str, Any], parses_thoughts: bool = False) -> dict[str, Any]:
    """The answer to a chat request as a response object."""
    choice = chat["choices"][0]
    message, usage = choice["message"], chat.get("usage") or {}
    response_id = uuid.uuid4().hex
    text, reasoning = message.get("content") or "", message.get("reasoning_content") or message.get("reasoning")
    texts = [reasoning] if reasoning else []
    if parses_thoughts:
        texts += _THOUGHTS.findall(text)
        text = _THOUGHTS.sub("", text)
    summary = [{"type": "summary_text", "text": thought} for thought in texts]
    thoughts = [{"id": f"rs_{response_id}", "type": "reasoning", "summary": summary}] if summary else []
    read, written, total = (usage.get(f"{part}_tokens", 0) for part in ("prompt", "completion", "total"))
    return response_object(
        response_id,
        chat.get("model") or body.get("model") or "",
        {"type": "output_text", "text": text, "annotations": []},
        created=chat.get("created") or int(time.time()),
        cut=choice.get("finish_reason") == "length",
        usage=response_usage(read, written, total),
        before=thoughts,
    )


def model_app(server: ModelServer, client: aiohttp.ClientSession) -> web.Application:
    """The web application of one model server."""

    async def forward(path: str, sent: Mapping[str, Any]) -> tuple[int, bytes]:
        headers = {**server.headers, **({"Authorization": f"Bearer {server.key}"} if server.key else {})}
        url = f"{server.base_url}{path}"
        async with client.post(url, json=sent, headers=headers, allow_redirects=False) as response:
            return response.status, await response.read()

    async def answer(request: web.Request) -> web.Response:
        try:
            body = msgspec.json.decode(await request.read(), type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return _failed(400, f"the request is not a JSON object ({error})")
        path = request.path.removeprefix("/v1")
        try:
            in_chat = server.chats_only and path != CHAT
            status, raw = await forward(CHAT if in_chat else path, as_sent(server, body, in_chat))
            if in_chat and status == 200:
                return web.json_response(as_response(msgspec.json.decode(raw), body, server.parses_thoughts))
        except InputError as error:
            return _failed(400, str(error))
        except aiohttp.ClientError as error:
            return _failed(502, f"{server.name}: {error}")  # never its repr, which may contain the key
        except (msgspec.MsgspecError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
            return _failed(502, f"{server.name}: the response is not a chat completion")
        return web.Response(body=raw, status=status, content_type="application/json")

    app = web.Application(client_max_size=BODY)
    app.router.add_post("/v1/responses", answer)
    app.router.add_post("/v1/chat/completions", answer)
    return app


def _failed(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=status)


@asynccontextmanager
async def running(servers: Sequence[tuple[ModelServer, socket.socket]]) -> AsyncIterator[None]:
    """Run every model server on its socket while the context is open."""
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


class BoundedConnection(H11Protocol):
    """HTTP/1.1 with timeouts for the headers, for each piece of a body, and for a client that does not read its answer.

    The time that the server itself needs does not count.
    """

    idle = IDLE
    _since = 0.0  # when the current wait for the client began
    _unsent = 0  # bytes in the send buffer at the last check
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Start the timeout for a request."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._timer = self.loop.call_later(self.idle, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timeout."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Process data. It restarts the timeout, unless the headers are still incomplete."""
        before = self._awaits_headers()
        super().data_received(data)
        if not (before and self._awaits_headers()):
            self._since = self.loop.time()

    def _awaits_headers(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _look(self) -> None:
        """Close the connection if the client has timed out; otherwise check again later."""
        now, unsent = self.loop.time(), self.transport.get_write_buffer_size()
        stuck, self._unsent = bool(unsent) and unsent == self._unsent, unsent
        awaits_client = self._awaits_headers() or (self.cycle.more_body and not self.flow.read_paused)
        if unsent or not awaits_client:
            self._since = now
        if stuck or now - self._since >= self.idle:
            self.transport.abort()
            return
        self._timer = self.loop.call_at(max(self._since + self.idle, now), self._look)


GRACE: Final = 10  # seconds for requests in flight when the server is stopped
WAITING: Final = 2048  # connections that may wait to be accepted


@dataclass(frozen=True, slots=True)
class Served:
    """What to serve: a user's class, or a verifier, or neither; and the files that configure a class."""

    spec: str | None = None
    verifier: str | None = None
    config: tuple[str, ...] = ()


def serve(served: Served, door: Door, port: int, say: Callable[[str], None]) -> None:
    """Serve until a signal arrives; ``say`` is called with the address.

    InputError if the server cannot be loaded, or cannot listen on the address.
    """
    with closing_socket(door.host, port) as bound, ExitStack() as stack:
        number = bound.getsockname()[1]
        spec, given = served.spec, None
        models: list[tuple[ModelServer, socket.socket]] = []
        if served.config:
            spec, models = stack.enter_context(_configured(served, door.host, number))
            given = own_settings()
        hosted = load_server(spec, door.host, number, given) if spec else None
        offer = Offer(hosted, find_verifier(served.verifier) if served.verifier else None)
        ready([] if offer.verifier is None else [offer.verifier])
        settings = WorkerSettings(LIMITS, spec, door.host, number, bool(served.config))

        async def serving() -> None:
            async with Workers(settings) as workers, running(models):
                app = make_app(workers, offer, door)
                say(address(door.host, number))
                server = _server(app)
                try:
                    await server.serve(sockets=[bound])
                finally:
                    await hang_up()
                    if server.force_exit:  # a second Ctrl-C, after which uvicorn itself skips the shutdown events
                        await server.lifespan.shutdown()

        with _stopped_by_signals(), suppress(KeyboardInterrupt):
            asyncio.run(serving())


@contextmanager
def _configured(served: Served, host: str, port: int) -> Iterator[tuple[str, list[tuple[ModelServer, socket.socket]]]]:
    """The class to serve, and the model servers that it calls.

    While the context is open, the environment and the working folder are as NeMo Gym sets them for a server.
    """
    configuration = read_configuration(served.config)
    spec, server = chosen_server(configuration, served.spec)
    with ExitStack() as stack:
        models, others = [], []
        for kind, name in dict.fromkeys(server.references):
            if name == server.name:
                continue
            other = configuration.server(name, kind)
            if not other.settings.get("port"):
                if kind != "responses_api_models":
                    advice = "calipers serve runs only one of them: start the other and give its host and port"
                    raise InputError.at(configuration.files, f"{server.name} calls the {kind} {name}", advice)
                model = model_server(other, configuration.files)
                bound = stack.enter_context(closing_socket("127.0.0.1", 0))
                models.append((model, bound))
                listening = {"host": "127.0.0.1", "port": bound.getsockname()[1]}
                other = replace(other, settings={**other.settings, **listening})
            others.append(other)
        server = replace(server, settings={**server.settings, "host": host, "port": port})
        variables = {SERVERS: handed_on(server, others), SERVER: server.name}
        before = {name: os.environ.get(name) for name in variables}
        folder = os.getcwd()
        os.environ.update(variables)
        os.chdir(Path(spec.rpartition(":")[0]).parent)
        try:
            yield spec, models
        finally:
            os.chdir(folder)
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def address(host: str, port: int) -> str:
    """The URL of a server.

    >>> address("::1", 8000)
    'http://[::1]:8000'
    """
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _server(app: Any) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE,
        ws="none",
        http=BoundedConnection,
        h11_max_incomplete_event_size=HEAD,
    )
    return uvicorn.Server(config)


@contextmanager
def closing_socket(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that listens on an address, closed with the context; InputError if the address cannot be used."""
    host_port = address(host, port).removeprefix("http://")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        bound = socket.create_server((host, port), family=family, backlog=WAITING)
        # otherwise an answer in two writes takes 40 ms more
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except (OSError, OverflowError) as error:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise InputError.at(host_port, "the port is in use", "--port 0 picks a free port") from None
        cause = (getattr(error, "strerror", None) or str(error)).partition(" (while")[0]  # Python repeats the address
        raise InputError.at(
            host_port, f"cannot listen there ({cause})", "expected an address of this machine"
        ) from None
    with bound:
        yield bound


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Turn SIGINT and SIGTERM into KeyboardInterrupt while uvicorn does not handle them.

    This is before it starts, and at its end, when it raises the signals again.
    """

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
