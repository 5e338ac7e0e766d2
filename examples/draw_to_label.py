"""Draw rollouts of a run at random, for people to label: a CSV file with an empty column `label`.

python examples/draw_to_label.py RUN_FOLDER NUMBER > labels.csv
"""

import csv
import json
import random
import sys
from pathlib import Path

folder, number = Path(sys.argv[1]), int(sys.argv[2])
rows = [json.loads(line) for line in (folder / "rollouts.jsonl").read_text(encoding="utf-8").splitlines()]
graded = sorted((row["task"], row["sample"], row["prompt"], row["completion"]) for row in rows if "reward" in row)
table = csv.writer(sys.stdout, lineterminator="\n")
table.writerow(["task", "sample", "prompt", "completion", "label"])
for rollout in sorted(random.Random(0).sample(graded, number)):
    table.writerow([*rollout, ""])
