"""A whole ``calipers run``, from the benchmark's directory to the table and its result.json."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.peer import Numbers, Peer, Work

PEER = Peer("calipers_run", "`calipers run`", packages=("calipers", "aiohttp", "msgspec"))


def prepare(url: str, benchmark: str, workers: int, samples: int = 1) -> Work:
    """The command as a user types it; its imports are measured, too."""
    from calipers.cli import main

    folder = tempfile.mkdtemp(prefix="calipers-bench-")
    os.environ.pop("OPENAI_API_KEY", None)
    command = [
        "calipers",
        "run",
        benchmark,
        "--model",
        "openai/fixed",
        "--base-url",
        url,
        "--concurrency",
        str(workers),
    ]
    command += ["--max-tokens", "16", "--temperature", "0", "--samples", str(samples), "--out", f"{folder}/run"]

    def work() -> Path:
        sys.argv = command
        try:
            main()
        except SystemExit as end:
            if end.code:
                raise RuntimeError(f"calipers run ended with {end.code}") from end
        return Path(folder)

    return work


def numbers(answer: Any) -> Numbers:
    """The mean reward, from the run's own result; then its folder is removed."""
    result = json.loads((answer / "run" / "result.json").read_text(encoding="utf-8"))
    shutil.rmtree(answer)
    return {"mean_reward": result["groups"][0]["metrics"]["mean_reward"]["value"]}
