"""Run classes of an installed lm-evaluation-harness by it and by Calipers, on a made-up model; print the results."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TQDM_DISABLE": "1"}
os.environ.setdefault("HF_DATASETS_CACHE", os.path.abspath("cache"))


def write(context: str) -> str:
    """The model's completion: sometimes the correct value, sometimes another one."""
    word = context.split()[1]
    return f"it is {word}" if word[-1] in "024" else "nothing"


def theirs(name: str) -> dict[str, Any]:
    """The results of lm-evaluation-harness."""
    from lm_eval.api.model import LM
    from lm_eval.evaluator import simple_evaluate

    class Made(LM):
        def __init__(self) -> None:
            super().__init__()
            self.asked: list[Any] = []

        def generate_until(self, requests: Any) -> list[str]:
            self.asked += [list(one.args) for one in requests]
            return [write(one.args[0]) for one in requests]

        def loglikelihood(self, requests: Any) -> list[Any]:
            raise ValueError("none of these tasks asks for it")

        loglikelihood_rolling = loglikelihood

    model = Made()
    found = simple_evaluate(model=model, tasks=[name])
    row = {key: value for key, value in found["results"][name].items() if "," in key}
    return {"requests": model.asked, "numbers": row, "higher_is_better": found["higher_is_better"][name]}


def ours(name: str) -> dict[str, Any]:
    """The results of Calipers."""
    from calipers.systems.lm_eval.benchmarks import LoadedTasks, TaskRequest, scoring, scoring_settings
    from calipers.systems.lm_eval.task_scores import answered_documents, score_documents
    from calipers.systems.lm_eval.tasks.loaded import requests

    task = LoadedTasks().task(name, name, TaskRequest(trust=True))
    asked = list(requests(task))
    said = {one.doc_id: [[write(one.args[0])]] for one in asked}
    scores = score_documents(answered_documents(task, said), scoring(task), scoring_settings(task))
    numbers = {key: "N/A" if value is None else value for key, value in scores.numbers().metrics.items()}
    return {
        "requests": [list(one.args) for one in asked],
        "numbers": numbers,
        "higher_is_better": scores.higher_is_better(),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps({name: {"theirs": theirs(name), "ours": ours(name)} for name in sys.argv[1:]}) + "\n")
