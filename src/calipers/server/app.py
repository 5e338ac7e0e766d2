"""The application: NeMo Gym's routes, over a user's server, a verifier of ours, or nothing but aggregation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError, ResponseValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from calipers import __version__
from calipers.compat.nemo_gym.hooks import failure
from calipers.compat.nemo_gym.models import AggregateMetrics
from calipers.run.verifiers.find import NamedVerifier
from calipers.server.documents import DOCUMENTED, Health, Status, StrictJSON, respond
from calipers.server.door import Door
from calipers.server.guard import Guard
from calipers.server.limits import LIMITS, Limits
from calipers.server.refusal import Refusal, word
from calipers.server.routes import aggregate_metrics, health, seed_session, verify
from calipers.server.workers import Workers

if TYPE_CHECKING:
    from calipers.compat.nemo_gym.hosting import Hosted

NO_VERIFIER: Final = "this server judges nothing: start it with FILE.py:CLASS or --verifier NAME"


@dataclass(frozen=True, slots=True)
class Offer:
    """What a server has beside aggregation: a user's server, or a verifier, or neither."""

    hosted: Hosted | None = None
    verifier: NamedVerifier | None = None


def make_app(workers: Workers, offer: Offer, door: Door, limits: Limits = LIMITS) -> Guard:
    """The application with everything that stands before it."""
    app = _plain(offer.verifier) if offer.hosted is None else offer.hosted.web()
    streamed: set[str] = set()
    if offer.hosted is None or not offer.hosted.aggregates_itself:
        _aggregate(app, workers, limits)
        streamed.add(aggregate_metrics.PATH)
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
    app.post("/seed_session")(seed_session.seed_session)
    if verifier is not None:
        app.post("/verify", response_model=verify.VerifyResponse)(verify.route(verifier))
    return app


def _aggregate(app: FastAPI, workers: Workers, limits: Limits) -> None:
    """Our own route in place of any other: before what else the application has, which may be a catch-all."""
    path = aggregate_metrics.PATH
    others = [route for route in app.router.routes if getattr(route, "path", "") != path]
    app.router.routes.clear()
    answer: dict[int | str, dict[str, Any]] = {200: {"model": AggregateMetrics}, **DOCUMENTED}
    made = aggregate_metrics.route(workers, limits)
    app.post(path, response_model=None, responses=answer, openapi_extra=aggregate_metrics.REQUEST)(made)
    app.router.routes.extend(others)


def _greet(app: FastAPI) -> None:
    taken = {getattr(route, "path", "") for route in app.router.routes}
    if "/" not in taken:
        app.get("/", response_model=Status)(health.root)
    if "/health" not in taken:
        app.get("/health", response_model=Health)(health.health)


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
            message = f"{request.url.path} does not know {request.method}; see the header Allow"
        return respond(Refusal(status, word(status), message, detail, getattr(error, "headers", None)))

    async def of_request(request: Request, error: Exception) -> Response:
        faults = _faults(error)
        return respond(Refusal(422, "bad_input", _sentence(faults), faults))

    async def of_answer(request: Request, error: Exception) -> Response:
        wrong = f"{path or 'calipers'}: the answer of {request.url.path} is not what its annotation says"
        return respond(Refusal(500, "bad_answer", f"{wrong}: {_sentence(_faults(error))}"))

    async def of_code(request: Request, error: Exception) -> Response:
        if path is None:
            return respond(Refusal(500, "failed", f"this is a bug in Calipers: {type(error).__name__}: {error}"))
        return respond(Refusal(500, "server_failed", str(failure(path, f"{request.url.path} failed", error))))

    ours = {
        HTTPException: of_http,
        RequestValidationError: of_request,
        ResponseValidationError: of_answer,
        Exception: of_code,
    }
    for kind, handler in ours.items():
        held = app.exception_handlers.get(kind)
        if held is None or held.__module__.startswith("fastapi."):  # else it is the user's own
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
