"""``make bench-scale``: time and memory of a score from ten thousand to a hundred million rollouts, and of partials.

Every score runs in its own process. The files are generated, with 16 rollouts per task (``--samples``) and all rollouts
in a random order, and removed afterwards. ``--write`` puts the tables and the picture into docs/benchmarks.md.

    python bench/scale_run.py --largest 1e7          # a few minutes
    python bench/scale_run.py --largest 1e8 --parts 64 --rows 1e9 --write
    python bench/scale_run.py --only jsonl --write   # the other results are those of the last run
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.child import own_peak  # noqa: E402

PAGE = ROOT / "docs" / "benchmarks.md"
KEPT = ROOT / ".bench" / "scale.json"
PICTURE = ROOT / "docs" / "images" / "scale.svg"
START, END = "<!-- scale: bench/scale_run.py -->", "<!-- /scale -->"
METRICS = ["mean_reward", "pass@4"]
PIECE = 2_000_000  # rollouts that are generated at once
MOST_LINE_TASKS = 62_500  # maximum number of tasks in a file of JSON Lines
KINDS = ("parquet, integer ids", "parquet, text ids", "jsonl, text ids")
TARGETS = {"parquet, integer ids": (15, 2.0), "parquet, text ids": (40, 5.0)}  # of 1e8 rollouts: seconds, GB


@dataclass(frozen=True, slots=True)
class Measured:
    """A measured score in its own process."""

    kind: str
    rows: int
    seconds: float
    cpu: float
    gigabytes: float  # its peak, plus that of the largest process it started
    digest: str


def main() -> None:
    """Measure, print, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=float, default=1e8, help="rollouts of the largest Parquet file")
    parser.add_argument("--largest-lines", type=float, default=1e7, help="rollouts of the largest file of JSON Lines")
    parser.add_argument("--samples", type=int, default=16, help="rollouts of each task")
    parser.add_argument("--rows", type=float, default=0, help="rollouts in all partials; 0: no partials are made")
    parser.add_argument("--parts", type=int, default=64)
    parser.add_argument("--part-tasks", type=int, default=1_000_000, help="tasks that all partials share")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--only", metavar="KIND", help="measure only kinds that begin so; the rest is of the last run")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    if asked.child:
        _child(**json.loads(asked.child))
        return
    kept = json.loads(KEPT.read_text()) if asked.only is not None else {"scores": [], "merged": None}
    again = [kind for kind in KINDS if kind.startswith(asked.only or "")]
    measured = [each for each in (Measured(**each) for each in kept["scores"]) if each.kind not in again]
    merged = kept["merged"]
    with tempfile.TemporaryDirectory(prefix="calipers-scale-") as folder:
        for kind in again:
            largest = asked.largest_lines if kind.startswith("jsonl") else asked.largest
            for rows in sizes(int(largest)):
                path = Path(folder) / f"rollouts.{kind.partition(',')[0]}"
                # a file with more lines has more samples of the same tasks, because memory depends on tasks
                samples = max(asked.samples, rows // MOST_LINE_TASKS) if kind.startswith("jsonl") else asked.samples
                make(path, rows, samples, kind)
                measured.append(score(kind, path, rows))
                path.unlink()
                print(line(measured[-1]), flush=True)
        if asked.rows:
            merged = partials(folder, int(asked.rows), asked.parts, asked.part_tasks)
    measured.sort(key=lambda each: (KINDS.index(each.kind), each.rows))
    KEPT.parent.mkdir(exist_ok=True)
    KEPT.write_text(json.dumps({"scores": [asdict(each) for each in measured], "merged": merged}))
    text = report(measured, merged, asked)
    print(text)
    if asked.write:
        PICTURE.parent.mkdir(exist_ok=True)
        PICTURE.write_text(picture(measured))
        page = PAGE.read_text()
        before, _, rest = page.partition(START)
        after = rest.partition(END)[2]
        PAGE.write_text(f"{before.rstrip()}\n\n{START}\n{text}\n{END}\n{after.lstrip()}")


def sizes(largest: int) -> list[int]:
    """Powers of ten from ten thousand to the largest."""
    return [10**power for power in range(4, round(math.log10(largest)) + 1)]


def make(path: Path, rows: int, samples: int, kind: str) -> None:
    """Write a file of rollouts in random order."""
    order = np.random.default_rng(0).permutation(rows) if rows <= 10**8 else None
    rng = np.random.default_rng(1)
    if path.suffix == ".jsonl":
        with path.open("w") as file:
            for task, sample, reward in pieces(rows, samples, order, rng):
                columns = zip(task.tolist(), sample.tolist(), reward.tolist(), strict=True)
                file.writelines(
                    f'{{"task": "task-{t:09d}", "sample": {s}, "reward": {r:.1f}, "model": "m"}}\n'
                    for t, s, r in columns
                )
        return
    import polars as pl
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer = None
    for task, sample, reward in pieces(rows, samples, order, rng):
        ids = pl.Series("task", task)
        if "text" in kind:
            ids = "task-" + ids.cast(pl.String).str.zfill(9)
        table = pa.table({"task": ids.to_arrow(), "sample": sample.astype(np.int32), "reward": reward})
        writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
        writer.write_table(table, row_group_size=1_000_000)
    if writer:
        writer.close()


def pieces(rows: int, samples: int, order: Any, rng: np.random.Generator) -> Iterator[tuple[Any, Any, Any]]:
    """(task, sample, reward) of the rollouts, in arrays of at most PIECE rollouts."""
    for start in range(0, rows, PIECE):
        number = order[start : start + PIECE] if order is not None else np.arange(start, min(start + PIECE, rows))
        task, sample = np.divmod(number, samples)
        ease = (task * 2654435761 % 2**32) / 2**32  # the same for all samples of a task
        yield task, sample, (rng.random(len(task)) < ease).astype(float)


def score(kind: str, path: Path, rows: int) -> Measured:
    """Score a file in a process of its own."""
    found = _in_a_process(path=str(path))
    return Measured(kind, rows, found["seconds"], found["cpu"], found["gigabytes"], found["digest"])


def partials(folder: str, rows: int, parts: int, tasks: int) -> dict[str, Any]:
    """Write partials of many rollouts, part by part (each input is generated, read and deleted), then merge them."""
    each = rows // parts
    seconds, peak, size = 0.0, 0.0, 0
    for number in range(parts):
        path = Path(folder) / "part.parquet"
        _make_part(path, number, each, tasks)
        found = _in_a_process(path=str(path), partial=f"{folder}/{number}.partial")
        seconds, peak = seconds + found["seconds"], max(peak, found["gigabytes"])
        size += os.path.getsize(f"{folder}/{number}.partial")
        path.unlink()
        print(f"part {number + 1} of {parts}: {found['seconds']:.1f} s, {found['gigabytes']:.2f} GB", flush=True)
    found = _in_a_process(merge=[f"{folder}/{number}.partial" for number in range(parts)])
    return {
        "rows": each * parts,
        "parts": parts,
        "tasks": tasks,
        "seconds": seconds,
        "part_gigabytes": peak,
        "partial_bytes": size,
        "merge_seconds": found["seconds"],
        "merge_gigabytes": found["gigabytes"],
        "digest": found["digest"],
    }


def _make_part(path: Path, number: int, rows: int, tasks: int) -> None:
    """Write part ``number`` of many: some samples of every task; all parts have the same tasks."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(number)
    writer = None
    for start in range(0, rows, PIECE):
        row = np.arange(start, min(start + PIECE, rows)) + number * rows
        sample, task = np.divmod(row, tasks)
        ease = (task * 2654435761 % 2**32) / 2**32
        reward = (rng.random(len(task)) < ease).astype(float)
        table = pa.table({"task": task, "sample": sample.astype(np.int32), "reward": reward})
        writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
        writer.write_table(table, row_group_size=1_000_000)
    if writer:
        writer.close()


def _in_a_process(**asked: Any) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", json.dumps(asked)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _child(path: str = "", partial: str = "", merge: Sequence[str] = ()) -> None:
    import resource

    from calipers.partials import merge_partials, write_partial
    from calipers.pipeline import score as score_rollouts

    start, cpu = time.perf_counter(), sum(os.times()[:4])
    digest = ""
    if merge:
        digest = merge_partials(list(merge)).digest
    elif partial:
        write_partial(path, partial, METRICS)
    else:
        digest = score_rollouts(path, METRICS).digest
    seconds, cpu = time.perf_counter() - start, sum(os.times()[:4]) - cpu
    peak = own_peak() + resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1.024
    print(json.dumps({"seconds": seconds, "cpu": cpu, "gigabytes": peak / 1e6, "digest": digest}))


def line(one: Measured) -> str:
    """A row of the table."""
    return f"| {one.kind} | {one.rows:,} | {one.seconds:.2f} | {one.cpu:.2f} | {one.gigabytes:.2f} |"


def report(measured: Sequence[Measured], merged: dict[str, Any] | None, asked: argparse.Namespace) -> str:
    """The section of the page."""
    cores = len(os.sched_getaffinity(0))
    lines = [
        "## From ten thousand to a hundred million rollouts",
        "",
        f"`make bench-scale`, measured on {datetime.now(UTC):%Y-%m-%d} with {cores} cores, load "
        f"{os.getloadavg()[0]:.1f} at the end: mean_reward and pass@4 of rollouts in random order, {asked.samples} for "
        "each task. Every score is a process of its own; the time is that of the call, the memory the peak of the "
        f"process plus that of the largest one it started. JSON Lines have at most {MOST_LINE_TASKS:,} tasks, with "
        "more samples each.",
        "",
        "![Time and memory of a score against the number of rollouts](images/scale.svg)",
        "",
        "| file | rollouts | seconds | CPU seconds | peak GB |",
        "|---|---|---|---|---|",
        *map(line, measured),
        "",
    ]
    by = {(one.kind, one.rows): one for one in measured}
    for kind, (seconds, gigabytes) in TARGETS.items():
        if one := by.get((kind, 10**8)):
            held = "met" if one.seconds <= seconds and one.gigabytes <= gigabytes else "**missed**"
            lines.append(
                f"- 100,000,000 rollouts, {kind}: {one.seconds:.1f} s and {one.gigabytes:.1f} GB; target at most "
                f"{seconds} s and {gigabytes:g} GB ({held})."
            )
    few, many = by.get((KINDS[2], 10**6)), by.get((KINDS[2], 10**7))
    if few and many:
        time_ratio, memory_ratio = many.seconds / few.seconds, many.gigabytes / few.gigabytes
        lines.append(
            f"- JSON Lines, 10,000,000 against 1,000,000 rollouts: {time_ratio:.1f} times the time (target 10.5), "
            f"{memory_ratio:.2f} times the memory (target 1.3)."
        )
    if merged:
        lines.append(
            f"- {merged['rows']:,} rollouts of {merged['tasks']:,} tasks in {merged['parts']} Parquet files: "
            f"{merged['seconds']:.0f} s for all partials, one after another, at most {merged['part_gigabytes']:.1f} GB "
            f"each; the partials are {merged['partial_bytes'] / 1e6:,.0f} MB; `calipers merge` took "
            f"{merged['merge_seconds']:.0f} s "
            f"and {merged['merge_gigabytes']:.1f} GB (target at most 6 GB)."
        )
    return "\n".join(lines)


def picture(measured: Sequence[Measured]) -> str:
    """A plot of seconds and gigabytes against rollouts, with logarithmic axes, as SVG."""
    width, height, left, top = 360, 260, 56, 34
    colours = {"parquet, integer ids": "#2563eb", "parquet, text ids": "#d97706", "jsonl, text ids": "#059669"}
    most = max(one.rows for one in measured)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * (width + left) + 40} {height + 2 * top + 40}" '
        'font-family="system-ui, sans-serif" font-size="12" role="img" aria-label="Time and memory against rollouts">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
    ]
    panels: list[tuple[str, Callable[[Measured], float], float, float]] = [
        ("seconds", lambda one: one.seconds, 0.1, 100.0),
        ("GB", lambda one: one.gigabytes, 0.05, 10.0),
    ]
    for number, (title, value, low, high) in enumerate(panels):
        x0 = left + number * (width + left + 10)
        span = math.log10(most) - 4 or 1

        def at(rows: float, y: float, x0: int = x0, span: float = span, low: float = low, high: float = high) -> str:
            across = x0 + width * (math.log10(rows) - 4) / span
            up = top + height * (1 - (math.log10(y) - math.log10(low)) / (math.log10(high) - math.log10(low)))
            return f"{across:.1f},{up:.1f}"

        parts.append(f'<text x="{x0}" y="{top - 12}" fill="#111827">{title}</text>')
        for power in range(4, round(math.log10(most)) + 1):
            x = at(10**power, low).partition(",")[0]
            parts.append(f'<line x1="{x}" x2="{x}" y1="{top}" y2="{top + height}" stroke="#e5e7eb"/>')
            parts.append(f'<text x="{x}" y="{top + height + 18}" text-anchor="middle" fill="#374151">1e{power}</text>')
        for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1):
            y = at(10**4, 10**power).partition(",")[2]
            parts.append(f'<line x1="{x0}" x2="{x0 + width}" y1="{y}" y2="{y}" stroke="#e5e7eb"/>')
            parts.append(f'<text x="{x0 - 6}" y="{y}" text-anchor="end" fill="#374151">{10.0**power:g}</text>')
        for kind, colour in colours.items():
            points = [at(one.rows, min(max(value(one), low), high)) for one in measured if one.kind == kind]
            parts.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="2"/>')
            parts += [
                f'<circle cx="{point.partition(",")[0]}" cy="{point.partition(",")[2]}" r="3" fill="{colour}"/>'
                for point in points
            ]
    for number, (kind, colour) in enumerate(colours.items()):
        across, down = left + number * 190, height + 2 * top + 22
        parts.append(f'<rect x="{across}" y="{down - 9}" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{across + 16}" y="{down}" fill="#111827">{kind}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    main()
