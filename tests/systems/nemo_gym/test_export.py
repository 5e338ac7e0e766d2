"""The export of NeMo Gym's metrics with hooks, which get the rows themselves."""

from __future__ import annotations

import json

import pytest
from gym import put, row

from calipers.formats.read import begin
from calipers.systems.nemo_gym.export import MetricsExport

HOOKS = """class Server:
    def compute_metrics(self, tasks):
        return {"rows": sum(map(len, tasks)), "agents": [row["agent_ref"] for rows in tasks for row in rows]}
"""


@pytest.mark.parametrize("killed", [True, "text"])
def test_hooks_get_rows_without_agents_with_those_of_the_plan(tmp_path, killed):
    """They were left out, so that the file was not even JSON."""
    (tmp_path / "hooks.py").write_text(HOOKS)
    paths = []
    for name, first in (("one", 0), ("two", 2)):
        rows = [row(first, 0, agent=None), row(first + 1, 0, agent=None, _ng_no_persist=killed), row(first + 1, 1)]
        paths.append(put(tmp_path / f"{name}.jsonl", *rows))
        plan = [{**row(task, n), "agent_ref": {"name": "a"}} for task in (first, first + 1) for n in range(2)]
        put(tmp_path / f"{name}_materialized_inputs.jsonl", *plan)
    export = MetricsExport(str(tmp_path / "metrics.json"), paths, f"{tmp_path}/hooks.py:Server")
    begin(paths, kept=export.begin())
    (chunks,), _ = export.contents(None)
    (entry,) = json.loads(b"".join(map(bytes, chunks)))
    kept = 6 if killed == "text" else 4  # only a boolean or a number marks a rollout that was not to be stored
    assert entry["agent_metrics"]["rows"] == kept
    assert {agent["name"] for agent in entry["agent_metrics"]["agents"]} == {entry["agent_ref"]["name"]} == {"a"}
