"""The web application: NeMo Gym's routes for a user's server, for a verifier of Calipers, or only for aggregation.

Every request first passes the `Guard`, which checks the client, the size and the format, and answers refused requests.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import re
import socket
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fastapi import Body, FastAPI, Request
from fastapi.exceptions import RequestValidationError, ResponseValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from calipers import __version__
from calipers.clients import Completion
from calipers.errors import InputError, VerifierError
from calipers.systems.nemo_gym import FAILURE, KILLED, ROLLOUT, TASK
from calipers.systems.nemo_gym.aggregate import encoded
from calipers.systems.nemo_gym.hooks import failure
from calipers.systems.nemo_gym.lent.models import AggregateMetrics, output_text
from calipers.systems.nemo_gym.serve import (
    LIMITS,
    BodyLimits,
    ServerRefusal,
    Workers,
    decode,
    no_room,
    too_large,
)
from calipers.systems.nemo_gym.wire import target_of, verdict_keys
from calipers.tasks import Prompt, Task
from calipers.verifiers import NamedVerifier, judged
from calipers.verifiers.reasoning import keeping

# -- checks before every route

JSON: Final = "application/json"


STATUSES: Final = {
    400: "The body is not JSON, nested too deeply, or has two lengths.",
    401: "The token is missing or wrong.",
    404: "There is no such route here.",
    405: "The route does not accept this method.",
    413: "The body, or its number of rows, exceeds the limit.",
    415: "The body is not declared to be application/json.",
    421: "The Host header names another machine.",
    422: "The body is JSON, but not what the route needs.",
    500: "The code of the server that is hosted here failed.",
    503: "No worker can answer, or the server is shutting down.",
}
"""The meaning of every status of a refusal."""

_CODES: Final = {401: "unauthorized", 404: "not_found", 405: "wrong_method", 413: "too_large", 415: "wrong_type"}
"""The error codes of FastAPI's own refusals; any other status is "refused", or "failed" from 500 on."""


class Fault(BaseModel):
    """An error: a stable code, and a sentence that says where the problem is and what is expected."""

    code: str
    message: str


class FailureDocument(BaseModel):
    """The body of every refusal."""

    error: Fault
    detail: Any = None


class StatusDocument(BaseModel):
    """The status of the running server."""

    status: str = "ok"


class Health(StatusDocument):
    """The status of the running server, and the version of Calipers."""

    calipers: str


DOCUMENTED: Final[dict[int | str, dict[str, Any]]] = {
    status: {"model": FailureDocument, "description": text} for status, text in STATUSES.items()
}
"""Every refusal in the form in which FastAPI documents responses."""


class StrictJSON(JSONResponse):
    """A response in strict JSON: NaN and infinite numbers become null."""

    def render(self, content: Any) -> bytes:
        """The body of the response."""
        return encoded(content)


def respond(refusal: ServerRefusal) -> Response:
    """The HTTP response of a refusal."""
    return Response(refusal.body(), refusal.status, headers=dict(refusal.headers or {}), media_type=JSON)


@dataclass(frozen=True, slots=True)
class Door:
    """The address on which a server listens, and the token it requires."""

    host: str = "127.0.0.1"
    token: str | None = None

    def knows(self, header: str) -> bool:
        """Whether a Host header names this server. This refuses web pages whose host name was pointed at it.

        >>> Door().knows("localhost:8000"), Door().knows("[::1]:80"), Door().knows("evil.example")
        (True, True, False)
        """
        name = header.strip().lower()
        name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
        if name in {"localhost", self.host.lower()}:
            return True
        try:  # an IP address, unlike a name, cannot be pointed at another machine
            return ipaddress.ip_address(name).is_loopback or not self.local
        except ValueError:
            return not self.local and name == socket.gethostname().lower()

    @property
    def local(self) -> bool:
        """Whether only this machine can reach the server."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


LOG = logging.getLogger("calipers.systems.nemo_gym.serve")
ID: Final = "x-request-id"
QUICK: Final = 1 << 20  # bytes; a larger body is checked in a thread
_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")
_BODIES: Final = {"POST", "PUT", "PATCH"}


class _HungUp(Exception):
    """The client disconnected before its whole body was received."""


class Guard:
    """An ASGI middleware that checks every request. ``streamed`` are the paths whose route reads the body itself."""

    def __init__(
        self, app: ASGIApp, door: Door, limits: BodyLimits = LIMITS, streamed: Collection[str] = frozenset()
    ) -> None:
        self.app, self._door, self._limits, self._streamed = app, door, limits, streamed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection of the ASGI protocol."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        client_id = headers.get(ID, "")
        request_id = client_id if _NAME.fullmatch(client_id) else uuid.uuid4().hex
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message = {**message, "headers": [*message.get("headers", ()), (ID.encode(), request_id.encode())]}
            await send(message)

        refusal = None
        try:
            self._check(scope, headers)
            if scope["path"] not in self._streamed and _has_body(scope, headers):
                receive = await self._read(receive)
            await self.app(scope, receive, send_with_id)
        except ServerRefusal as error:
            refusal = error
        except SystemExit as error:  # a user's code must not end the server
            refusal = ServerRefusal(500, "server_failed", f"{scope['path']} ended itself: SystemExit: {error.code}")
        except asyncio.CancelledError:  # the server stops and its grace period is over; only uvicorn awaits this task
            refusal = ServerRefusal(
                503, "stopping", f"the server was stopped before {scope['path']} was done; send the request again"
            )
        except (ClientDisconnect, _HungUp):
            return  # there is no client to answer
        except Exception as error:
            LOG.error("%s %s failed", scope["method"], scope["path"], exc_info=error)
            refusal = ServerRefusal(500, "failed", f"this is a bug in Calipers: {type(error).__name__}: {error}")
        if refusal is not None and not started:
            await respond(refusal)(scope, receive, send_with_id)

    def _check(self, scope: Scope, headers: Mapping[str, str]) -> None:
        """Raise `ServerRefusal` if the headers are not acceptable."""
        if not self._door.knows(headers.get("host", "")):
            problem = f"Host: {headers.get('host', '')[:200]!r} is not this server"
            raise ServerRefusal(421, "wrong_host", f"{problem}; expected localhost or {self._door.host}")
        if self._door.token is not None:
            given = headers.get("authorization", "").encode("latin-1")
            if not hmac.compare_digest(given, f"Bearer {self._door.token}".encode()):
                message = "Authorization: no token, or a wrong one; expected Bearer and the server's token"
                raise ServerRefusal(401, "unauthorized", message, headers={"www-authenticate": "Bearer"})
        if "transfer-encoding" in headers and "content-length" in headers:
            message = "Transfer-Encoding: given together with Content-Length; expected one of them"
            raise ServerRefusal(400, "bad_framing", message, headers={"connection": "close"})
        if _has_body(scope, headers):
            kind = headers.get("content-type", "")
            if kind.partition(";")[0].strip().lower() != JSON:
                raise ServerRefusal(415, "wrong_type", f"Content-Type: it is {kind[:200]!r}; expected {JSON}")
            length = headers.get("content-length", "")
            if length.isdecimal() and int(length) > self._limits.body:
                raise too_large(self._limits)

    async def _read(self, receive: Receive) -> Receive:
        """Read and check the body, and return a ``receive`` that replays it; `ServerRefusal` for a bad body."""
        body = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _HungUp
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self._limits.body:
                raise too_large(self._limits)
        content = bytes(body)
        if len(content) <= QUICK:
            decode(content, self._limits)
        else:
            await asyncio.to_thread(decode, content, self._limits)
        return _replayed(content, receive)


def _has_body(scope: Scope, headers: Mapping[str, str]) -> bool:
    announced = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
    return scope["method"] in _BODIES and announced


def _replayed(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that first returns a body that was already read."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay


if TYPE_CHECKING:
    from calipers.systems.nemo_gym.hooks import Hosted

# -- the routes

PATH: Final = "/aggregate_metrics"
PIECE: Final = 256 << 10  # bytes of an answer that are read and sent at once
GONE: Final = 499  # the status of a request whose client has disconnected

_BITS = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}
_ROW = {
    "type": "object",
    "required": [TASK, ROLLOUT],
    "properties": {
        TASK: {"anyOf": [_BITS, {"type": "string"}], "description": "all numbers, or all text"},
        ROLLOUT: {**_BITS, "description": "the number of the attempt at the task; each number once"},
        "reward": {"description": "a number counts; anything else is shown unchanged"},
        "response": {
            "type": "object",
            "properties": {"usage": {"description": "the numbers of an object count too; anything else is ignored"}},
        },
    },
    "additionalProperties": True,
}
REQUEST: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            JSON: {
                "schema": {
                    "type": "object",
                    "required": ["verify_responses"],
                    "properties": {"verify_responses": {"type": "array", "items": _ROW}},
                }
            }
        },
    }
}
"""The body in the OpenAPI document. It is written here because FastAPI does not read the body."""


def aggregate_route(workers: Workers, limits: BodyLimits) -> Callable[[Request], Awaitable[Response]]:
    """The route ``/aggregate_metrics``, answered by the workers."""

    async def aggregate_metrics(request: Request) -> Response:
        """Statistics of the rows of one agent, per task and pooled, and the metrics of the server's hooks."""
        body, answer = workers.paths()
        try:
            await _spool(request, body, limits)
            refusal = await _unless_gone(request, workers, body, answer)
            return respond(refusal) if refusal else _stream(answer)
        except ServerRefusal as refusal:
            return respond(refusal)
        except OSError as error:
            return respond(no_room(error))
        finally:
            await asyncio.to_thread(_remove, body, answer)  # in a thread, because removing large files takes time

    return aggregate_metrics


def _remove(body: Path, answer: Path) -> None:
    """Remove both files. The content of an open answer remains until it is sent."""
    body.unlink(missing_ok=True)
    answer.unlink(missing_ok=True)


async def _spool(request: Request, body: Path, limits: BodyLimits) -> None:
    """Write the body to a file as it arrives, so that it never is in the server's memory."""
    size = 0
    with open(body, "wb", buffering=0) as file:
        async for piece in request.stream():
            size += len(piece)
            if size > limits.body:
                raise too_large(limits)
            file.write(piece)


async def _unless_gone(request: Request, workers: Workers, body: Path, answer: Path) -> ServerRefusal | None:
    """Aggregate, and stop if the client disconnects."""
    work = asyncio.ensure_future(workers.aggregate(body, answer))
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        return ServerRefusal(GONE, "gone", "the client disconnected")
    finally:
        for task in (work, gone):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _stream(answer: Path) -> Response:
    file = open(answer, "rb")  # noqa: SIM115  closed after it is sent
    size = answer.stat().st_size

    async def pieces() -> AsyncIterator[bytes]:
        try:
            while piece := file.read(PIECE):
                yield piece
                await asyncio.sleep(0)  # lets other requests run even if the send buffer never fills
        finally:
            await asyncio.to_thread(file.close)

    return StreamingResponse(pieces(), media_type=JSON, headers={"content-length": str(size)})


async def root() -> StatusDocument:
    """Return the status, as NeMo Gym's servers do."""
    return StatusDocument()


async def health() -> Health:
    """Return the status and the version of Calipers."""
    return Health(calipers=__version__)


async def seed_session(body: dict[str, Any] = Body()) -> dict[str, Any]:  # noqa: B008
    """Begin a session. The answer is empty."""
    return {}


REASON: Final = "failure_reason"
MARKS: Final = frozenset({FAILURE, "_ng_failure_terminal", KILLED, REASON})
"""The marks of failure that an earlier verdict may have left in a row. With them, the new verdict would not count."""


class ModelOutput(BaseModel):
    """The answer of a model, as a response of OpenAI's Responses API."""

    model_config = ConfigDict(extra="allow")

    output: list[dict[str, Any]]


class VerifyRequest(BaseModel):
    """A row of a dataset with a model's answer. Every other key is returned unchanged, except marks of failure."""

    model_config = ConfigDict(extra="allow")

    responses_create_params: dict[str, Any]
    response: ModelOutput
    params: dict[str, Any] | None = None  # parameters of the verifier


class VerifyResponse(VerifyRequest):
    """The row of the request with its reward."""

    reward: float


def verify_route(verifier: NamedVerifier) -> Callable[[VerifyRequest], Awaitable[Response]]:
    """The route ``/verify``, answered by a verifier."""

    async def verify(body: VerifyRequest) -> Response:
        """Judge an answer. If the verifier fails, the row is marked as failed, and does not count as a rollout."""
        row = {key: value for key, value in body.model_dump(exclude_unset=True).items() if key not in MARKS}
        try:
            task = task_of(verifier.name, row)
            verifier.check(task)
        except InputError as error:
            return respond(ServerRefusal(422, "bad_task", str(error)))
        text = output_text(row["response"]["output"])
        try:
            return StrictJSON({**row, **verdict_keys(await judged(verifier, keeping(task), Completion(text)))})
        except VerifierError as error:
            return StrictJSON({**row, "reward": 0.0, FAILURE: error.outcome, REASON: str(error)})

    return verify


def task_of(verifier: str, row: Mapping[str, Any]) -> Task:
    """The task of a dataset's row. InputError if the row has no prompt.

    >>> task_of("exact_match", {"responses_create_params": {"input": "1 + 1?"}, "expected_answer": "2"}).target
    '2'
    """
    prompt = row["responses_create_params"].get("input")
    if not isinstance(prompt, str) and not (
        isinstance(prompt, list) and all(isinstance(message, dict) for message in prompt)
    ):
        raise InputError.at(
            "responses_create_params.input", "it is not a prompt", "expected text or a list of messages"
        )
    given: Prompt = prompt
    return Task(str(row.get(TASK, "")), given, verifier, target_of(row), row.get("params") or {})


NO_VERIFIER: Final = "this server has no verifier: start it with FILE.py:CLASS or --verifier NAME"


@dataclass(frozen=True, slots=True)
class Offer:
    """What a server offers besides aggregation: a user's server, a verifier, or neither."""

    hosted: Hosted | None = None
    verifier: NamedVerifier | None = None


def make_app(workers: Workers, offer: Offer, door: Door, limits: BodyLimits = LIMITS) -> Guard:
    """The application, wrapped in its guard."""
    app = _plain(offer.verifier) if offer.hosted is None else offer.hosted.web()
    streamed: set[str] = set()
    if offer.hosted is None or not offer.hosted.aggregates_itself:
        _add_aggregation(app, workers, limits)
        streamed.add(PATH)
    _add_status(app)
    _add_error_handlers(app, offer.hosted.path if offer.hosted else None)
    return Guard(app, door, limits, streamed)


def new_app(title: str) -> FastAPI:
    """An application without routes, and without FastAPI's documentation pages, which load scripts from elsewhere."""
    return FastAPI(
        title=title,
        version=__version__,
        docs_url=None,
        redoc_url=None,
        default_response_class=StrictJSON,
        responses=DOCUMENTED,
    )


def _plain(verifier: NamedVerifier | None) -> FastAPI:
    app = new_app("Calipers")
    app.post("/seed_session")(seed_session)
    if verifier is not None:
        app.post("/verify", response_model=VerifyResponse)(verify_route(verifier))
    return app


def _add_aggregation(app: FastAPI, workers: Workers, limits: BodyLimits) -> None:
    """Add the aggregation route in place of the application's own, before its other routes: one may be a catch-all."""
    others = [route for route in app.router.routes if getattr(route, "path", "") != PATH]
    app.router.routes.clear()
    answer: dict[int | str, dict[str, Any]] = {200: {"model": AggregateMetrics}, **DOCUMENTED}
    post = app.post(PATH, response_model=None, responses=answer, openapi_extra=REQUEST)
    post(aggregate_route(workers, limits))
    app.router.routes.extend(others)


def _add_status(app: FastAPI) -> None:
    taken = {getattr(route, "path", "") for route in app.router.routes}
    if "/" not in taken:
        app.get("/", response_model=StatusDocument)(root)
    if "/health" not in taken:
        app.get("/health", response_model=Health)(health)


def _add_error_handlers(app: FastAPI, path: str | None) -> None:
    """Answer every error with a JSON body of one sentence, unless the user's file (``path``) has its own handler."""

    async def of_http(request: Request, error: Exception) -> Response:
        status, detail = getattr(error, "status_code", 500), getattr(error, "detail", "")
        message = str(detail)
        if status == 404 and detail == "Not Found":
            known = sorted({route.path for route in app.router.routes if hasattr(route, "path")})
            expected = NO_VERIFIER if request.url.path == "/verify" else f"expected one of {', '.join(known)}"
            message = f"no route {request.url.path}; {expected}"
        elif status == 405:
            message = f"{request.url.path} does not accept {request.method}; see the Allow header"
        code = _CODES.get(status, "failed" if status >= 500 else "refused")
        return respond(ServerRefusal(status, code, message, detail, getattr(error, "headers", None)))

    async def of_request(request: Request, error: Exception) -> Response:
        faults = _faults(error)
        return respond(ServerRefusal(422, "bad_input", _sentence(faults), faults))

    async def of_answer(request: Request, error: Exception) -> Response:
        problem = f"{path or 'calipers'}: the answer of {request.url.path} does not match its annotation"
        return respond(ServerRefusal(500, "bad_answer", f"{problem}: {_sentence(_faults(error))}"))

    async def of_code(request: Request, error: Exception) -> Response:
        if path is None:
            return respond(ServerRefusal(500, "failed", f"this is a bug in Calipers: {type(error).__name__}: {error}"))
        return respond(ServerRefusal(500, "server_failed", str(failure(path, f"{request.url.path} failed", error))))

    handlers = {
        HTTPException: of_http,
        RequestValidationError: of_request,
        ResponseValidationError: of_answer,
        Exception: of_code,
    }
    for kind, handler in handlers.items():
        existing = app.exception_handlers.get(kind)
        if existing is None or existing.__module__.startswith("fastapi."):  # any other handler is the user's
            app.add_exception_handler(kind, handler)


def _faults(error: Any) -> list[dict[str, Any]]:
    """FastAPI's list of errors without the input itself, which may be of any size."""
    return [{key: fault[key] for key in ("type", "loc", "msg") if key in fault} for fault in error.errors()]


def _sentence(faults: list[dict[str, Any]]) -> str:
    """The first fault in one line, and the number of others.

    >>> _sentence([{"loc": ("body", "response"), "msg": "Field required"}])
    'body.response: Field required'
    """
    first, *further = faults or [{"loc": (), "msg": "it cannot be read"}]
    more = f" (and {len(further)} more)" if further else ""
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}{more}"
