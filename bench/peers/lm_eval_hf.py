"""lm-evaluation-harness 0.4.13 with its ``hf`` model: one task after the other, on a checkpoint that is loaded once."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.harness.answers import Answers, device_memory, timed
from bench.peer import Numbers, Peer, Work

PEER = Peer(
    "lm_eval_hf",
    "lm-eval 0.4.13",
    packages=("lm_eval", "transformers", "torch"),
    note="`simple_evaluate` for each task, with `--model hf`, `log_samples` and no bootstrap",
)


def prepare(
    checkpoint: str,
    folder: str,
    tasks: Sequence[str],
    answers: str,
    at_once: int | str,
    device: str = "cpu",
    dtype: str = "auto",
) -> Work:
    """Import everything, load the model and index the tasks, before the first document."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(Path(folder) / "hf")}
    evaluate = importlib.import_module("lm_eval").simple_evaluate
    model = importlib.import_module("lm_eval.models.huggingface").HFLM(
        pretrained=checkpoint, batch_size=at_once, device=device, dtype=dtype
    )
    known = importlib.import_module("lm_eval.tasks").TaskManager(include_path=folder, include_defaults=False)

    def one(name: str) -> Answers:
        found = evaluate(model, tasks=[name], task_manager=known, log_samples=True, bootstrap_iters=0)
        return {str(row["doc_id"]): [_plain(reply[0]) for reply in row["resps"]] for row in found["samples"][name]}

    def work() -> Numbers:
        figures, found = timed(tasks, one)
        Path(answers).write_text(json.dumps(found), encoding="utf-8")
        return {**figures, **device_memory(device)}

    return work


def _plain(reply: Any) -> Any:
    """A text, or a likelihood and whether it is greedy; for a whole text, lm-eval has no greedy flag."""
    if isinstance(reply, (tuple, list)):
        return [float(reply[0]), str(reply[1]) == "True"]
    return reply if isinstance(reply, str) and not _is_number(reply) else [float(reply), None]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def numbers(answer: Any) -> Numbers:
    """The seconds of each task."""
    figures: Numbers = answer
    return figures
