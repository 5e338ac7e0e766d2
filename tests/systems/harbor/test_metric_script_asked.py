"""Before a run, it is checked that the metric scripts of its datasets can have a sandbox."""

from __future__ import annotations

import pytest
from harbor_datasets import write_dataset

from calipers.errors import SandboxError
from calipers.isolate.launch import attempt
from calipers.systems.harbor.metric_script import check_ready


def test_a_dataset_with_a_script_needs_a_sandbox_before_it_is_run(tmp_path, monkeypatch):
    attempt.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    write_dataset(tmp_path / "set", 1)
    try:
        check_ready([str(tmp_path / "set"), "a-name@1.0", "x" * 300])  # no script, and no folders
        (tmp_path / "set" / "metric.py").write_text("")
        with pytest.raises(SandboxError, match="metric scripts run in a sandbox, and no sandbox works on this machine"):
            check_ready([str(tmp_path / "set")])
    finally:
        attempt.cache_clear()
