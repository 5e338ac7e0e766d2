"""The application: NeMo Gym's routes, over a user's server, a verifier of ours, or nothing but aggregation.

Before every route stand the checks of the guard: who may send requests, their size and format, and the error for a
rejected one.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import math
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
from calipers.systems.nemo_gym.serve.workers import (
    LIMITS,
    BodyLimits,
    ServerRefusal,
    Workers,
    decode,
    no_room,
    too_large,
)
from calipers.systems.nemo_gym.wire import target_of
from calipers.tasks import Prompt, Task
from calipers.verifiers import NamedVerifier, judged

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
"""Every status of a refusal, and what it means."""

_WORDS: Final = {401: "unauthorized", 404: "not_found", 405: "wrong_method", 413: "too_large", 415: "wrong_type"}


def word(status: int) -> str:
    """The code of a status that has no better one."""
    return _WORDS.get(status, "failed" if status >= 500 else "refused")


class Fault(BaseModel):
    """What went wrong: a word that stays the same, and a sentence that says where and what would be right."""

    code: str
    message: str


class FailureDocument(BaseModel):
    """The body of every answer that is none."""

    error: Fault
    detail: Any = None


class StatusDocument(BaseModel):
    """The server is there."""

    status: str = "ok"


class Health(StatusDocument):
    """The server is there, and whose it is."""

    calipers: str


DOCUMENTED: Final[dict[int | str, dict[str, Any]]] = {
    status: {"model": FailureDocument, "description": text} for status, text in STATUSES.items()
}
"""Every refusal, as FastAPI documents it."""


class StrictJSON(JSONResponse):
    """An answer in strict JSON: what is no finite number is null."""

    def render(self, content: Any) -> bytes:
        """The bytes of the answer."""
        return encoded(content)


def respond(refusal: ServerRefusal) -> Response:
    """A refusal as the answer it is."""
    return Response(refusal.body(), refusal.status, headers=dict(refusal.headers or {}), media_type=JSON)


@dataclass(frozen=True, slots=True)
class Door:
    """Where a server listens, and the token it demands."""

    host: str = "127.0.0.1"
    token: str | None = None

    def knows(self, header: str) -> bool:
        """Whether a Host header means this server; that of a web page which had its name point here does not.

        >>> Door().knows("localhost:8000"), Door().knows("[::1]:80"), Door().knows("evil.example")
        (True, True, False)
        """
        name = header.strip().lower()
        name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
        if name in {"localhost", self.host.lower()}:
            return True
        try:  # a number cannot be made to point elsewhere, as a name can
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
QUICK: Final = 1 << 20  # bytes; a larger body is looked at on a thread
_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")
_BODIES: Final = {"POST", "PUT", "PATCH"}


class _HungUp(Exception):
    """The client has gone before its body was whole."""


class Guard:
    """An ASGI application around another. ``streamed`` are the paths whose body is left to the route."""

    def __init__(
        self, app: ASGIApp, door: Door, limits: BodyLimits = LIMITS, streamed: Collection[str] = frozenset()
    ) -> None:
        self.app, self._door, self._limits, self._streamed = app, door, limits, streamed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        client_id = headers.get(ID, "")
        mark = client_id if _NAME.fullmatch(client_id) else uuid.uuid4().hex
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message = {**message, "headers": [*message.get("headers", ()), (ID.encode(), mark.encode())]}
            await send(message)

        refusal = None
        try:
            self._check(scope, headers)
            if scope["path"] not in self._streamed and _has_body(scope, headers):
                receive = await self._read(receive)
            await self.app(scope, receive, sending)
        except ServerRefusal as error:
            refusal = error
        except SystemExit as error:  # of somebody's code; the server is not theirs to end
            refusal = ServerRefusal(500, "server_failed", f"{scope['path']} ended itself: SystemExit: {error.code}")
        except asyncio.CancelledError:  # the server ends, and its grace is over; nobody waits for this task but uvicorn
            refusal = ServerRefusal(
                503, "stopping", f"the server was stopped before {scope['path']} was done; send the request again"
            )
        except (ClientDisconnect, _HungUp):
            return  # nobody is left to answer, and nothing is wrong here
        except Exception as error:
            LOG.error("%s %s failed", scope["method"], scope["path"], exc_info=error)
            refusal = ServerRefusal(500, "failed", f"this is a bug in Calipers: {type(error).__name__}: {error}")
        if refusal is not None and not started:
            await respond(refusal)(scope, receive, sending)

    def _check(self, scope: Scope, headers: Mapping[str, str]) -> None:
        """`ServerRefusal` for what the headers alone forbid."""
        if not self._door.knows(headers.get("host", "")):
            wrong = f"Host: {headers.get('host', '')[:200]!r} is not this server"
            raise ServerRefusal(421, "wrong_host", f"{wrong}; expected localhost or {self._door.host}")
        if self._door.token is not None:
            given = headers.get("authorization", "").encode("latin-1")
            if not hmac.compare_digest(given, f"Bearer {self._door.token}".encode()):
                wrong = "Authorization: no token, or a wrong one; expected Bearer and the server's token"
                raise ServerRefusal(401, "unauthorized", wrong, headers={"www-authenticate": "Bearer"})
        if "transfer-encoding" in headers and "content-length" in headers:
            wrong = "Transfer-Encoding: given together with Content-Length; expected one of them"
            raise ServerRefusal(400, "bad_framing", wrong, headers={"connection": "close"})
        if _has_body(scope, headers):
            kind = headers.get("content-type", "")
            if kind.partition(";")[0].strip().lower() != JSON:
                raise ServerRefusal(415, "wrong_type", f"Content-Type: it is {kind[:200]!r}; expected {JSON}")
            length = headers.get("content-length", "")
            if length.isdecimal() and int(length) > self._limits.body:
                raise too_large(self._limits)

    async def _read(self, receive: Receive) -> Receive:
        """Where the route gets a body from that was read here; `ServerRefusal` for a bad one."""
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
        whole = bytes(body)
        if len(whole) <= QUICK:
            decode(whole, self._limits)
        else:
            await asyncio.to_thread(decode, whole, self._limits)
        return _again(whole, receive)


def _has_body(scope: Scope, headers: Mapping[str, str]) -> bool:
    announced = "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
    return scope["method"] in _BODIES and announced


def _again(body: bytes, receive: Receive) -> Receive:
    """A body that was read already, and after it whatever comes."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again


if TYPE_CHECKING:
    from calipers.systems.nemo_gym.hooks import Hosted

# -- the routes

PATH: Final = "/aggregate_metrics"
PIECE: Final = 256 << 10  # bytes of an answer that are read and sent at a time
GONE: Final = 499  # nobody is there to read it

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
"""What the OpenAPI document says of the body: it is not read by FastAPI."""


def aggregate_route(workers: Workers, limits: BodyLimits) -> Callable[[Request], Awaitable[Response]]:
    """The route, over these workers."""

    async def aggregate_metrics(request: Request) -> Response:
        """Statistics of the rows of one agent, per task and pooled, and what the server's hooks add."""
        body, answer = workers.paths()
        try:
            await _spool(request, body, limits)
            refusal = await _unless_gone(request, workers, body, answer)
            return respond(refusal) if refusal else _sent(answer)
        except ServerRefusal as refusal:
            return respond(refusal)
        except OSError as error:
            return respond(no_room(error))
        finally:
            await asyncio.to_thread(_removed, body, answer)  # on a thread: hundreds of megabytes take their time

    return aggregate_metrics


def _removed(body: Path, answer: Path) -> None:
    """Remove both; an answer that is open by now stays until it is sent."""
    body.unlink(missing_ok=True)
    answer.unlink(missing_ok=True)


async def _spool(request: Request, body: Path, limits: BodyLimits) -> None:
    """Put the body into a file as it comes: hundreds of megabytes are not held here."""
    size = 0
    with open(body, "wb", buffering=0) as file:
        async for piece in request.stream():
            size += len(piece)
            if size > limits.body:
                raise too_large(limits)
            file.write(piece)


async def _unless_gone(request: Request, workers: Workers, body: Path, answer: Path) -> ServerRefusal | None:
    """Aggregate, but not for somebody who has hung up."""
    work = asyncio.ensure_future(workers.aggregate(body, answer))
    gone = asyncio.ensure_future(_hung_up(request))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        return ServerRefusal(GONE, "gone", "the client disconnected")
    finally:
        for waiting in (work, gone):
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                await waiting


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _sent(answer: Path) -> Response:
    file = open(answer, "rb")  # noqa: SIM115  closed when all of it is sent
    size = answer.stat().st_size

    async def pieces() -> AsyncIterator[bytes]:
        try:
            while piece := file.read(PIECE):
                yield piece
                await asyncio.sleep(0)  # a buffer that takes all it is given would keep everybody else waiting
        finally:
            await asyncio.to_thread(file.close)

    return StreamingResponse(pieces(), media_type=JSON, headers={"content-length": str(size)})


async def root() -> StatusDocument:
    """Say that the server is there, as NeMo Gym's servers do."""
    return StatusDocument()


async def health() -> Health:
    """Say that the server is there, and whose it is."""
    return Health(calipers=__version__)


async def seed_session(body: dict[str, Any] = Body()) -> dict[str, Any]:  # noqa: B008
    """Begin a session; the answer is empty."""
    return {}


REASON: Final = "failure_reason"
MARKS: Final = frozenset({FAILURE, "_ng_failure_terminal", KILLED, REASON})
"""What an earlier verdict may have left in a row; with a mark in it the new verdict would not count."""


class ModelOutput(BaseModel):
    """What a model answered, in the shape of OpenAI's Responses API."""

    model_config = ConfigDict(extra="allow")

    output: list[dict[str, Any]]


class VerifyRequest(BaseModel):
    """One row of a dataset with what a model answered. Every other key comes back as it is, but marks of failure."""

    model_config = ConfigDict(extra="allow")

    responses_create_params: dict[str, Any]
    response: ModelOutput
    params: dict[str, Any] | None = None  # of the verifier


class VerifyResponse(VerifyRequest):
    """The same row with its reward."""

    reward: float


def verify_route(verifier: NamedVerifier) -> Callable[[VerifyRequest], Awaitable[Response]]:
    """The route, over this verifier."""

    async def verify(body: VerifyRequest) -> Response:
        """Judge an answer. Where no verdict can be reached the row says so, and is no rollout that counts."""
        row = {key: value for key, value in body.model_dump(exclude_unset=True).items() if key not in MARKS}
        try:
            task = task_of(verifier.name, row)
            verifier.check(task)
        except InputError as error:
            return respond(ServerRefusal(422, "bad_task", str(error)))
        text = output_text(row["response"]["output"])
        try:
            return StrictJSON({**row, **await _judged(verifier, task, Completion(text))})
        except VerifierError as error:
            return StrictJSON({**row, "reward": 0.0, FAILURE: error.outcome, REASON: str(error)})

    return verify


async def _judged(verifier: NamedVerifier, task: Task, completion: Completion) -> dict[str, Any]:
    verdict = await judged(verifier, task, completion, check=False)
    if verdict.reward is None or not math.isfinite(verdict.reward):
        raise VerifierError(
            f"verifier {verifier.name!r} returned the reward {verdict.reward}; expected a finite number"
        )
    fields: dict[str, Any] = {**verdict.fields, "reward": verdict.reward}
    if verdict.rewards:
        fields["reward_components"] = dict(verdict.rewards)
    if verdict.answer is not None:
        fields["extracted_answer"] = verdict.answer
    return fields


def task_of(verifier: str, row: Mapping[str, Any]) -> Task:
    """The task that a row of a dataset states. InputError for one that holds no prompt.

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
    """What a server has beside aggregation: a user's server, or a verifier, or neither."""

    hosted: Hosted | None = None
    verifier: NamedVerifier | None = None


def make_app(workers: Workers, offer: Offer, door: Door, limits: BodyLimits = LIMITS) -> Guard:
    """The application with everything that stands before it."""
    app = _plain(offer.verifier) if offer.hosted is None else offer.hosted.web()
    streamed: set[str] = set()
    if offer.hosted is None or not offer.hosted.aggregates_itself:
        _aggregate(app, workers, limits)
        streamed.add(PATH)
    _greet(app)
    _explain(app, offer.hosted.path if offer.hosted else None)
    return Guard(app, door, limits, streamed)


def new_app(title: str) -> FastAPI:
    """An application without routes. It has no page of its own: that would load scripts from elsewhere."""
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


def _aggregate(app: FastAPI, workers: Workers, limits: BodyLimits) -> None:
    """Our own route in place of any other: before what else the application has, which may be a catch-all."""
    others = [route for route in app.router.routes if getattr(route, "path", "") != PATH]
    app.router.routes.clear()
    answer: dict[int | str, dict[str, Any]] = {200: {"model": AggregateMetrics}, **DOCUMENTED}
    post = app.post(PATH, response_model=None, responses=answer, openapi_extra=REQUEST)
    post(aggregate_route(workers, limits))
    app.router.routes.extend(others)


def _greet(app: FastAPI) -> None:
    taken = {getattr(route, "path", "") for route in app.router.routes}
    if "/" not in taken:
        app.get("/", response_model=StatusDocument)(root)
    if "/health" not in taken:
        app.get("/health", response_model=Health)(health)


def _explain(app: FastAPI, path: str | None) -> None:
    """Every failure as a JSON body with one sentence, unless the user's file (``path``) sees to it itself."""

    async def of_http(request: Request, error: Exception) -> Response:
        status, detail = getattr(error, "status_code", 500), getattr(error, "detail", "")
        message = str(detail)
        if status == 404 and detail == "Not Found":
            known = sorted({route.path for route in app.router.routes if hasattr(route, "path")})
            there = NO_VERIFIER if request.url.path == "/verify" else f"expected one of {', '.join(known)}"
            message = f"no route {request.url.path}; {there}"
        elif status == 405:
            message = f"{request.url.path} does not accept {request.method}; see the Allow header"
        return respond(ServerRefusal(status, word(status), message, detail, getattr(error, "headers", None)))

    async def of_request(request: Request, error: Exception) -> Response:
        faults = _faults(error)
        return respond(ServerRefusal(422, "bad_input", _sentence(faults), faults))

    async def of_answer(request: Request, error: Exception) -> Response:
        wrong = f"{path or 'calipers'}: the answer of {request.url.path} does not match its annotation"
        return respond(ServerRefusal(500, "bad_answer", f"{wrong}: {_sentence(_faults(error))}"))

    async def of_code(request: Request, error: Exception) -> Response:
        if path is None:
            return respond(ServerRefusal(500, "failed", f"this is a bug in Calipers: {type(error).__name__}: {error}"))
        return respond(ServerRefusal(500, "server_failed", str(failure(path, f"{request.url.path} failed", error))))

    ours = {
        HTTPException: of_http,
        RequestValidationError: of_request,
        ResponseValidationError: of_answer,
        Exception: of_code,
    }
    for kind, handler in ours.items():
        existing = app.exception_handlers.get(kind)
        if existing is None or existing.__module__.startswith("fastapi."):  # else it is the user's own
            app.add_exception_handler(kind, handler)


def _faults(error: Any) -> list[dict[str, Any]]:
    """FastAPI's list without the input itself, which may be of any size."""
    return [{key: fault[key] for key in ("type", "loc", "msg") if key in fault} for fault in error.errors()]


def _sentence(faults: list[dict[str, Any]]) -> str:
    """The first fault in one line, and how many others there are.

    >>> _sentence([{"loc": ("body", "response"), "msg": "Field required"}])
    'body.response: Field required'
    """
    first, *others = faults or [{"loc": (), "msg": "it cannot be read"}]
    more = f" (and {len(others)} more)" if others else ""
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}{more}"
