"""lm-evaluation-harness' numbers: aggregations, standard errors, tasks, groups, its table and its hashes."""

from __future__ import annotations

from golden.lm_eval_close import CLOSE, CLOSE_OF_TEXT, settled

from calipers.systems.lm_eval.aggregations import OVERLAP, aggregate, stderr
from calipers.systems.lm_eval.task_scores import aggregate_group, aggregate_task, pass_at_k
from calipers.systems.lm_eval.tasks import TaskFile
from calipers.systems.lm_eval.tasks.groups import aggregate_entries
from calipers.systems.lm_eval.write import available, hashes, table


def aggregation(vector):
    how = vector["params"]["aggregation"]
    return _settled(vector, aggregate(how, vector["input"]["items"]), [how])


def error(vector):
    params = vector["params"]
    found = stderr(params["aggregation"], vector["input"]["items"], params["bootstrap_iters"])
    return _settled(vector, "N/A" if found is None else found, [params["aggregation"]])


def task(vector):
    params = vector["params"]
    found = aggregate_task(vector["input"]["raw_metrics"], params["aggregations"], params["bootstrap_iters"])
    held = {"metrics": available(found.metrics), "sample_len": found.sample_len}
    return _settled(vector, held, params["aggregations"].values())


def group(vector):
    given = vector["input"]
    asked = aggregate_entries(TaskFile(None, {"aggregate_metric_list": vector["params"]["aggregate_metric_list"]}))
    return _settled(vector, available(aggregate_group("grp", tasks_of(given["tree"]), given["subtasks"], asked)))


def tasks_of(tree):
    """The tasks in a tree, in which a group is a mapping from its name to its members."""
    for member in tree:
        yield from (
            (name for inner in member.values() for name in tasks_of(inner)) if isinstance(member, dict) else [member]
        )


def printed(vector):
    return table(vector["input"], vector["params"]["column"]), vector["expected"]


def hashed(vector):
    return hashes(**vector["input"]), vector["expected"]


def passes(vector):
    return _settled(vector, pass_at_k(vector["input"]["scores"], vector["params"]["k"]))


def _settled(vector, found, aggregations=()):
    close = CLOSE_OF_TEXT if set(aggregations) & set(OVERLAP) else CLOSE
    return settled(found, vector["expected"], close), vector["expected"]


ADAPTERS = {
    "aggregation": aggregation,
    "stderr": error,
    "task_aggregate": task,
    "group_aggregate": group,
    "table": printed,
    "hashes": hashed,
    "v05_pass_at_k": passes,
}
