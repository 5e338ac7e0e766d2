"""lm-evaluation-harness' filters and scores: responses in, each document's values out."""

from __future__ import annotations

from dataclasses import replace

from golden.lm_eval_close import settled

from calipers.errors import CalipersError
from calipers.systems.lm_eval.entries import (
    CHOICE,
    DEFAULTS,
    LIKELIHOOD,
    Rules,
    matches,
    score_loglikelihood,
    score_rolling,
    scorings,
)
from calipers.systems.lm_eval.pipelines import filtered, pipeline
from calipers.systems.lm_eval.task_scores import (
    AnsweredDocument,
    Choices,
    ScoringSettings,
    answered_documents,
    gold_of,
    score_documents,
    score_newer_choices,
)
from calipers.systems.lm_eval.tasks import TaskFile, task_config
from calipers.systems.lm_eval.tasks.documents import Splits
from calipers.systems.lm_eval.tasks.loaded import load_task


def one_filter(vector):
    step = {"function": vector["params"]["function"], **vector["params"].get("kwargs", {})}
    return _filtered([step], vector)


def filter_pipeline(vector):
    return _filtered(vector["params"]["filter"], vector)


def _filtered(steps, vector):
    given = vector["input"]
    found = filtered(pipeline({"name": "golden", "filter": steps}), given["resps"], given["docs"]).values
    return settled(found, vector["expected"]), vector["expected"]


def matched(vector):
    given = vector["input"]
    rules, pairs = Rules.of(**vector["params"]), zip(given["predictions"], given["references"], strict=True)
    scores = [matches(prediction, [reference], rules) for prediction, reference in pairs]
    found = {"exact_match": sum(scores) / len(scores)}
    return settled(found, vector["expected"]), vector["expected"]


def scored(vector):
    """Documents one by one, as an error in one of them is that document's own in the vectors."""
    params, given = vector["params"], vector["input"]
    functions = {}
    for source in (params.get("functions") or {}).values():
        exec(source, functions)
    fields = {key: _named(value, functions) for key, value in params.items() if key != "functions"}
    kind = vector["kind"].removeprefix("score_")
    fields = {"task": "made", "test_split": "test", "doc_to_text": "q", "output_type": kind, **fields}
    file = TaskFile(None, fields)
    task = load_task(task_config(file), file, Splits("made", {"test": lambda: given["docs"]}))
    config = task.config
    plan = scorings(
        config.output_type,
        filter_list=[{"name": "none", "filter": [{"function": "take_first"}]}],  # what the vector gives, as it is
        metric_list=config.metric_list,
        scored=config.process_results is None,
    )
    way = ScoringSettings(config.output_type, task.multiple_targets, config.process_results)
    results = given.get("filtered_responses", given.get("results"))
    found = [_one(task, number, _requests(config.output_type, one), plan, way) for number, one in enumerate(results)]
    return settled(found, vector["expected"]), vector["expected"]


def _requests(kind, result):
    """What the filters leave of a document: the answer of each of its requests."""
    return list(result) if kind == CHOICE else [result]


def _one(task, number, results, plan, way):
    try:
        documents = answered_documents(task, {number: [[result] for result in results]})
        return score_documents(documents, plan, way).pipelines[0].scores[0]
    except CalipersError as error:
        return {"error": str(error)}


def _named(value, functions):
    if isinstance(value, str) and value.startswith("!function "):
        return functions[value.removeprefix("!function ").rpartition(".")[2]]
    if isinstance(value, dict):
        return {key: _named(inner, functions) for key, inner in value.items()}
    return [_named(inner, functions) for inner in value] if isinstance(value, list) else value


OLDER = {"first_token": "remove_whitespace", "choice_match": "noop"}
"""The filters of the unreleased code where the guide's scorer has others."""


def gen_scorer(vector):
    """The guide's scorers with the unreleased code's defaults: no filter, and pass@k over repeats."""
    given, params = vector["input"], vector["params"]
    scorer = params["scorer"]
    name = scorer if isinstance(scorer, str) else None
    steps = [{"function": OLDER.get(name, "noop")}] if scorer is None or name in OLDER else []
    plan = scorings(
        "generate_until",
        filter_list=params["filter_list"] or [{"name": "none", "filter": steps}],
        metric_list=params["metric_list"],
        scorer=scorer,
    )
    docs = given["docs"] or [{}] * len(given["targets"])
    documents = [AnsweredDocument(*one) for one in zip(docs, given["targets"], [[held] for held in given["resps"]])]
    plan = [replace(one, reduction="pass@k") for one in plan]
    scores = score_documents(documents, plan, ScoringSettings(multiple_targets=params["multiple_targets"]))
    numbers = scores.numbers(params["bootstrap_iters"]).metrics
    found = {
        "results": {key: "N/A" if value is None else value for key, value in numbers.items()},
        "higher_is_better": scores.higher_is_better(),
        "per_doc": {
            one.scoring.pipeline.name: {
                "raw": {str(at): row for at, row in enumerate(one.repeats)},
                "reduced": {str(at): row for at, row in enumerate(one.scores)},
            }
            for one in scores.pipelines
        },
    }
    return settled(found, vector["expected"]), vector["expected"]


def ll_scorer(vector):
    """Log-likelihoods as the unreleased code scores them: lengths are those of the whole continuation."""
    given, params = vector["input"], vector["params"]
    kind, names = params["output_type"], params["metrics"]
    names = names or list(DEFAULTS[kind])
    lls, texts = given["lls"], given["continuations"]
    if kind == LIKELIHOOD:
        scores = score_loglikelihood([lls[0], given["is_greedy"][0]], names)
    elif kind != CHOICE:
        scores = score_rolling(lls[0], texts[0], names)
    else:
        of = Choices(texts, lls, given["is_greedy"], gold_of(given["target"], texts), given["unconditional_lls"])
        scores = score_newer_choices(of, names, multiple_targets=params["multiple_targets"])
    found = {name: scores[name] for name in names}
    return settled(found, vector["expected"]), vector["expected"]


ADAPTERS = {
    "filter": one_filter,
    "filter_pipeline": filter_pipeline,
    "exact_match": matched,
    "score_generate_until": scored,
    "score_multiple_choice": scored,
    "score_loglikelihood": scored,
    "score_loglikelihood_rolling": scored,
    "v05_gen_scorer": gen_scorer,
    "v05_ll_scorer": ll_scorer,
}
