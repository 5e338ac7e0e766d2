"""A result in Trackio: a run for each group, the result itself as an artefact."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

from calipers.reports.figures import counted
from calipers.reports.result import Result
from calipers.reports.tracker import PROJECT, RESULT, Tracker, described, flat_metrics, plain_name
from calipers.systems.system import ExportRequest


def export(request: ExportRequest) -> Tracker:
    """``--export trackio[=PROJECT]``: a project in the folder of TRACKIO_DIR."""
    return Tracker("trackio", request.target, request.paths, log)


def log(result: Result, target: str | None) -> Iterator[str]:
    """A run for each group; a note with its name."""
    import trackio

    project = target or PROJECT
    for group in result.groups:
        name, metrics = plain_name(group.title or PROJECT), flat_metrics(group)
        facts = described(result, group)
        run = trackio.init(
            project=project, name=name, config=facts, embed=False, auto_log_gpu=False, auto_log_cpu=False
        )
        trackio.log(metrics)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, RESULT)
            with open(path, "w", encoding="utf-8") as file:
                file.write(result.to_json())
            trackio.log_artifact(path, name=f"{name}-result", type="result")
            trackio.finish()
        yield f"trackio: {counted(len(metrics), 'number')} in project {project!r}, run {run.name!r}"
