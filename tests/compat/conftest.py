"""Every test here starts without borrowed code, and leaves none behind."""

from __future__ import annotations

import sys

import pytest

from calipers import compat
from calipers.compat import plugins
from calipers.compat.evsys.registry import METRIC_REGISTRY
from calipers.names import METRICS


@pytest.fixture(autouse=True)
def _nothing_borrowed(monkeypatch):
    monkeypatch.setattr(METRICS, "added", {})
    monkeypatch.setattr(METRICS, "_broken", {})
    monkeypatch.setattr(METRIC_REGISTRY, "_held", dict(METRIC_REGISTRY._held))
    monkeypatch.setattr(plugins, "_loaded", {})
    before = set(sys.modules)
    yield
    compat.deactivate()
    for name in set(sys.modules) - before:
        if name.startswith(("calipers_plugin_", "brings_")):
            del sys.modules[name]
