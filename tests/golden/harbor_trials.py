"""Harbor's sums over trials: metrics, pass@k, job statistics, whole jobs."""

from __future__ import annotations

import json
from pathlib import Path

from calipers.systems.harbor.job_result import EvalCounts, aggregate, load_job_result, read_job
from calipers.systems.harbor.metrics import Tally, eligible_ks, evals_key, ladders, metric, pass_at_k_ladder
from calipers.systems.harbor.wire import (
    deciding_exception,
    decode_trial,
    failure_cause,
    primary_reward,
    reward_valid,
    totals,
)


def metrics(vector):
    asked = vector["input"]
    return metric(asked["metric"], asked["rewards"]), vector["expected"]


def ladder(vector):
    found = {
        key: {str(k): value for k, value in steps.items()}
        for key, steps in ladders(trials(vector["input"]["trials"])).items()
    }
    return found, vector["expected"]


def one_task(vector):
    asked = vector["input"]
    return pass_at_k_ladder(asked["n"], asked["c"], asked["k"]), vector["expected"]


def eligible(vector):
    return eligible_ks(vector["input"]["max_k"]), vector["expected"]


def job_stats(vector):
    asked = vector["input"]
    return by_name(Tally(trials(asked["trials"])).to_dict(**counts(asked)), vector)


def job_stats_updates(vector):
    tally = Tally()
    for update in vector["input"]["updates"]:
        if update.get("previous"):
            tally.remove(trial(update["previous"]))
        if update["op"] == "remove":
            tally.remove(trial(update["trial"]))
        else:
            tally.add(trial(update["trial"]))
    return by_name(tally.to_dict(**counts(vector["input"])), vector)


def aggregated(vector):
    asked = vector["input"]
    found = aggregate(trials(asked["trials"]), names(asked), EvalCounts(**counts(asked)), by_last_part=True)
    return by_name(found, vector)


def job_dir(vector):
    asked = vector["input"]
    job = read_job(str(Path(vector["folder"], asked["path"])))
    total = asked.get("n_total_trials", job.counts.total)
    retries = asked.get("n_retries", job.counts.retries)
    counted = EvalCounts(total, asked.get("n_running_trials", 0), retries)
    wanted = (
        names(asked) if "metrics" in asked else dict.fromkeys((one.source or "adhoc" for one in job.trials), job.names)
    )
    stats = aggregate(job.trials, wanted, counted, by_last_part=True)
    return by_name({"n_total_trials": total, "stats": stats}, vector)


def loaded(vector):
    return load_job_result(vector["input"]["result_json"]), vector["expected"]


def key(vector):
    asked = vector["input"]
    return evals_key(asked["agent"], asked.get("model"), asked["dataset"]), vector["expected"]


def props(vector):
    one = trial(vector["input"]["trial"])
    found = {
        "failure_cause": failure_cause(deciding_exception(one)),
        "reward_valid": reward_valid(one),
        "primary_reward": primary_reward(one),
        **totals(one)._asdict(),
    }
    return found, vector["expected"]


def names(asked):
    return {dataset: [entry.get("type", "mean") for entry in entries] for dataset, entries in asked["metrics"].items()}


def counts(asked):
    return {name: asked.get(f"n_{name}", asked.get(f"n_{name}_trials", 0)) for name in ("total", "running", "retries")}


def by_name(found, vector):
    """Both sides with sorted lists of trials, because the order in which trials end does not matter."""
    return sorted_names(found), sorted_names(vector["expected"])


def sorted_names(value):
    if isinstance(value, dict):
        return {name: sorted_names(inner) for name, inner in value.items()}
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return sorted(value)
    return value


def trials(some):
    return [trial(one) for one in some]


def trial(short):
    """The trial of a vector, decoded from a result.json."""
    model = short.get("model")
    document = {
        "task_name": short["task"],
        "trial_name": short.get("trial", short["task"]),
        "source": short.get("source"),
        "agent_info": {"name": short.get("agent", "a1"), "version": "1", "model_info": model and {"name": model}},
        **ended(short),
        "step_results": [{"step_name": step.get("step", ""), **ended(step)} for step in short["steps"]]
        if short.get("steps") is not None
        else None,
    }
    return decode_trial(json.dumps(document).encode(), short["task"])


def ended(short):
    exception = short.get("exception_type")
    return {
        "agent_result": short.get("agent_result"),
        "verifier_result": {"rewards": short["rewards"]} if "rewards" in short else None,
        "exception_info": exception and {"exception_type": exception, "exception_message": ""},
    }


ADAPTERS = {
    "aggregate": aggregated,
    "eligible_k": eligible,
    "evals_key": key,
    "job_dir": job_dir,
    "job_stats": job_stats,
    "job_stats_updates": job_stats_updates,
    "load_job_result": loaded,
    "metric": metrics,
    "pass_at_k": ladder,
    "pass_at_k_task": one_task,
    "trial_props": props,
}
