"""Runs that a rule stops. A file sets the speed of the model, because rules are checked four times a second."""

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
    """A model that answers about this share of the sums correctly, always the same ones."""
    (folder / name).write_text(MODEL.replace("SHARE", str(share)))
    return f"python/{folder}/{name}:answer"


def job(folder: Path, **more: Any) -> Job:
    """A job with the sums of a folder, which are written if they do not exist."""
    home = folder / "sums"
    benchmark = str(home) if home.exists() else sums(folder, TASKS)
    given = {"concurrency": 4, "metrics": ("mean_reward", "pass@1"), "out": folder / "run", **more}
    return Job(benchmark, given.pop("model", None) or model(folder), **given)


def stopped(folder: Path, **more: Any) -> Report:
    """A run that its rule has stopped; afterwards, the model is fast."""
    (folder / "slow").touch()
    report = perform(job(folder, **{"until": RULE, **more}))
    (folder / "slow").unlink()
    return report


def main() -> None:
    """The folder, the model and the rule of a run in its own process."""
    folder, spec, rule = sys.argv[1:]
    perform(job(Path(folder), model=spec, until=rule))
