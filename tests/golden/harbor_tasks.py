"""Harbor's tasks and datasets: rewards that tests leave, steps, retries, digests, trajectories, metric scripts."""

from __future__ import annotations

from pathlib import Path

import msgspec

from calipers.errors import InputError
from calipers.systems.harbor.dataset import select
from calipers.systems.harbor.manifest import manifest_digest, task_digest, task_files
from calipers.systems.harbor.metric_script import output_of, source_of
from calipers.systems.harbor.registry import pick_version
from calipers.systems.harbor.rewards import Graded, Unrewarded, misses_minimum, read_rewards, trial_rewards
from calipers.systems.harbor.trajectory import decode_trajectory, usage_by_model
from calipers.systems.harbor.trials.job import Retry


def reward_file(vector):
    files = {name: text.encode() for name, text in vector["input"]["files"].items()}
    found, expected = read_rewards(files), vector["expected"]
    if isinstance(found, Unrewarded):
        return {"error": found.kind}, {"error": expected["error"]["type"]} if "error" in expected else expected
    return found, expected


def multi_step(vector):
    asked = vector["input"]
    steps = [Graded(step["rewards"]) if "rewards" in step else None for step in asked["steps"]]
    return trial_rewards(steps, asked.get("strategy")), vector["expected"]


def min_reward(vector):
    return misses_minimum(vector["input"]["rewards"], vector["input"]["min_reward"]), vector["expected"]


def retry(vector):
    asked = vector["input"]
    settings = Retry(**asked["config"])
    found = {
        "retry": settings.worthwhile(asked["exception_type"]),
        "backoff_sec": [settings.seconds(attempt) for attempt in range(asked.get("n_backoffs", 4))],
    }
    return found, vector["expected"]


def resolve_version(vector):
    return pick_version(vector["input"]["versions"]), vector["expected"]


def task_filter(vector):
    asked = vector["input"]
    wanted = (asked.get(name) or () for name in ("task_names", "exclude_task_names"))
    return select(asked["names"], *wanted, asked.get("n_tasks")), vector["expected"]


def manifest_hash(vector):
    asked = vector["input"]
    files = {file["path"]: file["digest"] for file in asked.get("files") or ()}
    return manifest_digest([task["digest"] for task in asked["tasks"]], files), vector["expected"]


def task_hash(vector):
    root = Path("task")
    for name, text in vector["input"]["files"].items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, newline="")
    return {"digest": task_digest(root), "files": task_files(root)}, vector["expected"]


def atif_validate(vector):
    try:
        decode_trajectory(vector["input"]["trajectory"])
    except InputError:
        return {"valid": False}, vector["expected"]
    return {"valid": True}, vector["expected"]


def model_usage(vector):
    used = usage_by_model(decode_trajectory(vector["input"]["trajectory"]))
    return msgspec.to_builtins(used), vector["expected"]


def uv_script(vector):
    script = Path("metric.py")
    if vector["input"]["script"] is not None:
        script.write_text(vector["input"]["script"])
    return output_of(source_of(script), vector["input"]["rewards"]), vector["expected"]


ADAPTERS = {
    "atif_validate": atif_validate,
    "manifest_hash": manifest_hash,
    "min_reward": min_reward,
    "model_usage": model_usage,
    "multi_step": multi_step,
    "resolve_version": resolve_version,
    "retry": retry,
    "reward_file": reward_file,
    "task_filter": task_filter,
    "task_hash": task_hash,
    "uv_script": uv_script,
}
