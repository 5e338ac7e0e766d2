"""inspect_ai 0.3.285: a whole ``eval`` of questions in memory, with its log on disk."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from bench.peer import Numbers, Peer, Work

PEER = Peer(
    "inspect_ai",
    "inspect_ai 0.3.285",
    packages=("inspect_ai", "openai"),
    requirement="inspect_ai==0.3.285 openai==3.49.0",
    note="`eval` with the `openai` provider, `generate()`, the scorer `exact()` and no display",
)


def prepare(url: str, questions: str, workers: int) -> Work:
    """One task and one model, as its documentation shows it."""
    folder = tempfile.mkdtemp(prefix="calipers-bench-")
    os.environ |= {"INSPECT_LOG_DIR": folder, "XDG_DATA_HOME": folder, "XDG_CACHE_HOME": folder}
    inspect, dataset = importlib.import_module("inspect_ai"), importlib.import_module("inspect_ai.dataset")
    scorer, solver = importlib.import_module("inspect_ai.scorer"), importlib.import_module("inspect_ai.solver")
    model = importlib.import_module("inspect_ai.model")

    def work() -> tuple[Any, str]:
        lines = map(json.loads, Path(questions).read_text(encoding="utf-8").splitlines())
        samples = [dataset.Sample(input=line["question"], target=line["target"]) for line in lines]
        task = inspect.Task(dataset=samples, solver=solver.generate(), scorer=scorer.exact())
        served = model.get_model("openai/fixed", base_url=url, api_key="none", responses_api=False)
        return inspect.eval(task, model=served, max_connections=workers, display="none", log_dir=folder)[0], folder

    return work


def numbers(answer: Any) -> Numbers:
    """The share of correct answers; then the folder of its log is removed."""
    log, folder = answer
    shutil.rmtree(folder, ignore_errors=True)
    if log.status != "success":
        raise RuntimeError(f"inspect_ai ended with {log.status}: {log.error}")
    return {"mean_reward": log.results.scores[0].metrics["mean"].value}
