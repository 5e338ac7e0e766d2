"""``make bench-gpu``: a model with 1.1 billion weights on an accelerator, in lm-evaluation-harness and in Calipers.

It runs the six tasks of ``make bench-lm-eval`` with ten times the documents, and prints a table. ``--exact`` also
compares the answers of both with those of the same weights in 32 bits. ``--write`` puts the result into
docs/benchmarks-lm-eval.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent))

from bench.harness.answers import CLOSE, Answers
from bench.harness.tasks import Made, write_tasks
from bench.measure import Entry, Timing, once
from bench.peers import calipers_hf, lm_eval_hf

SCALE = 10  # factor for the documents of `make bench-lm-eval`
IN_PROCESS = 2048  # default number of calls in flight
PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks-lm-eval.md"
HEADING = "## On a GPU"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every side once, and print the table."""
    parser = argparse.ArgumentParser(prog="bench/gpu_run.py", description=__doc__)
    parser.add_argument("--theirs", default=sys.executable, metavar="PYTHON", help="an interpreter with lm_eval 0.4.13")
    parser.add_argument("--batches", default="64,auto", help="batch sizes of lm-eval (default: %(default)s)")
    parser.add_argument("--scale", type=float, default=SCALE, help="times the documents (default: %(default)s)")
    parser.add_argument("--exact", action="store_true", help="also compare all answers in 32 bits")
    parser.add_argument("--write", action="store_true", help="put the table into the docs")
    asked = parser.parse_args(arguments)
    device = accelerator()
    if device is None:
        print("no accelerator: torch sees none on this machine")
        return 0
    with tempfile.TemporaryDirectory(prefix="calipers-bench-") as scratch:
        folder = Path(scratch)
        made = write_tasks(folder, asked.scale)
        maker = Path(__file__).with_name("lm_eval_checkpoint.py")
        subprocess.run([sys.executable, str(maker), str(folder / "checkpoint"), "large"], check=True)
        sides: list[tuple[str, Any, str, int | str]] = [("Calipers", calipers_hf.PEER, sys.executable, IN_PROCESS)]
        for size in filter(None, asked.batches.split(",")):
            at_once = int(size) if size.isdecimal() else size
            sides += [(f"lm-eval, batch {size}", lm_eval_hf.PEER, asked.theirs, at_once)]
        timings, answers = {}, {}
        for title, peer, python, at_once in sides:
            timings[title], answers[title] = measured(folder, made, peer, python, at_once, "bfloat16")
        text = table(made, timings)
        if asked.exact:
            exact = {}
            for title, peer, python, at_once in sides[:2]:
                _, exact[title] = measured(folder, made, peer, python, at_once, "float32")
            text += agreement(exact, answers)
    text = f"{HEADING}\n\n{about(device, timings)}\n\n{text}"
    print(text)
    if asked.write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(f"\n{HEADING}\n")
        _, found, after = rest.partition("\n## ")
        PAGE.write_text(f"{before.rstrip()}\n\n{text.rstrip()}\n{found and chr(10) + '## ' + after}", encoding="utf-8")
    return 0


def accelerator() -> str | None:
    """The name of the accelerator that torch sees, if any."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def measured(
    folder: Path, tasks: Sequence[Made], peer: Any, python: str, at_once: int | str, dtype: str
) -> tuple[Timing, Mapping[str, Answers]]:
    """Run one side; returns its times and its answers."""
    path = folder / "answers.json"
    settings = {"checkpoint": str(folder / "checkpoint"), "folder": str(folder), "tasks": [task.name for task in tasks]}
    asked = {**settings, "answers": str(path), "at_once": at_once, "device": "cuda", "dtype": dtype}
    timing = once(python, Entry(peer, asked))
    print(f"  {peer.title}, {at_once}, {dtype}: {timing.seconds:.1f} s", file=sys.stderr, flush=True)
    return timing, json.loads(path.read_text(encoding="utf-8"))


def about(device: str, timings: Mapping[str, Timing]) -> str:
    """A sentence about the measurement: machine, model and versions."""
    versions = {name: version for timing in timings.values() for name, version in timing.versions.items()}
    listed = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    return (
        f"`make bench-gpu` on one {device}: a llama of 1.1 billion weights by lot in bfloat16, the same tasks with ten "
        f"times the documents, one run of each side; seconds by the clock. {listed}."
    )


def table(tasks: Sequence[Made], timings: Mapping[str, Timing]) -> str:
    """A table with the seconds of each task on each side, and the peak of the device's memory."""
    lines = ["| seconds | " + " | ".join(timings) + " |", "|---" * (len(timings) + 1) + "|"]
    for task in tasks:
        cells = [f"{timing.numbers[f'{task.name} clock']:.1f}" for timing in timings.values()]
        lines.append(f"| {task.name} ({len(task.docs):,} documents) | " + " | ".join(cells) + " |")
    sums = [sum(timing.numbers[f"{task.name} clock"] for task in tasks) for timing in timings.values()]
    lines.append("| all | " + " | ".join(f"{each:.1f}" for each in sums) + " |")
    peaks = [f"{timing.numbers['device GB']:.1f}" for timing in timings.values()]
    return "\n".join([*lines, "| peak memory, GB | " + " | ".join(peaks) + " |", ""])


def agreement(exact: Mapping[str, Any], answers: Mapping[str, Any]) -> str:
    """Compare answers with those in 32 bits: first ours and lm-eval's in 32 bits, then each side's in 16 bits."""
    (_, ours), (other, theirs) = exact.items()
    parts = [
        f"In float32 the log-likelihoods of both sides differ by at most {worst(ours, theirs):.0e} (relative to "
        f"max(1, |x|); {CLOSE:.0e} is allowed), and {same_texts(ours, theirs)}."
    ]
    for title in ("Calipers", other):
        low = answers[title]
        parts.append(
            f"In bfloat16 the log-likelihoods of {title} lie {typical(low, theirs):.4f} from lm-eval's float32 in the "
            f"median, {worst(low, theirs):.2f} at most."
        )
    return "\n" + " ".join(parts) + "\n"


def differences(first: Mapping[str, Answers], second: Mapping[str, Answers]) -> list[float]:
    """The relative differences of all log-likelihoods."""
    return [
        abs(mine[0] - other[0]) / max(1.0, abs(other[0]))
        for task, documents in second.items()
        for doc, replies in documents.items()
        for mine, other in zip(first[task][doc], replies, strict=True)
        if not isinstance(other, str)
    ]


def worst(first: Mapping[str, Answers], second: Mapping[str, Answers]) -> float:
    """The largest difference of two log-likelihoods."""
    return max(differences(first, second))


def typical(first: Mapping[str, Answers], second: Mapping[str, Answers]) -> float:
    """The median difference of two log-likelihoods."""
    return statistics.median(differences(first, second))


def same_texts(first: Mapping[str, Answers], second: Mapping[str, Answers]) -> str:
    """The number of generated answers that are the same."""
    pairs = [
        (mine, other)
        for task, documents in second.items()
        for doc, replies in documents.items()
        for mine, other in zip(first[task][doc], replies, strict=True)
        if isinstance(other, str)
    ]
    return f"{sum(mine == other for mine, other in pairs):,} of {len(pairs):,} written answers are the same"


if __name__ == "__main__":
    sys.exit(main())
