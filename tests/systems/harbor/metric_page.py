"""The script of Harbor's Metrics page, and a helper that writes other scripts."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

PAGE = """\
# /// script
# dependencies = []
# ///
# To add a dependency: uv add --script metric.py <dependency>

import argparse
import json
from pathlib import Path


def main(input_path: Path, output_path: Path):
    rewards = []

    for line in input_path.read_text().splitlines():
        reward = json.loads(line)
        if reward is None:
            rewards.append(0)
        elif len(reward) != 1:
            raise ValueError(
                f"Expected exactly one key in reward dictionary, got {len(reward)}"
            )
        else:
            rewards.extend(reward.values())

    mean = sum(rewards) / len(rewards) if rewards else 0

    output_path.write_text(json.dumps({"mean": mean}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "-i",
        "--input-path",
        type=Path,
        required=True,
        help="Path to a jsonl file containing rewards, one json object per line.",
    )
    parser.add_argument(
        "-o",
        "--output-path",
        type=Path,
        required=True,
        help="Path to a json file where the metric will be written as a json object.",
    )
    args = parser.parse_args()
    main(args.input_path, args.output_path)
"""
"""The script as the page prints it."""

OPEN = """
import json, os, sys, time
source, target = sys.argv[sys.argv.index("-i") + 1], sys.argv[sys.argv.index("-o") + 1]
def leave(value):
    with open(target, "w") as file:
        json.dump(value, file)
"""


def put(folder: Path, code: str, name: str = "metric.py") -> Path:
    """Write a script whose code may call ``leave(VALUE)`` to write its output."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(OPEN + dedent(code))
    return path
