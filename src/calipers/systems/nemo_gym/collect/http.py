"""NeMo Gym's servers, of agents or of resources, and its head server, which knows where they are."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import msgspec
from yarl import URL

from calipers.clients.failure import cleaned, from_status, read_refusal
from calipers.clients.openai import read_body
from calipers.clients.secrets import Secrets
from calipers.errors import ClientError, InputError
from calipers.running.event_loop import finish
from calipers.systems.nemo_gym.collect.row import Row, decoded, malformed

LARGEST = 64 * 2**20  # bytes of a rollout: a longer line could not be read again
LARGEST_METRICS = 2**30  # bytes of the metrics of all rollouts
LARGEST_ERROR = 64 * 2**10
SECONDS_TO_CONNECT = 30.0
ABSENT = frozenset({404, 405, 501})  # statuses that say there is no such route
_LARGE_BODY = 2**20  # bytes; aiohttp wants more than that as a file
_RIGHT = "expected http(s)://HOST:PORT, such as http://127.0.0.1:8000"

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Reach:
    """How servers are reached."""

    timeout: float = 1800.0  # seconds for one call; a rollout may have many turns
    most: int = 32  # calls in flight at once
    token: str | None = field(default=None, repr=False)  # shown to every server
    secrets: Secrets = field(default_factory=Secrets)


@dataclass(frozen=True, slots=True)
class GymReply:
    """What a server answered with success."""

    raw: bytes = field(repr=False)
    cookies: Mapping[str, str] = field(repr=False, default_factory=dict)


def checked(url: str, option: str) -> str:
    """The address of a server, without a slash at its end; InputError, which shows no password, for what is none."""
    if not url.isprintable() or " " in url:
        raise InputError.at(option, "the URL holds spaces or control characters", _RIGHT)
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        (parts.hostname or "").encode("idna")
    except ValueError:
        raise InputError.at(option, "host or port of the URL cannot be read", _RIGHT) from None
    if parts.username is not None or parts.password is not None:
        raise InputError.at(option, "the URL holds a user name or a password", _RIGHT)
    if parts.query or parts.fragment:
        raise InputError.at(option, "the URL holds a query", _RIGHT)
    if not usable:
        raise InputError.at(option, f"{url!r} is no address of a server", _RIGHT)
    return url.rstrip("/")


class Server:
    """One server. Its connections belong to the event loop of the first call, until `close`.

    Redirects are not followed and no proxy is asked, as between NeMo Gym's own servers.
    """

    def __init__(self, url: str, reach: Reach) -> None:
        self.url = url
        self.shown = urlsplit(url).netloc
        self._reach = reach
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if reach.token:
            self._headers["Authorization"] = f"Bearer {reach.token}"
        self._http: aiohttp.ClientSession | None = None

    async def post(
        self, route: str, body: Row, *, cookies: Mapping[str, str] | None = None, most: int = LARGEST
    ) -> GymReply:
        """The answer to one call of a route; `ClientError` for every other end of it."""
        try:
            data = _encode(body)
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise ClientError(f"the request cannot be written as JSON: {error}", kind="prompt") from None
        http = self._http or self._open()
        try:
            async with http.post(
                URL(self.url + route),
                data=data if len(data) <= _LARGE_BODY else io.BytesIO(data),
                headers=self._headers,
                cookies=cookies,
                allow_redirects=False,
            ) as response:
                good = response.status < 300
                raw = await read_body(response.content, most if good else LARGEST_ERROR, whole=good)
                if good:
                    return GymReply(raw, {name: morsel.value for name, morsel in response.cookies.items()})
                raise from_status(response.status, read_refusal(raw), response.headers, self._reach.secrets)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._failed(error) from None  # its repr may hold headers

    async def run(self, row: Row) -> dict[str, Any]:
        """A rollout, made by the agent server's ``/run``."""
        return decoded((await self.post("/run", row)).raw)

    async def aggregate(self, rows: list[dict[str, Any]]) -> dict[str, Any] | None:
        """What ``/aggregate_metrics`` makes of an agent's rows; None where there is no such route."""
        try:
            answer = await self.post("/aggregate_metrics", {"verify_responses": rows}, most=LARGEST_METRICS)
        except ClientError as error:
            if error.kind in {f"http_{status}" for status in ABSENT}:
                return None
            raise
        return decoded(answer.raw)

    async def close(self) -> None:
        """Give back the connections; a later call opens new ones."""
        if self._http is not None:
            await self._http.close()
            self._http = None

    def _open(self) -> aiohttp.ClientSession:
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._reach.most),
            timeout=aiohttp.ClientTimeout(total=self._reach.timeout, sock_connect=SECONDS_TO_CONNECT),
            cookie_jar=aiohttp.DummyCookieJar(),  # a session belongs to one rollout, not to all
        )
        return self._http

    def _failed(self, error: Exception) -> ClientError:
        """What became of a call without an answer, in our own words: aiohttp's may hold URLs and headers."""
        match error:
            case aiohttp.ClientPayloadError():
                return malformed("the connection ended in the middle of the answer")
            case aiohttp.ConnectionTimeoutError():
                return self._unreachable("nobody answers there")
            case TimeoutError():
                return ClientError(f"no answer within {self._reach.timeout:g} s", kind="timeout", retry=True)
            case aiohttp.ClientConnectorDNSError():
                return self._unreachable("no such host")
            case aiohttp.ClientConnectorCertificateError():
                return self._unreachable("its certificate is not trusted")
            case aiohttp.ClientSSLError():
                return self._unreachable("TLS failed")
            case aiohttp.ClientConnectorError(os_error=why):
                reason = os.strerror(why.errno) if why.errno else cleaned(str(why), self._reach.secrets)
                return self._unreachable(reason.lower())
            case aiohttp.ClientResponseError():
                return malformed("the answer is no HTTP")
            case _:
                return ClientError("the connection was closed before the answer", kind="connection", retry=True)

    def _unreachable(self, why: str) -> ClientError:
        what = f"cannot connect to {self.shown}: {why}"
        return ClientError(what, kind="connection", retry=True, hopeless=True)


HEAD: Final = "http://127.0.0.1:11000"
ROUTE: Final = "/global_config_dict_yaml"
KIND: Final = "responses_api_agents"
LARGEST_HEAD = 16 * 2**20
SECONDS = 10.0


def found_agents(head: str) -> dict[str, str]:
    """The address of every agent that a head server knows, by name; ClientError where there is none."""
    return addresses(finish(lambda: _fetched(head)))


def addresses(configuration: bytes) -> dict[str, str]:
    """The agents in the configuration that a head server tells: a JSON string that holds YAML.

    >>> addresses(b'"math: {responses_api_agents: {simple_agent: {host: 0.0.0.0, port: 10007}}}"')
    {'math': 'http://127.0.0.1:10007'}
    """
    import yaml

    try:
        blocks = yaml.safe_load(msgspec.json.decode(configuration, type=str))
    except (msgspec.MsgspecError, UnicodeDecodeError, yaml.YAMLError, RecursionError):
        raise ClientError("the head server's configuration cannot be read", kind="malformed") from None
    urls = {}
    for name, block in blocks.items() if isinstance(blocks, Mapping) else ():
        kinds = block.get(KIND) if isinstance(block, Mapping) else None
        for settings in kinds.values() if isinstance(kinds, Mapping) else ():
            if address := _address(settings):
                urls[str(name)] = address
    return urls


def _address(settings: Any) -> str | None:
    if not isinstance(settings, Mapping) or not isinstance(settings.get("port"), int):
        return None
    host = str(settings.get("host") or "127.0.0.1")
    host = "127.0.0.1" if host in ("0.0.0.0", "localhost") else host  # everywhere is here, too
    return f"http://{host}:{settings['port']}"


async def _fetched(head: str) -> bytes:
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()) as http,
            http.get(head + ROUTE, allow_redirects=False) as response,
        ):
            body = await response.content.read(LARGEST_HEAD)
    except (aiohttp.ClientError, TimeoutError):
        raise ClientError(f"no head server answers at {head}", kind="connection") from None
    if response.status != 200:
        raise ClientError(f"the head server at {head} answers {response.status}", kind=f"http_{response.status}")
    return body
