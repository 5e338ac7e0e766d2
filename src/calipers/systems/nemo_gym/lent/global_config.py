"""The configuration of all servers together; lent as ``nemo_gym.global_config``.

As there, a server is handed it in an environment variable, as YAML.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

import yaml

from calipers.systems.nemo_gym.words import AGENT, ROLLOUT, TASK

__all__ = [
    "AGENT_REF_KEY_NAME",
    "NEMO_GYM_CONFIG_DICT_ENV_VAR_NAME",
    "NEMO_GYM_CONFIG_PATH_ENV_VAR_NAME",
    "RESPONSES_CREATE_PARAMS_KEY_NAME",
    "RESPONSE_KEY_NAME",
    "ROLLOUT_INDEX_KEY_NAME",
    "TASK_INDEX_KEY_NAME",
    "ServerSettings",
    "get_first_server_config_dict",
    "get_global_config_dict",
    "maybe_get_global_config_dict",
]

NEMO_GYM_CONFIG_DICT_ENV_VAR_NAME: Final = "NEMO_GYM_CONFIG_DICT"
NEMO_GYM_CONFIG_PATH_ENV_VAR_NAME: Final = "NEMO_GYM_CONFIG_PATH"
TASK_INDEX_KEY_NAME: Final = TASK
ROLLOUT_INDEX_KEY_NAME: Final = ROLLOUT
AGENT_REF_KEY_NAME: Final = AGENT
RESPONSES_CREATE_PARAMS_KEY_NAME: Final = "responses_create_params"
RESPONSE_KEY_NAME: Final = "response"


class ServerSettings(dict[str, Any]):
    """An object of the configuration, whose keys are attributes too.

    >>> ServerSettings({"judge": {"port": 80}}).judge.port
    80
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        return ServerSettings(value) if type(value) is dict else value

    def get(self, name: str, default: Any = None) -> Any:
        """What stands under a name, or the default."""
        try:
            return self[name]
        except KeyError:
            return default

    def values(self) -> Any:
        """What stands in it, as attributes too."""
        return [self[name] for name in self]


def maybe_get_global_config_dict() -> ServerSettings | None:
    """The configuration; None where the process was not handed one."""
    text = os.environ.get(NEMO_GYM_CONFIG_DICT_ENV_VAR_NAME)
    return ServerSettings(yaml.safe_load(text) or {}) if text else None


def get_global_config_dict(*_: Any, **__: Any) -> ServerSettings:
    """The configuration; an empty one where the process was not handed one."""
    return maybe_get_global_config_dict() or ServerSettings()


def get_first_server_config_dict(global_config_dict: Mapping[str, Any], top_level_path: str) -> Any:
    """The settings of a server by its name: what stands under its kind and its implementation."""
    kinds = global_config_dict[top_level_path]
    implementations = next(iter(kinds.values()))
    settings = next(iter(implementations.values()))
    return ServerSettings(settings) if isinstance(settings, dict) else settings
