"""Results made by hand, for tests of their presentation."""

from __future__ import annotations

from typing import Any

from calipers.formats.read import Input
from calipers.reports.result import Group, Result, Slice
from calipers.rollouts.ledger import Ledger
from calipers.stats.estimate import Estimate, Signature
from calipers.stats.suite import Means, SuiteMeans
from calipers.stats.variance import Split

HOSTILE = "evil\x1b[31m\x07\x9b2J\u202e\u2066\nline\ttab\x7f"
HARMFUL = "\x1b\x07\x9b\u202e\u2066\x7f\r"


def estimate(value: float | None = 0.75, **more: Any) -> Estimate:
    """An estimate of pass@3 in which every field is set."""
    fields: dict[str, Any] = {
        "stderr": 0.25,
        "interval": (0.3, 0.95),
        "method": "wilson",
        "tasks": 4,
        "samples": 12,
        "undefined_tasks": 0,
        "bounds": None,
        "higher_is_better": True,
        "why": None,
        "signature": "pass@{k}|k:3|threshold:1.0|dialect:native",
    }
    fields.update(more)
    metric, *settings = fields.pop("signature").split("|")
    ks = [int(part[2:]) for part in settings if part.startswith("k:")]
    return Estimate(value=value, made=Signature(metric, *ks, settings=tuple(settings)), **fields)


def ledger(**more: Any) -> Ledger:
    """Twelve rollouts of four tasks, two of which are gaps."""
    outcomes = {"scored": 9, "refused": 1, "client_failed": 2}
    fields = {"planned": 12, "planned_from": "rows", "tasks": 4, "scored": 9, "gaps": 2, "attempts": 12}
    return Ledger(**{**fields, "outcomes": outcomes, **more})


def group(metrics: dict[str, Estimate] | None = None, **more: Any) -> Group:
    """A group with one metric."""
    return Group(**{"ledger": ledger(), "metrics": metrics or {"pass@3": estimate()}, **more})


def result(*groups: Group, **more: Any) -> Result:
    """A result of some groups."""
    fields: dict[str, Any] = {"dialect": "native", "missing": "gap", "confidence": 0.95, "seed": 0}
    inputs = [Input("rollouts.jsonl", "native", "0" * 64, 12)]
    return Result(**{**fields, "inputs": inputs, "groups": groups or [group()], **more})


def hostile() -> Result:
    """A result in which every name that comes from a file is an attack."""
    parts = {HOSTILE: Slice(ledger(), {"pass@3": estimate(), HOSTILE: estimate()})}
    names = {"dataset": HOSTILE, "model": HOSTILE, "agent": HOSTILE}
    mean = estimate(signature="mean_reward|reward:reward")
    metrics = {"pass@3": estimate(), HOSTILE: estimate(), "mean_reward": mean}
    divided = {HOSTILE: Split(1, 1, 2), "reward": Split(1, 0, 2)}
    rest = {"breakdowns": {HOSTILE: parts}, "economics": metrics, "totals": {HOSTILE: 1.0}, "variance": divided}
    made = group(metrics, **rest, **names)
    why = f"no value on {HOSTILE!r}"
    over = SuiteMeans(HOSTILE, HOSTILE, [HOSTILE, "b"], {HOSTILE: Means(estimate(), estimate(None, why=why))})
    return result(made, inputs=[Input(HOSTILE, "native", "0" * 64, 12)], suites=[over])
