"""NeMo Gym's helpers for hooks, called as a hook calls them."""

from __future__ import annotations

from calipers.systems.nemo_gym.lent import reward_profile

MAJORITY = "compute_pass_majority_metrics"


def helper(vector):
    held = {}
    exec(vector.get("score_fn_py", ""), held)
    name, tasks, arguments = vector["function"], vector["input_rollouts"], dict(vector.get("kwargs", {}))
    if "score_fn" in held:
        arguments["score_fn"] = held["score_fn"]
    return _called(name, tasks, arguments), vector["expected_aggregate"]


def _called(name, tasks, arguments):
    function = getattr(reward_profile, name)
    if name == MAJORITY:
        return dict(zip(("metrics", "score_dicts", "score_names", "max_k"), function(tasks, **arguments), strict=True))
    if name == "compute_subset_metrics":
        return function(tasks, **arguments)
    if "agent_metrics" in arguments or "metrics" in arguments:  # a helper that is handed metrics
        metrics = arguments.get("agent_metrics", arguments.get("metrics"))
        found = function(**arguments)
        return metrics if found is None else found
    own = {key: arguments.pop(key) for key in ("score_fn", "answer_key") if key in arguments}
    metrics, *rest = reward_profile.compute_pass_majority_metrics(tasks, **own)
    if name == "add_avg_sample_std_dev":
        function(metrics, *rest)
        return metrics
    return function(metrics, **arguments)
