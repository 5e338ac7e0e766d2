"""Runs that a rule stops, for tests: a model whose speed a file decides, as rules look at a run four times a second."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from running.scene import sums

from calipers.running import Job
from calipers.running.perform import Report, perform

TASKS = 1_500
RULE = "lower(pass@1) > 0.5"
MODEL = """
import asyncio, hashlib, re
from pathlib import Path

HERE, CALLS = Path(__file__).parent, []

async def answer(prompt):
    a, b = map(int, re.findall(r"\\d+", prompt)[:2])
    CALLS.append(prompt)
    if (HERE / "slow").exists():
        await asyncio.sleep(0.002)
    hangs = HERE / "hangs"
    if hangs.exists() and len(CALLS) > int(hangs.read_text()):
        await asyncio.sleep(1_000)
    return str(a + b) if hashlib.sha256(prompt.encode()).digest()[0] < SHARE * 256 else "no"
"""


def model(folder: Path, share: float = 0.7, name: str = "model.py") -> str:
    """A model that answers about this share of the sums right, always the same ones."""
    (folder / name).write_text(MODEL.replace("SHARE", str(share)))
    return f"python/{folder}/{name}:answer"


def job(folder: Path, **more: Any) -> Job:
    """A job over the sums of a folder, which are made where they are not there."""
    home = folder / "sums"
    benchmark = str(home) if home.exists() else sums(folder, TASKS)
    given = {"concurrency": 4, "metrics": ("mean_reward", "pass@1"), "out": folder / "run", **more}
    return Job(benchmark, given.pop("model", None) or model(folder), **given)


def stopped(folder: Path, **more: Any) -> Report:
    """A run that its rule stopped; after it the model is quick."""
    (folder / "slow").touch()
    report = perform(job(folder, **{"until": RULE, **more}))
    (folder / "slow").unlink()
    return report


def main() -> None:
    """A run in a process of its own: its folder, its model and its rule."""
    folder, spec, rule = sys.argv[1:]
    perform(job(Path(folder), model=spec, until=rule))
