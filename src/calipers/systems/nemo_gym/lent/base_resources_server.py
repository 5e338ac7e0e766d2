"""The base class of a resources server, its sessions, and its calls of judges.

The stand-in for ``nemo_gym.base_resources_server``, ``nemo_gym.judge`` and ``nemo_gym.rollout_correlation``.
"""

from __future__ import annotations

import functools
import re
import uuid
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict

from calipers.systems.nemo_gym import FAILURE
from calipers.systems.nemo_gym.lent.models import (
    AggregateMetrics,
    AggregateMetricsRequest,
    BaseMultiRewardVerifyResponse,
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
)
from calipers.systems.nemo_gym.lent.reward_profile import AggregateMetricsMixin

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


__all__ = [  # the names of ``nemo_gym.base_resources_server``
    "AggregateMetrics",
    "AggregateMetricsRequest",
    "BaseMultiRewardVerifyResponse",
    "BaseResourcesServerConfig",
    "BaseRunRequest",
    "BaseSeedSessionRequest",
    "BaseSeedSessionResponse",
    "BaseVerifyRequest",
    "BaseVerifyResponse",
    "ReverifyMode",
    "SimpleResourcesServer",
    "normalize_tool_name",
]

Reply = TypeVar("Reply", bound=BaseModel)
PREFIX = "/ng-rollout/"
SESSION_ID_KEY: Final = "session_id"
_ID = re.compile("[0-9a-f]{32}")
_rollout: ContextVar[str | None] = ContextVar("rollout", default=None)


def normalize_tool_name(name: str, server_name: str | None = None) -> str:
    """The name of a tool without MCP's prefix ``mcp__SERVER__``. With ``server_name``, only its prefix is removed.

    >>> normalize_tool_name("mcp__mail__send"), normalize_tool_name("send"), normalize_tool_name("mcp__a__send", "mail")
    ('send', 'send', 'mcp__a__send')
    """
    if server_name is not None:
        return name.removeprefix(f"mcp__{server_name}__")
    parts = name.split("__", 2)
    return parts[2] if parts[0] == "mcp" and len(parts) == 3 else name


class SimpleResourcesServer(AggregateMetricsMixin, BaseModel):
    """A server of tools and a verifier. It is a pydantic model, and its hooks add metrics."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    config: BaseResourcesServerConfig
    server_client: Any

    def setup_webserver(self) -> FastAPI:
        """The web application of this server. A subclass overrides this method to add routes."""
        from calipers.systems.nemo_gym.serve.app import new_app

        app = new_app(self.config.name or type(self).__name__)
        self.setup_session_middleware(app)
        app.post("/seed_session")(self.seed_session)
        app.post("/verify")(judge_failsafe(self.verify))
        app.post("/aggregate_metrics")(self.aggregate_metrics)
        app.get("/reverify_mode")(self.get_reverify_mode)
        return app

    def setup_session_middleware(self, app: FastAPI) -> None:
        """Give every request a session."""
        app.add_middleware(Sessions, cookie=f"{type(self).__name__}___{self.config.name}")

    def normalize_tool_name(self, name: str) -> str:
        """The name of a tool of this server without MCP's prefix."""
        return normalize_tool_name(name, self.config.name or type(self).__name__)

    def mcp_tools(self, harvested: list[Any], catchall: Any) -> list[Any] | None:
        """The tools to offer over MCP; `calipers serve` offers none."""
        return harvested

    def mcp_allowed_tools_for_session(self, seed_body: dict[str, Any]) -> list[str] | None:
        """The tools that a session may use over MCP; None means all."""
        return None

    async def get_reverify_mode(self) -> ReverifyMode:
        """Return whether a finished rollout can be judged again."""
        return self.config.REVERIFY_MODE

    async def seed_session(self, body: BaseSeedSessionRequest) -> BaseSeedSessionResponse:
        """Begin a session. This does nothing by default."""
        return BaseSeedSessionResponse()

    @abstractmethod
    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        """Return the verdict on one response."""


class Sessions:
    """An ASGI middleware that gives every request a ``session``, whose id is in a cookie.

    A client that sends its cookies stays in its session, which ``request.session[SESSION_ID_KEY]`` identifies.
    """

    def __init__(self, app: ASGIApp, cookie: str) -> None:
        self._app, self._cookie = app, cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request within its session."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        session = self._existing(scope) or uuid.uuid4().hex
        scope["session"] = {SESSION_ID_KEY: session}

        async def send_with_cookie(message: Message) -> None:
            if message["type"] == "http.response.start":
                cookie = f"{self._cookie}={session}; path=/; httponly; samesite=lax"
                message = {**message, "headers": [*message.get("headers", ()), (b"set-cookie", cookie.encode())]}
            await send(message)

        await self._app(scope, receive, send_with_cookie)

    def _existing(self, scope: Scope) -> str | None:
        """The id of a request's session, from its cookie; None without a valid one."""
        for name, value in scope["headers"]:
            if name == b"cookie":
                try:
                    cookie = SimpleCookie(value.decode("latin-1")).get(self._cookie)
                except CookieError:
                    continue
                if cookie is not None and _ID.fullmatch(cookie.value):
                    return cookie.value
        return None


class JudgeError(Exception):
    """The call of a judge, a model that gives a verdict, failed.

    This is not a wrong answer of the judged model. The row is returned with a mark of failure, and NeMo Gym's collector
    writes it to the file of failures.
    """


async def reraise_judge_errors(coro: Awaitable[Any]) -> Any:
    """The result of a call; any exception becomes a `JudgeError`."""
    try:
        return await coro
    except JudgeError:
        raise
    except Exception as error:
        raise JudgeError(f"{type(error).__name__}: {error}") from error


async def call_judge(
    server_client: Any, *, server_name: str, url_path: str, json: Any, response_model: type[Reply]
) -> Reply:
    """Call a model server, and parse its reply as ``response_model``. JudgeError if either fails."""
    # imported here, because it loads a web client, which a server without a judge does not need
    from calipers.systems.nemo_gym.lent.server_utils import get_response_json, raise_for_status

    async def call() -> Reply:
        response = await server_client.post(server_name=server_name, url_path=url_path, json=json)
        await raise_for_status(response)
        return response_model.model_validate(await get_response_json(response))

    reply: Reply = await reraise_judge_errors(call())
    return reply


def judge_failsafe(verify_fn: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """A ``verify`` that answers a `JudgeError` with the request's row, a reward of 0, and a mark of failure."""

    @functools.wraps(verify_fn)
    async def verify(*args: Any, **kwargs: Any) -> Any:
        try:
            return await verify_fn(*args, **kwargs)
        except JudgeError as error:
            bodies = [value for value in (*kwargs.values(), *args) if hasattr(value, "response")]
            body = kwargs.get("body", bodies[0] if bodies else None)
            if not isinstance(body, BaseModel):
                raise
            from calipers.systems.nemo_gym.serve.app import StrictJSON

            marks = {"reward": 0.0, FAILURE: "judge_failed", "_ng_failure_judge_error": str(error)}
            return StrictJSON({**body.model_dump(mode="json"), **marks})

    return verify


def current_rollout_id() -> str | None:
    """The id of the current request's rollout, if its path names one."""
    return _rollout.get()


@contextmanager
def rollout_context(rollout_id: str | None) -> Iterator[None]:
    """Set the current rollout while the context is open."""
    token = _rollout.set(rollout_id)
    try:
        yield
    finally:
        _rollout.reset(token)


class RolloutContextMiddleware:
    """An ASGI middleware: a request to ``/ng-rollout/ID/path`` is one to ``/path`` for the rollout ID."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request within its rollout."""
        path = scope.get("path", "")
        if scope["type"] != "http" or not path.startswith(PREFIX):
            await self._app(scope, receive, send)
            return
        rollout, _, rest = path.removeprefix(PREFIX).partition("/")
        with rollout_context(rollout):
            await self._app({**scope, "path": f"/{rest}", "raw_path": f"/{rest}".encode()}, receive, send)
