"""Prompts out of YAML files; lent as ``nemo_gym.prompt``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from calipers.systems.nemo_gym.lent.package import PARENT_DIR

__all__ = ["PromptConfig", "apply_prompt_to_row", "fill_prompt", "load_prompt_config"]


class PromptConfig(BaseModel):
    """A prompt with ``{column}`` where a row's value goes."""

    user: str
    system: str | None = None


@lru_cache(maxsize=64)
def load_prompt_config(path: str) -> PromptConfig:
    """The prompt in a file; a path is looked for in the working folder, then in the root of the tree."""
    given = Path(path)
    file = given if given.exists() else PARENT_DIR / given
    return PromptConfig.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))


def fill_prompt(prompt_config: PromptConfig, row: Mapping[str, Any]) -> list[dict[str, str]]:
    """The messages of a row. KeyError for a column it lacks.

    >>> fill_prompt(PromptConfig(user="{a} + 1?"), {"a": 2})
    [{'role': 'user', 'content': '2 + 1?'}]
    """
    roles = [("system", prompt_config.system), ("user", prompt_config.user)]
    try:
        return [{"role": role, "content": text.format_map(row)} for role, text in roles if text is not None]
    except KeyError as error:
        raise KeyError(f"the prompt needs {error}, but the row only has {', '.join(row)}") from None


def apply_prompt_to_row(row: Mapping[str, Any], prompt_config: PromptConfig) -> dict[str, Any]:
    """A row with the prompt as its input; what else it asks of the model stays."""
    given = row.get("responses_create_params")
    params = {**given} if isinstance(given, Mapping) else {}
    return {**row, "responses_create_params": {**params, "input": fill_prompt(prompt_config, row)}}
