"""Draw rollouts of a run at random, for people to label: a CSV file with an empty column `label`.

python examples/draw_to_label.py RUN_FOLDER NUMBER > labels.csv
"""

import argparse
import csv
import json
import random
import sys
from pathlib import Path

parser = argparse.ArgumentParser(description="Draw graded rollouts at random, as CSV with an empty column label.")
parser.add_argument("folder", type=Path, help="run folder")
parser.add_argument("number", type=int, help="how many rollouts; all of them if there are fewer")
given = parser.parse_args()

try:
    lines = (given.folder / "rollouts.jsonl").read_text(encoding="utf-8").splitlines()
except OSError as error:
    parser.error(f"{error.filename}: {error.strerror}")
rows = [json.loads(line) for line in lines]
graded = sorted((row["task"], row["sample"], row["prompt"], row["completion"]) for row in rows if "reward" in row)
table = csv.writer(sys.stdout, lineterminator="\n")
table.writerow(["task", "sample", "prompt", "completion", "label"])
for rollout in sorted(random.Random(0).sample(graded, min(given.number, len(graded)))):
    table.writerow([*rollout, ""])
