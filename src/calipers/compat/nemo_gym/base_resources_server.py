"""What a resources server is made of, as far as its metrics need it; lent as ``nemo_gym.base_resources_server``."""

from __future__ import annotations

from typing import Any

from calipers.compat.nemo_gym.reward_profile import AggregateMetrics, AggregateMetricsMixin, AggregateMetricsRequest

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


class _Fields:
    """An object with the fields it is given."""

    def __init__(self, **fields: Any) -> None:
        for name, value in fields.items():
            setattr(self, name, value)

    def model_dump(self) -> dict[str, Any]:
        """The fields as a dict."""
        return dict(vars(self))


class BaseRunRequest(_Fields):
    """A request to run a task: ``responses_create_params``."""


class BaseVerifyRequest(BaseRunRequest):
    """A request to verify a response: ``response`` too."""


class BaseVerifyResponse(BaseVerifyRequest):
    """A verdict: ``reward`` too. It becomes the rollout row."""


class BaseMultiRewardVerifyResponse(BaseVerifyResponse):
    """A verdict of several parts: ``reward_components`` too."""


class BaseSeedSessionRequest(_Fields):
    """A request to begin a session."""


class BaseSeedSessionResponse(_Fields):
    """A session was begun."""


class BaseResourcesServerConfig(_Fields):
    """The settings of a server."""


class SimpleResourcesServer(AggregateMetricsMixin, _Fields):
    """A server of tools and a verifier; its hooks add to the metrics.

    Made for a file of rollouts, it has no ``config`` and no ``server_client``.
    """

    async def seed_session(self, body: BaseSeedSessionRequest) -> BaseSeedSessionResponse:
        """Begin a session: nothing to do."""
        return BaseSeedSessionResponse()
