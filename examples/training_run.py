"""Write a simulated training run into a folder: a file of rollouts for each step.

    python3 examples/training_run.py FOLDER STEPS [STEP_OF_THE_DROP]

Every fifth step has an evaluation on the same 200 tasks; training has new prompts at each step. From the step of the
drop on, the policy is 10 points worse.
"""

import argparse
import json
import random
from pathlib import Path

parser = argparse.ArgumentParser(description="Write a simulated training run into a folder.")
parser.add_argument("folder", type=Path)
parser.add_argument("steps", type=int)
parser.add_argument("drop_at", type=int, nargs="?", help="step from which on the policy is worse; none by default")
given = parser.parse_args()

folder, steps = given.folder, given.steps
drop_at = steps if given.drop_at is None else given.drop_at
random.seed(7)
held_out = {f"held-out-{number}": random.betavariate(0.8, 0.8) for number in range(200)}


def write(split: str, step: int, chances: dict[str, float]) -> None:
    """Write the rollouts of a split at a step as JSON Lines."""
    path = folder / split / f"step_{step}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = []
    for task, chance in chances.items():
        worse = 0.1 * chance * (1 - chance) / 0.154 if step >= drop_at else 0.0
        for sample in range(4):
            reward = int(random.random() < chance - worse)
            tokens = round(random.lognormvariate(5, 0.4))
            row = {"task": task, "sample": sample, "reward": reward, "usage": {"output_tokens": tokens}}
            lines.append(json.dumps(row) + "\n")
    path.write_text("".join(lines))


for step in range(steps):
    write("train", step, {f"prompt-{step}-{number}": random.betavariate(0.8, 0.8) for number in range(64)})
    if step % 5 == 0:
        write("eval", step, held_out)
