"""Score and compare the rows of a DataFrame."""

import polars as pl  # a pandas DataFrame works the same

import calipers

frame = pl.read_csv("examples/twenty_models.csv", new_columns=["question", "system", "correct"])  # your frame
columns = {"task": "question", "model": "system", "reward": "correct"}  # Calipers' columns -> yours

old = frame.filter(pl.col("system") == "model-07")
new = frame.filter(pl.col("system") == "model-03")
print(calipers.score(new, "mean_reward", columns=columns))

difference = calipers.compare(old, new, metrics="mean_reward", columns=columns)["mean_reward"]
low, high = difference.interval
print(f"\nmodel-03 is {difference.verdict} by {difference.delta:.3f}, 95 % interval {low:.3f} to {high:.3f}")
