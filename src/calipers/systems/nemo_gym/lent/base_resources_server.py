"""What a resources server is made of: its class, the sessions of its clients, the judges that it asks.

Lent as ``nemo_gym.base_resources_server``, ``nemo_gym.judge`` and ``nemo_gym.rollout_correlation``.
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


__all__ = [  # what is lent as ``nemo_gym.base_resources_server``
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
    """The name of a tool without what MCP puts before it, ``mcp__SERVER__``; of one server alone, where it is named.

    >>> normalize_tool_name("mcp__mail__send"), normalize_tool_name("send"), normalize_tool_name("mcp__a__send", "mail")
    ('send', 'send', 'mcp__a__send')
    """
    if server_name is not None:
        return name.removeprefix(f"mcp__{server_name}__")
    parts = name.split("__", 2)
    return parts[2] if parts[0] == "mcp" and len(parts) == 3 else name


class SimpleResourcesServer(AggregateMetricsMixin, BaseModel):
    """A server of tools and a verifier, itself a pydantic model; its hooks add to the metrics."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    config: BaseResourcesServerConfig
    server_client: Any

    def setup_webserver(self) -> FastAPI:
        """The web application of this server: where a subclass adds routes of its own."""
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
        """The name of a tool of this server, without what MCP puts before it."""
        return normalize_tool_name(name, self.config.name or type(self).__name__)

    def mcp_tools(self, harvested: list[Any], catchall: Any) -> list[Any] | None:
        """Which tools are offered over MCP; `calipers serve` offers none."""
        return harvested

    def mcp_allowed_tools_for_session(self, seed_body: dict[str, Any]) -> list[str] | None:
        """Which tools a session may use over MCP: all."""
        return None

    async def get_reverify_mode(self) -> ReverifyMode:
        """Whether a finished rollout can be judged again."""
        return self.config.REVERIFY_MODE

    async def seed_session(self, body: BaseSeedSessionRequest) -> BaseSeedSessionResponse:
        """Begin a session: nothing to do."""
        return BaseSeedSessionResponse()

    @abstractmethod
    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        """The verdict on one response."""


class Sessions:
    """An ASGI application around another, whose requests have a ``session``; its id is kept in a cookie.

    A client that sends its cookies along stays in its session; ``request.session[SESSION_ID_KEY]`` tells it from
    others.
    """

    def __init__(self, app: ASGIApp, cookie: str) -> None:
        self._app, self._cookie = app, cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request within its session."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        session = self._known(scope) or uuid.uuid4().hex
        scope["session"] = {SESSION_ID_KEY: session}

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                cookie = f"{self._cookie}={session}; path=/; httponly; samesite=lax"
                message = {**message, "headers": [*message.get("headers", ()), (b"set-cookie", cookie.encode())]}
            await send(message)

        await self._app(scope, receive, sending)

    def _known(self, scope: Scope) -> str | None:
        """The session that a request belongs to; a cookie that is none of ours is passed over."""
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
    """A judge could not be asked: a model that another server asks for a verdict.

    A call that fails is no wrong answer: the row comes back marked, and NeMo Gym's collector keeps it apart.
    """


async def reraise_judge_errors(coro: Awaitable[Any]) -> Any:
    """What a call gives; any failure of it is a `JudgeError`."""
    try:
        return await coro
    except JudgeError:
        raise
    except Exception as error:
        raise JudgeError(f"{type(error).__name__}: {error}") from error


async def call_judge(
    server_client: Any, *, server_name: str, url_path: str, json: Any, response_model: type[Reply]
) -> Reply:
    """Ask a model server, and read its reply in the class of the route. JudgeError when that fails."""
    # Loads a web client, which a server without a judge does not need.
    from calipers.systems.nemo_gym.lent.server_utils import get_response_json, raise_for_status

    async def reply() -> Reply:
        response = await server_client.post(server_name=server_name, url_path=url_path, json=json)
        await raise_for_status(response)
        return response_model.model_validate(await get_response_json(response))

    made: Reply = await reraise_judge_errors(reply())
    return made


def judge_failsafe(verify_fn: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """``verify`` that answers with a marked row, its reward 0, where a judge could not be asked."""

    @functools.wraps(verify_fn)
    async def verify(*given: Any, **named: Any) -> Any:
        try:
            return await verify_fn(*given, **named)
        except JudgeError as error:
            bodies = [value for value in (*named.values(), *given) if hasattr(value, "response")]
            body = named.get("body", bodies[0] if bodies else None)
            if not isinstance(body, BaseModel):
                raise
            from calipers.systems.nemo_gym.serve.app import StrictJSON

            marks = {"reward": 0.0, FAILURE: "judge_failed", "_ng_failure_judge_error": str(error)}
            return StrictJSON({**body.model_dump(mode="json"), **marks})

    return verify


def current_rollout_id() -> str | None:
    """The rollout of the request that is being answered, if its path names one."""
    return _rollout.get()


@contextmanager
def rollout_context(rollout_id: str | None) -> Iterator[None]:
    """Inside, requests belong to this rollout."""
    token = _rollout.set(rollout_id)
    try:
        yield
    finally:
        _rollout.reset(token)


class RolloutContextMiddleware:
    """An ASGI application around another: ``/ng-rollout/ID/path`` is ``/path``, asked for the rollout ID."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request within its rollout."""
        path = scope.get("path", "")
        if scope["type"] != "http" or not path.startswith(PREFIX):
            await self._app(scope, receive, send)
            return
        rollout, _, rest = path.removeprefix(PREFIX).partition("/")
        with rollout_context(rollout):
            await self._app({**scope, "path": f"/{rest}", "raw_path": f"/{rest}".encode()}, receive, send)
