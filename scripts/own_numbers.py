"""Print the numbers that other systems report for their own rollouts, and those of Calipers for the same files.

    python scripts/own_numbers.py

The systems' own code computed their numbers, which are in ``expected.json`` of tests/golden/formats; those of Calipers
are computed here. docs/formats.md shows the output.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import calipers

GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "formats"
POSITIVE = "threshold=1e-300"  # any reward above 0 is a pass
VERL, TRL = "verl/validation/0.jsonl", "trl/completions/completions_00002.parquet"
PRIME_RL, V0 = "prime_rl/rollouts/step_2/eval/all/traces.jsonl", "verifiers_v0/results.jsonl"
SKYRL, NEMO_RL = "skyrl/dumped_evals/global_step_20_evals/openai_gsm8k.jsonl", "nemo_rl/val_data_step10.jsonl"
OLMO, TINKER = "open_instruct/olmo_golden__1_rollouts_000000.jsonl", "tinker_cookbook/eval/gsm8k/trajectories.jsonl"
SUMMARIES = "tinker_cookbook/iteration_000000/train_rollout_summaries.jsonl"
PROMPTFOO, EVALS, INSPECT = "promptfoo/results.json", "openai_evals/log_a.jsonl", "inspect/golden_a.eval"
VERL_OWN = ("validation/0.jsonl", "own")
SKY_OWN = ("global_step_20_evals", "own")
PRIME_OWN = "step_2/eval"


@dataclass(frozen=True)
class Pair:
    """A number of another system, and our metric to compare with it."""

    system: str
    name: str  # of the system's number
    keys: tuple[str | int, ...]  # the path to it in the system's own numbers
    path: str
    metric: str
    why: str = ""  # the reason why they differ
    settings: Mapping[str, Any] = field(default_factory=dict)
    agent: str | None = None
    step: str | None = None
    words: str = ""  # a description of the metric, if its name is unclear

    def own(self) -> float:
        """The system's own number."""
        folder = self.path.partition("/")[0]
        value = json.loads((GOLDEN / folder / "expected.json").read_text(encoding="utf-8"))["own"]
        for key in self.keys:
            value = value[key]
        return float(value) / 72 if folder == "promptfoo" else float(value)  # promptfoo has the passes of 72 rows

    def ours(self) -> float:
        """The number that Calipers computes."""
        groups = calipers.score(GOLDEN / self.path, self.metric, **self.settings).groups
        groups = [group for group in groups if self.agent in (None, group.agent)]
        parts = [group.breakdowns["step"][self.step] if self.step else group for group in groups]
        zero = self.settings.get("missing") == "zero"
        counted = [part.ledger.planned - (0 if zero else part.ledger.gaps) for part in parts]
        values = [(part[self.metric].value or 0.0) * count for part, count in zip(parts, counted, strict=True)]
        return sum(values) / sum(counted)  # promptfoo's number is over all columns


ZERO, ACC = {"missing": "zero"}, {"reward": "acc"}
REPLACED, FAILED = "verl draws with replacement", "prime-rl counts failures as 0"
PAIRS = [
    Pair("verl", "acc/mean@4", (*VERL_OWN, "val/gsm/acc/mean@4"), VERL, "mean_reward", settings=ACC),
    Pair("verl", "acc/best@4/mean", (*VERL_OWN, "val/gsm/acc/best@4/mean"), VERL, "pass@4", REPLACED, ACC),
    Pair("verl", "acc/best@4/mean", (*VERL_OWN, "val/gsm/acc/best@4/mean"), VERL, "bootstrap_best@4", "", ACC),
    Pair(
        *("TRL", "rewards/accuracy_reward/mean", (0, 1, "rewards/accuracy_reward/mean"), TRL, "pooled_mean"),
        why="the file has the last of two batches",
        settings={"reward": "accuracy_reward"},
    ),
    Pair(
        *("verifiers 0.4", "mean Trace.reward, ok", ("own", "trace_reward_mean_ok")),
        *("verifiers_v1/traces.jsonl", "pooled_mean"),
    ),
    Pair("prime-rl", "all/avg@4", (PRIME_OWN, "all/solver/avg@4"), PRIME_RL, "pooled_mean", FAILED, agent="solver"),
    Pair(
        *("prime-rl", "effective/avg@4", (PRIME_OWN, "effective/solver/avg@4"), PRIME_RL, "pooled_mean"),
        agent="solver",
    ),
    Pair(
        *("prime-rl", "effective/pass@4", (PRIME_OWN, "effective/solver/pass@4"), PRIME_RL, "pass@4"),
        agent="solver",
    ),
    Pair("verifiers 0.1.14", "avg_reward", ("avg_reward",), V0, "pooled_mean", "verifiers counts errors as 0"),
    Pair("verifiers 0.1.14", "avg_reward", ("avg_reward",), V0, "pooled_mean", settings=ZERO),
    Pair("verifiers 0.1.14", "pass_at_k 2", ("pass_at_k", "2"), V0, "pass@2(threshold=0.5)", settings=ZERO),
    Pair("verifiers 0.1.8", "avg_reward", ("avg_reward",), "verifiers_v0_old/results.jsonl", "pooled_mean"),
    Pair(
        *("SkyRL", "avg_score", (*SKY_OWN, "eval/openai_gsm8k/avg_score"), SKYRL, "pooled_mean"),
        settings={"reward": "score"},
    ),
    Pair(
        *("SkyRL", "pass_at_4", (*SKY_OWN, "eval/openai_gsm8k/pass_at_4"), SKYRL, f"pass@4({POSITIVE})"),
        settings={"reward": "last_token_score"},
        words="pass@4, last_token_score > 0",
    ),
    Pair("NeMo-RL", "accuracy", ("val_data_step10.jsonl", "own", "accuracy"), NEMO_RL, "pooled_mean"),
    Pair(
        *("NeMo-RL", "pass_k", ("val_data_step10.jsonl", "own", "pass_k"), NEMO_RL, f"pass@4({POSITIVE})"),
        words="pass@4, rewards > 0",
    ),
    Pair(
        *("open-instruct", "mean score, step 1", (OLMO.partition("/")[2], "own", "step 1: mean score"), OLMO),
        *("pooled_mean", ""),
        step="1",
        words="pooled_mean, step 1",
    ),
    Pair(
        *("tinker", "score", (TINKER.partition("/")[2], "own", "score"), TINKER, f"pass_rate({POSITIVE})"),
        settings=ZERO,
        words="pass_rate, rewards > 0",
    ),
    Pair(
        *("tinker", "reward/total", (SUMMARIES.partition("/")[2], "own", "env/all/reward/total"), SUMMARIES),
        *("pooled_mean", ""),
        settings={"reward": "total_reward"},
    ),
    Pair(
        *("promptfoo", "pass rate", ("successes",), PROMPTFOO, "pass_rate", "promptfoo counts errors as failures"),
        settings={"reward": "pass"},
    ),
    Pair("promptfoo", "pass rate", ("successes",), PROMPTFOO, "pass_rate", settings={"reward": "pass", **ZERO}),
    Pair("OpenAI evals", "accuracy", ("accuracy",), EVALS, "pass_rate"),
    Pair(
        *("inspect", "includes/accuracy", ("scores", "includes", "accuracy"), INSPECT, "mean_reward"),
        settings={"reward": "includes"},
    ),
    Pair(
        *("Every Eval Ever", "includes:accuracy", ("includes:accuracy", "score"), "every_eval_ever/data"),
        *("mean_reward", ""),
        settings={"reward": "includes:accuracy"},
    ),
]


def table(cells: Sequence[Sequence[str]]) -> str:
    """Rows of cells as text in aligned columns."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


def main() -> None:
    """Print the table."""
    cells = [("system", "its number", "value", "ours", "value", "why they differ")]
    for pair in PAIRS:
        ours = (pair.words or pair.metric) + (", missing 0" if pair.settings.get("missing") else "")
        cells.append((pair.system, pair.name, f"{pair.own():.4f}", ours, f"{pair.ours():.4f}", pair.why))
    print(table(cells))


if __name__ == "__main__":
    main()
