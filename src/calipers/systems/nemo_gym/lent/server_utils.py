"""Requests to other servers: the stand-in for ``nemo_gym.server_utils``."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from weakref import WeakKeyDictionary

import aiohttp
import msgspec
from pydantic import BaseModel

from calipers.systems.nemo_gym.lent.base_resources_server import SESSION_ID_KEY
from calipers.systems.nemo_gym.lent.models import get_first_server_config_dict, get_global_config_dict

__all__ = [
    "MAX_NUM_TRIES",
    "SESSION_ID_KEY",
    "ServerClient",
    "apply_rollout_prefix",
    "get_first_server_config_dict",
    "get_response_json",
    "get_server_url",
    "is_nemo_gym_fastapi_entrypoint",
    "is_nemo_gym_fastapi_worker",
    "raise_for_status",
    "request",
    "rollout_path_prefix",
]

MAX_NUM_TRIES: Final = 3
CONNECTION_TRIES: Final = 20  # calls of a server that is not up yet, or drops the connection; NeMo Gym tries endlessly
PAUSE: Final = 0.5  # seconds between two calls

_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, aiohttp.ClientSession] = WeakKeyDictionary()


def _client() -> aiohttp.ClientSession:
    """The HTTP client of this event loop. It has no timeout, as in NeMo Gym."""
    loop = asyncio.get_running_loop()
    client = _clients.get(loop)
    if client is None or client.closed:
        client = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None), cookie_jar=aiohttp.DummyCookieJar())
        _clients[loop] = client
    return client


async def hang_up() -> None:
    """Close the connections of this event loop."""
    client = _clients.pop(asyncio.get_running_loop(), None)
    if client is not None:
        await client.close()


async def request(method: str, url: str, _internal: bool = False, **options: Any) -> aiohttp.ClientResponse:
    """Send a request. A call that fails is repeated, up to `CONNECTION_TRIES` or `MAX_NUM_TRIES` times in all."""
    if options.get("json"):
        options["data"] = msgspec.json.encode(options.pop("json"))
        options["headers"] = {**(options.get("headers") or {}), "Content-Type": "application/json"}
    tries = 0
    while True:
        try:
            return await _client().request(method, url, **options)
        except aiohttp.ClientError as error:
            tries += 1
            lost = isinstance(error, (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError))
            if tries >= (CONNECTION_TRIES if lost or _internal else MAX_NUM_TRIES):
                raise
        await asyncio.sleep(PAUSE)


class ResponseFailed(aiohttp.ClientResponseError):
    """An HTTP error with the body of the response."""

    response_content: bytes = b""


async def raise_for_status(response: aiohttp.ClientResponse) -> None:
    """Raise aiohttp's error for an HTTP error status; the error has the body as ``response_content``."""
    if not response.ok:
        content = await response.read()
        try:
            response.raise_for_status()
        except aiohttp.ClientResponseError as error:
            message = f"{error.message}: {content[:500].decode(errors='replace')}" if content else error.message
            failed = ResponseFailed(
                error.request_info, error.history, status=error.status, message=message, headers=error.headers
            )
            failed.response_content = content
            raise failed from None


async def get_response_json(response: aiohttp.ClientResponse) -> Any:
    """The decoded JSON body of a response."""
    return msgspec.json.decode(await response.read())


def get_server_url(server_name: str) -> str:
    """The URL of a server of the configuration."""
    return _address(get_global_config_dict(), server_name)


def _address(config: Any, server_name: str) -> str:
    if server_name not in config:
        expected = ", ".join(config) or "a server of the configuration; calipers serve --config FILE reads one"
        raise ValueError(f"no server named {server_name!r}; expected {expected}")
    settings = get_first_server_config_dict(config, server_name)
    host, port = settings.get("host") or "127.0.0.1", settings.get("port")
    if not port:
        raise ValueError(f"server {server_name!r} is not running: its settings have no port")
    return f"http://{host}:{port}"


class ServerClient(BaseModel):
    """A client that calls the servers of a configuration by their names."""

    head_server_config: Any = None
    global_config_dict: Any

    async def request(self, server_name: str, url_path: str, method: str, **options: Any) -> aiohttp.ClientResponse:
        """Send a request to a server. Of a pydantic model as ``json``, only the fields that were set are sent."""
        address = _address(self.global_config_dict, server_name)
        body = options.get("json")
        if isinstance(body, BaseModel):
            options["json"] = body.model_dump(mode="json", exclude_unset=True)
        return await request(method, f"{address}{url_path}", _internal=True, **options)

    async def get(self, server_name: str, url_path: str, **options: Any) -> aiohttp.ClientResponse:
        """Send a GET request to a server."""
        return await self.request(server_name, url_path, "GET", **options)

    async def post(self, server_name: str, url_path: str, **options: Any) -> aiohttp.ClientResponse:
        """Send a POST request to a server."""
        return await self.request(server_name, url_path, "POST", **options)


def rollout_path_prefix(rollout_id: str | None, *, token_capture: bool = False) -> str:
    """The prefix of a path that is called for a rollout; empty without a rollout.

    >>> rollout_path_prefix("7"), rollout_path_prefix(None)
    ('/ng-rollout/7', '')
    """
    if not rollout_id:
        return ""
    return f"/ng-rollout/{rollout_id}{'/training-token-capture' if token_capture else ''}"


def apply_rollout_prefix(base_url: str, rollout_id: str | None, *, token_capture: bool = False) -> str:
    """The URL of a server, with the prefix of a rollout."""
    prefix = rollout_path_prefix(rollout_id, token_capture=token_capture)
    return base_url.rstrip("/") + prefix if prefix else base_url


def is_nemo_gym_fastapi_entrypoint(file: str) -> bool:
    """Whether a file is being started as one of several workers: never in this stand-in."""
    return False


def is_nemo_gym_fastapi_worker() -> bool:
    """Whether this process is one of several workers: never in this stand-in."""
    return False
