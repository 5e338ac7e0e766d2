"""Measure how fast the files of other systems are read, compared with our own JSON Lines of the same content.

    python bench/formats.py

Each file repeats the rows of a golden file with new ids; our file has each of them under ``metadata`` of a record. Both
are read in this process, alternating, and the best of ten counts: bytes per second of processor time.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from calipers.formats import lines
from calipers.formats.read import read

GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "formats"
SIZE = 30 << 20  # bytes
TURNS = 10
TOKENS = list(range(2000))
Change = Callable[[dict[str, Any], int], Any]


def _verifiers(row: dict[str, Any], at: int, tokens: bool = False) -> None:
    row["id"], row["task"]["key"] = f"e{at}", f"k{at // 4}"
    for number, trace in enumerate(row["traces"]):
        trace["id"] = uuid5(NAMESPACE_OID, f"{at}-{number}").hex  # as verifiers writes ids
        if tokens:
            trace["nodes"][-1].update(token_ids=TOKENS, logprobs=[-0.25] * len(TOKENS))


def _promptfoo(row: dict[str, Any], at: int) -> None:
    row.update(id=str(at), testIdx=at)
    row["vars"]["q"] = str(at // 12)


FILES: dict[str, tuple[str, Change]] = {
    "verl": ("verl/validation/0.jsonl", lambda row, at: row.update(input=f"user\nWhat is {at // 4}?\nassistant\n")),
    "verifiers": ("prime_rl/rollouts/step_2/eval/all/traces.jsonl", _verifiers),
    "verifiers, with token ids": (
        "prime_rl/rollouts/step_2/eval/all/traces.jsonl",
        lambda row, at: _verifiers(row, at, tokens=True),
    ),
    "verifiers_v0": ("verifiers_v0/results.jsonl", lambda row, at: row.update(example_id=at // 4)),
    "skyrl": (
        "skyrl/dumped_evals/global_step_10_evals/openai_gsm8k.jsonl",
        lambda row, at: row.update(input_prompt=f"Q{at // 4}"),
    ),
    "skyrl, with token scores": (
        "skyrl/dumped_evals/global_step_10_evals/openai_gsm8k.jsonl",
        lambda row, at: row.update(input_prompt=f"Q{at // 4}", score=[0.0] * 400 + [float(at % 2)]),
    ),
    "nemo_rl": ("nemo_rl/val_data_step0.jsonl", lambda row, at: row["content"][0][0].update(content=f"Q{at // 4}")),
    "nemo_rl, with token ids": (
        "nemo_rl/train_data_step1.jsonl",
        lambda row, at: row.update(content=[[f"Q{at // 4}", "A"]], token_ids=[TOKENS], advantages=[TOKENS]),
    ),
    "open_instruct": (
        "open_instruct/olmo_golden__1_rollouts_000000.jsonl",
        lambda row, at: row.update(prompt_tokens=[at // 4, *TOKENS[:100]], response_tokens=TOKENS[:400]),
    ),
    "tinker_eval": (
        "tinker_cookbook/eval/gsm8k/trajectories.jsonl",
        lambda row, at: row.update(example_id=str(at // 4)),
    ),
    "tinker_rl": (
        "tinker_cookbook/iteration_000000/train_rollout_summaries.jsonl",
        lambda row, at: row.update(group_idx=at // 4, traj_idx=at % 4),
    ),
    "promptfoo": ("promptfoo/results.jsonl", _promptfoo),
    "openai_evals": (
        "openai_evals/log_a.jsonl",
        lambda row, at: row.update(sample_id=f"s.{at // 2}") if "sample_id" in row else None,
    ),
    "every_eval_ever": (
        "every_eval_ever/data/modes/acme/tiny-1/e007019b-2397-45d6-9b84-e1c74846c385_samples.jsonl",
        lambda row, at: row.update(sample_id=f"q{at // 9}"),
    ),
}


def written(folder: Path, golden: str, change: Change) -> tuple[Path, Path]:
    """Write a file of the system and one of ours with the same rows."""
    rows = (GOLDEN / golden).read_text(encoding="utf-8").splitlines()
    theirs, ours = folder / "theirs.jsonl", folder / "ours.jsonl"
    size = at = 0
    with theirs.open("w") as first, ours.open("w") as second:
        while size < SIZE:
            row = json.loads(rows[at % len(rows)])
            change(row, at)
            line = json.dumps(row)
            size += len(line)
            record = {"task": str(at // 4), "sample": at % 4, "reward": 0.5, "rewards": {"a": 1.0}, "model": "m"}
            first.write(line + "\n")
            second.write(json.dumps({**record, "metadata": row}) + "\n")
            at += 1
    return theirs, ours


def rate(path: Path) -> float:
    """Megabytes per second of processor time."""
    begun = time.process_time()
    read([str(path)])
    return path.stat().st_size / (time.process_time() - begun) / 1e6


def main() -> None:
    """Measure every reader and print a line for each."""
    lines.WORTH_DIVIDING = 1 << 60  # a file is read by one process, because the readers are compared
    print(f"{'format':<26} {'MB/s':>6} {'ours':>6} {'ratio':>6}")
    for name, (golden, change) in FILES.items():
        with tempfile.TemporaryDirectory() as folder:
            theirs, ours = written(Path(folder), golden, change)
            pairs = [(rate(theirs), rate(ours)) for _ in range(TURNS)]
        best, own = (max(rates) for rates in zip(*pairs, strict=True))
        print(f"{name:<26} {best:>6.0f} {own:>6.0f} {best / own:>6.2f}", flush=True)


if __name__ == "__main__":
    main()
