"""Measure the peak memory of a run: ``memory.py '{"url": ...}'`` prints its peaks as JSON."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

from bench.child import own_peak
from calipers.running import Job
from calipers.running.loop import Status
from calipers.running.perform import perform
from calipers.running.watcher import Live


class Scale:
    """A screen that shows nothing, and records the peak memory at every update, also after the last rollout."""

    def __init__(self) -> None:
        self.peaks: list[float] = []  # kB

    def due(self) -> bool:
        """Always true."""
        return True

    def show(self, status: Status, headline: Live | None) -> None:
        """Record the peak."""
        self.peaks.append(own_peak())


def main(asked: str) -> None:
    """Run and score, and print the peaks in MB: before the first call, after the last, and at the end."""
    told, scale = json.loads(asked), Scale()
    with tempfile.TemporaryDirectory(prefix="calipers-bench-") as folder:
        job = Job(
            told["benchmark"],
            "openai/fixed",
            base_url=told["url"],
            samples=told["samples"],
            concurrency=told["workers"],
            max_tokens=16,
            out=Path(folder) / "run",
        )
        report = perform(job, scale)
    if not report.complete:
        raise RuntimeError(f"the run did not end well: {report.stopped}")
    peaks = {"loaded": scale.peaks[0], "run": scale.peaks[-1], "scored": own_peak()}
    print(json.dumps({name: kilobytes / 1e3 for name, kilobytes in peaks.items()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
