"""Every test here starts without borrowed code, and leaves none behind."""

from __future__ import annotations

import sys

import pytest

from calipers import compat
from calipers.names import METRICS, VERIFIERS
from calipers.systems.evsys.lent import METRIC_REGISTRY, VERIFIER_REGISTRY
from calipers.verifiers import user_code


@pytest.fixture(autouse=True)
def _nothing_borrowed(monkeypatch):
    for index in (METRICS, VERIFIERS):
        monkeypatch.setattr(index, "added", {})
        monkeypatch.setattr(index, "_broken", {})
    for registry in (METRIC_REGISTRY, VERIFIER_REGISTRY):
        monkeypatch.setattr(registry, "_classes", dict(registry._classes))
    monkeypatch.setattr(user_code, "_registered", {})
    monkeypatch.setattr(compat, "_loaded", {})
    before = set(sys.modules)
    yield
    compat.deactivate()
    for name in set(sys.modules) - before:
        if name.startswith(("calipers_plugin_", "brings_")):
            del sys.modules[name]
