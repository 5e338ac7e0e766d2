"""What a resources server is made of; lent as ``nemo_gym.base_resources_server``."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from calipers.systems.nemo_gym.lent.judge import judge_failsafe
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
from calipers.systems.nemo_gym.lent.sessions import Sessions

if TYPE_CHECKING:
    from fastapi import FastAPI


__all__ = [
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
