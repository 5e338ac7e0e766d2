"""The jobs to measure, each with its rival and its targets."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Final

from bench.data import COLUMNS, SAMPLES, file
from bench.measure import Entry, Job, Target
from bench.peers import calipers_score, nemo_gym, polars_ndjson

STATISTICS: Final = ("mean", "max", "min", "median", "std")
COLUMN_METRICS: Final = [f"{statistic}(column={column})" for column in COLUMNS for statistic in STATISTICS]
ALL_METRICS: Final = ["mean_reward", *(f"pass@{k}" for k in range(1, SAMPLES + 1)), *COLUMN_METRICS]

ROWS: Final = 1_000_000
NEMO_ROWS: Final = (10_000, 100_000)
READ_TARGETS: Final = {"flat": Target(2.0, 3.0, 600), "nested": Target(1.0, 3.0, 600)}


def jobs(scale: float) -> Sequence[Job]:
    """All jobs that read files, with ``scale`` times their rows."""
    return [
        *(_read(layout, round(ROWS * scale), target) for layout, target in READ_TARGETS.items()),
        *(_nemo_gym(round(rows * scale)) for rows in NEMO_ROWS),
    ]


def _read(layout: str, rows: int, target: Target) -> Job:
    path = str(file(layout, rows))
    return Job(
        f"{layout}-{rows}",
        f"{rows:,} rollouts, {layout} JSON Lines",
        rival=Entry(polars_ndjson.PEER, {"path": path}),
        ours=[Entry(calipers_score.PEER, {"path": path, "metrics": ALL_METRICS})],
        target=target,
        note=(
            f"Calipers reads the file and computes {len(ALL_METRICS)} metrics, with intervals where they exist: "
            f"mean_reward, pass@1 to pass@{SAMPLES}, and {', '.join(STATISTICS)} of {len(COLUMNS)} columns. polars "
            "only reads the file."
        ),
    )


def _nemo_gym(rows: int) -> Job:
    """Calipers on its own layout and, if it has a reader for it, on the same file as NeMo Gym."""
    theirs, native = str(file("nemo_gym", rows)), str(file("nested", rows))
    files = {"native file": native}
    if importlib.util.find_spec("calipers.systems.nemo_gym.read"):
        files["the same file"] = theirs
    return Job(
        f"nemo_gym-{rows}",
        f"{rows:,} rollouts, NeMo Gym's statistics",
        rival=Entry(nemo_gym.PEER, {"path": theirs}),
        ours=[
            Entry(
                calipers_score.PEER, {"path": path, "metrics": COLUMN_METRICS}, f"{calipers_score.PEER.title}, {which}"
            )
            for which, path in files.items()
        ],
        note=(
            f"Both compute {', '.join(STATISTICS)} of {len(COLUMNS)} columns over all rollouts. NeMo Gym also lists "
            f"them for each of the {rows // SAMPLES:,} tasks; Calipers gives intervals for the means. "
            f"{nemo_gym.PEER.note}; its servers are not used, which saves it two HTTP requests."
        ),
    )
