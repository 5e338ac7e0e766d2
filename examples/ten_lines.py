"""Ten lines of Python: rollouts in, numbers you can defend out."""

import calipers as cal

result = cal.score("src/calipers/examples/arith.jsonl", ["pass@1", "pass@4", "mean_reward"], by=["difficulty"])
for name, estimate in result.groups[0].metrics.items():
    low, high = estimate.interval
    print(f"{name:12} {estimate.value:.3f}   95% [{low:.3f}, {high:.3f}]   {estimate.tasks} tasks")
print(result.groups[0].ledger.outcomes)
print("hard:", result.groups[0].breakdowns["difficulty"]["hard"]["pass@4"].value)
print(result.digest[:23])
