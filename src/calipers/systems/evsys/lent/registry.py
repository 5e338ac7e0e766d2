"""EvSys' registry of metrics; lent as ``evsys_sdk.registry``.

What is registered here is known to Calipers under the same name, in every dialect. Installed
packages are asked when a name is missing and when all names are listed, not at import.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec

from calipers.errors import PluginError
from calipers.names import METRICS, Index, load
from calipers.systems.evsys.lent.basic import Avg, MeanReward, PassAt1, PassAt3, PassHat3, PassRate

_ELSEWHERE: Final = {  # kinds that live beside their own code, which imports this page
    **dict.fromkeys(
        ("get_inference", "list_inference", "list_inferences", "register_inference"),
        "calipers.systems.evsys.lent.inference",
    ),
    **dict.fromkeys(("get_verifier", "list_verifiers", "register_verifier"), "calipers.systems.evsys.lent.verifiers"),
}
_REGISTRIES: Final = {  # kind -> its registry
    "inference_client": "calipers.systems.evsys.lent.inference:INFERENCE_REGISTRY",
    "metric": "calipers.systems.evsys.lent.registry:METRIC_REGISTRY",
    "verifier": "calipers.systems.evsys.lent.verifiers:VERIFIER_REGISTRY",
}

__all__ = ["Registry", "get_metric", "list_metrics", "register_metric", "schema_for", *_ELSEWHERE]

C = TypeVar("C", bound=type)
Keys = list[str]
Pairs = list[tuple[str, type]]


class Registry:
    """Classes of one kind by name. A name belongs to the class that took it first."""

    def __init__(self, kind: str, classes: Mapping[str, type] | None = None, index: Index | None = None) -> None:
        self.kind = kind
        self._held = dict(classes or {})
        self._index = index or Index(kind, {})

    def register(self, name: str | None = None) -> Callable[[C], C]:
        """A class decorator; the key is ``name``, else the class's own ``name``, which becomes the key.

        ValueError without either, and for a key that another class holds.
        """

        def decorate(cls: Any) -> Any:
            key = name or getattr(cls, "name", None)
            if not key:
                raise ValueError(f"{self.kind} class {cls.__name__} has no `name` and was registered without one")
            existing = self._held.get(key) or self._index.added.get(key)
            if existing is not None and existing is not cls:
                classes = f"existing={_called(existing)}, new={_called(cls)}"
                raise ValueError(f"{self.kind} {key!r} already registered ({classes})")
            if key not in self._held:
                self._held[key] = cls
                self._index.add(key, cls)
            with suppress(AttributeError, TypeError):  # one that cannot be written to keeps its own
                cls.name = key
            return cls

        return decorate

    def get(self, name: str) -> type:
        """The class registered under a name; a KeyError lists the names there are."""
        if name not in self._held:
            broken = self._ask(name)
            if name not in self._held:
                known = ", ".join(sorted(self._held)) or "(none)"
                raise KeyError(f"No {self.kind} registered under {name!r}. Available: {known}{broken}")
        return self._held[name]

    def has(self, name: str) -> bool:
        """Whether a name is registered."""
        try:
            self.get(name)
        except KeyError:
            return False
        return True

    def names(self) -> Keys:
        """The names, sorted."""
        return [name for name, _ in self.items()]

    list = names  # EvSys' word

    def items(self) -> Pairs:
        """(name, class) for each name, sorted."""
        for error in self._index.load_packages():
            warnings.warn(str(error), stacklevel=3)
        return sorted(self._held.items(), key=lambda item: item[0])

    def unregister(self, name: str) -> None:
        """Remove a name; one that is not there is no error."""
        self._held.pop(name, None)
        self._index.discard(name)

    def _ask(self, name: str) -> str:
        """Let installed packages register a name; what to say when they cannot."""
        try:
            self._index.plugin(name)
        except PluginError as error:
            return f" ({error})"
        return ""


def _called(thing: Any) -> str:
    if isinstance(thing, type):
        return f"{thing.__module__}.{thing.__qualname__}"
    return repr(thing)


METRIC_REGISTRY: Final = Registry(
    "metric", {cls.name: cls for cls in (Avg, MeanReward, PassAt1, PassAt3, PassHat3, PassRate)}, METRICS
)

register_metric = METRIC_REGISTRY.register
get_metric = METRIC_REGISTRY.get
list_metrics = METRIC_REGISTRY.names


def schema_for(kind: str, name: str) -> dict[str, Any]:
    """The JSON schema of a plugin's ``Config``, one without properties where it has none, as metrics have.

    KeyError for an unknown kind or name.
    """
    if kind not in _REGISTRIES:
        raise KeyError(f"No registry of kind {kind!r}. Available: {', '.join(_REGISTRIES)}")
    config = getattr(load(_REGISTRIES[kind]).get(name), "Config", None)
    if callable(written := getattr(config, "model_json_schema", None)):  # pydantic, as EvSys' own
        return dict(written())
    if isinstance(config, type) and issubclass(config, msgspec.Struct):
        return dict(msgspec.json.schema_components([config])[1][config.__name__])
    return {"type": "object", "properties": {}}


def __getattr__(name: str) -> Any:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_ELSEWHERE[name]), name)
