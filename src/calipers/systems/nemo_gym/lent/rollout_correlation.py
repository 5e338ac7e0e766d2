"""Which rollout a request belongs to; lent as ``nemo_gym.rollout_correlation``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["RolloutContextMiddleware", "current_rollout_id", "rollout_context"]

PREFIX = "/ng-rollout/"
_rollout: ContextVar[str | None] = ContextVar("rollout", default=None)


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
