"""How servers name each other, and their settings; lent as ``nemo_gym.config_types``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter, ValidationError

from calipers.systems.nemo_gym.lent.models import (
    AggregateMetrics,
    AggregateMetricsRequest,
    BaseRunServerConfig,
    BaseRunServerInstanceConfig,
    BaseServerConfig,
)

__all__ = [
    "AGENT_REF_KEY",
    "AgentServerRef",
    "AggregateMetrics",
    "AggregateMetricsRequest",
    "BaseRunServerConfig",
    "BaseRunServerInstanceConfig",
    "BaseServerConfig",
    "ConfigError",
    "ModelServerRef",
    "ResourcesServerRef",
    "ServerRef",
    "ServerRefNotFoundError",
    "is_server_ref",
]

AGENT_REF_KEY = "agent_ref"


class ModelServerRef(BaseModel):
    """A model server, by its name."""

    type: Literal["responses_api_models"]
    name: str


class ResourcesServerRef(BaseModel):
    """A resources server, by its name."""

    type: Literal["resources_servers"]
    name: str


class AgentServerRef(BaseModel):
    """An agent, by its name."""

    type: Literal["responses_api_agents"]
    name: str


ServerRef = ModelServerRef | ResourcesServerRef | AgentServerRef


class ConfigError(Exception):
    """A mistake in a configuration."""


class ServerRefNotFoundError(ConfigError, ValueError):
    """A server was named that the configuration does not have."""


def is_server_ref(config_dict: Any) -> ServerRef | None:
    """The reference that an object is; None for one that is none."""
    adapter: TypeAdapter[ServerRef] = TypeAdapter(ServerRef)
    try:
        return adapter.validate_python(config_dict)
    except ValidationError:
        return None
