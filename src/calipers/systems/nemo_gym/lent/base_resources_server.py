"""What a resources server is made of; lent as ``nemo_gym.base_resources_server``."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

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
)
from calipers.systems.nemo_gym.lent.reward_profile import AggregateMetricsMixin
from calipers.systems.nemo_gym.lent.server_utils import Sessions

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
    "SimpleResourcesServer",
]


class SimpleResourcesServer(AggregateMetricsMixin, BaseModel):
    """A server of tools and a verifier, itself a pydantic model; its hooks add to the metrics."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    config: BaseResourcesServerConfig
    server_client: Any

    def setup_webserver(self) -> FastAPI:
        """The web application of this server: where a subclass adds routes of its own."""
        from calipers.systems.nemo_gym.serve.app import new_app

        app = new_app(self.config.name or type(self).__name__)
        app.add_middleware(Sessions, cookie=f"{type(self).__name__}___{self.config.name}")
        app.post("/seed_session")(self.seed_session)
        app.post("/verify")(self.verify)
        app.post("/aggregate_metrics")(self.aggregate_metrics)
        return app

    async def seed_session(self, body: BaseSeedSessionRequest) -> BaseSeedSessionResponse:
        """Begin a session: nothing to do."""
        return BaseSeedSessionResponse()

    @abstractmethod
    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        """The verdict on one response."""
