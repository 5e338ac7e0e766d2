"""NeMo Gym's head server: where the agents are that ``ng_run`` has started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import aiohttp
import msgspec

from calipers.errors import ClientError
from calipers.run.start import finish

HEAD: Final = "http://127.0.0.1:11000"
ROUTE: Final = "/global_config_dict_yaml"
KIND: Final = "responses_api_agents"
LARGEST = 16 * 2**20
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
    found = {}
    for name, block in blocks.items() if isinstance(blocks, Mapping) else ():
        kinds = block.get(KIND) if isinstance(block, Mapping) else None
        for settings in kinds.values() if isinstance(kinds, Mapping) else ():
            if address := _address(settings):
                found[str(name)] = address
    return found


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
            body = await response.content.read(LARGEST)
    except (aiohttp.ClientError, TimeoutError):
        raise ClientError(f"no head server answers at {head}", kind="connection") from None
    if response.status != 200:
        raise ClientError(f"the head server at {head} answers {response.status}", kind=f"http_{response.status}")
    return body
