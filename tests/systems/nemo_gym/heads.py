"""A NeMo Gym head server on loopback, which returns the addresses of the agents."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from aiohttp import web


@dataclass
class HeadServer:
    """The server, and the addresses by name that it returns."""

    agents: dict[str, str] = field(default_factory=dict)
    body: str | None = None  # returned instead of a configuration
    port: int = 0

    async def __aenter__(self) -> HeadServer:
        app = web.Application()
        app.router.add_get("/global_config_dict_yaml", self._tell)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _tell(self, _: web.Request) -> web.Response:
        if self.body is not None:
            return web.Response(text=self.body)
        lines = ["head_server: {host: 127.0.0.1}", "policy: {responses_api_models: {m: {port: 1}}}"]
        for name, url in self.agents.items():
            port = urlsplit(url).port
            lines.append(f"{name}:\n  responses_api_agents:\n    simple_agent: {{host: 0.0.0.0, port: {port}}}")
        return web.json_response("\n".join(lines))
