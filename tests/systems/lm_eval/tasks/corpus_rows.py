"""The features that the task files of lm-evaluation-harness 0.4.13 use, with counts; each needs a case in the corpus.

The rows are those of the count over its 13,093 tasks; the numbers are how many of them have it.
"""

from __future__ import annotations

ROWS: dict[str, int] = {
    # output types
    "output_type: multiple_choice": 8384,
    "output_type: generate_until": 4615,
    "output_type: unset": 46,
    "output_type: loglikelihood_rolling": 66,
    "output_type: loglikelihood": 28,
    # metrics
    "metric: acc": 8401,
    "metric: exact_match": 3118,
    "metric: acc_norm": 2792,
    "metric: f1": 1410,
    "metric: bleu": 885,
    "metric: chrf": 868,
    "metric: ter": 92,
    "metric: acc_bytes": 267,
    "metric: word_perplexity": 66,
    "metric: byte_perplexity": 66,
    "metric: bits_per_byte": 66,
    "metric: !function": 144,
    "metric: mcc": 14,
    "metric: perplexity": 18,
    "metric: brier_score": 0,  # in the table of coverage
    # steps of filters
    "filter: none": 10134,
    "filter: take_first": 2717,
    "filter: regex": 2079,
    "filter: remove_whitespace": 783,
    "filter: multi_choice_regex": 130,
    "filter: format_span": 100,
    "filter: regex_pos": 100,
    "filter: !function class": 48,
    "filter: custom": 41,
    "filter: take_first_k": 3,
    "filter: majority_vote": 2,
    "filter: map": 2,
    "filter: lowercase": 1,
    # pipelines and chains
    "pipelines: 0": 10134,
    "pipelines: 1": 2356,
    "pipelines: 2": 601,
    "pipelines: 3": 2,
    "chain: regex>take_first": 2255,
    "chain: remove_whitespace>take_first": 726,
    "chain: multi_choice_regex>take_first": 130,
    "chain: regex>remove_whitespace>regex>take_first": 57,
    # aggregations
    "aggregation: mean": 14820,
    "aggregation: !function": 2078,
    "aggregation: bleu": 850,
    "aggregation: chrf": 841,
    "aggregation: unset": 470,
    "aggregation: weighted_perplexity": 112,
    "aggregation: ter": 84,
    "aggregation: bits_per_byte": 56,
    "aggregation: nanmean": 55,
    "aggregation: perplexity": 17,
    "aggregation: f1": 12,
    "aggregation: median": 0,
    "aggregation function: weighted_f1_score": 1013,
    "aggregation function: micro_f1_score": 108,
    "aggregation function: span_f1_agg": 100,
    "aggregation function: acc_score": 100,
    "aggregation function: aggregate_metrics": 78,
    # arguments of metrics
    "argument: ignore_punctuation": 4996,
    "argument: ignore_case": 4883,
    "argument: regexes_to_ignore": 2250,
    "argument: average": 1026,
    "argument: hf_evaluate of multiple_choice": 755,
    "argument: hf_evaluate of generate_until": 4,
    "argument: weight_by_size": 388,
    "argument: k": 15,
    "argument: ignore_numbers": 0,
    # repeats and the rest of scoring
    "repeats: 1": 13082,
    "repeats: 10": 7,
    "repeats: 64": 4,
    "metadata: version": 12699,
    # functions, by where they stand
    "function: process_docs": 6391,
    "function: doc_to_text": 1654,
    "function: fewshot doc_to_text": 840,
    "function: doc_to_target": 670,
    "function: process_results": 547,
    "function: doc_to_choice": 482,
    "function: custom_dataset": 45,
    "function: filter_fn": 41,
    "function: nowhere": 4537,
    # fields of documents
    "doc_to_target: column": 7653,
    "doc_to_target: Jinja": 3971,
    "doc_to_target: int": 799,
    "doc_to_text: Jinja": 10121,
    "doc_to_choice: list": 5892,
    "doc_to_choice: Jinja": 1407,
    "doc_to_choice: column": 625,
    "data: hub": 13033,
    "data: custom": 45,
    "data: json": 11,
    "data: csv": 4,
    # groups, tags, and what is no YAML task
    "group: aggregates": 820,
    "group: gathers": 35,
    "group metric: acc": 624,
    "group metric: exact_match": 141,
    "group metric: acc_norm": 85,
    "weight_by_size: true": 877,
    "weight_by_size: false": 58,
    "weight_by_size: unset": 7,
    "group filter_list": 114,
    "tag": 705,
    "class": 30,
}


def claims(values: dict, config) -> set[str]:
    """The features that a task file uses, from its own fields and from its resolved configuration."""
    found = {f"output_type: {config.output_type}", f"repeats: {config.repeats}"}
    found |= {"output_type: unset"} - ({"output_type: unset"} if "output_type" in values else set())
    found |= _of_metrics(values, config.output_type) | _of_filters(values) | _of_functions(values) | _of_fields(values)
    if "version" in (values.get("metadata") or {}):
        found.add("metadata: version")
    return found


def group_claims(values: dict) -> set[str]:
    """The features that a group's file uses."""
    entries = values.get("aggregate_metric_list") or []
    entries = entries if isinstance(entries, list) else [entries]
    found = {"group: aggregates" if entries else "group: gathers"}
    for entry in entries:
        found |= {f"group metric: {entry['metric']}"}
        found |= {f"weight_by_size: {str(entry.get('weight_by_size', 'unset')).lower()}"}
        found |= {"group filter_list"} if "filter_list" in entry else set()
    return found


def _of_metrics(values: dict, kind: str) -> set[str]:
    found = set()
    for entry in values.get("metric_list") or ():
        name, how = entry["metric"], entry.get("aggregation", "unset")
        found.add(f"metric: {name}" if isinstance(name, str) else "metric: !function")
        found.add(f"aggregation: {how}" if isinstance(how, str) else "aggregation: !function")
        if not isinstance(how, str):
            found.add(f"aggregation function: {how.name}")
        for key in entry:
            found.add(f"argument: {key} of {kind}" if key == "hf_evaluate" else f"argument: {key}")
    return found or {"aggregation: unset"}


def _of_filters(values: dict) -> set[str]:
    pipelines = values.get("filter_list") or []
    found = {f"pipelines: {len(pipelines)}"} | (set() if pipelines else {"filter: none"})
    for pipeline in pipelines:
        names = [step["function"] for step in pipeline["filter"]]
        found |= {f"filter: {name}" if isinstance(name, str) else "filter: !function class" for name in names}
        found.add("chain: " + ">".join(map(str, names)))
        found |= {"function: filter_fn" for step in pipeline["filter"] if "filter_fn" in step}
    return found


def _of_functions(values: dict) -> set[str]:
    fields = ("process_docs", "doc_to_text", "doc_to_target", "process_results", "doc_to_choice", "custom_dataset")
    found = {
        f"function: {name}" for name in fields if name in values and not isinstance(values[name], (str, int, list))
    }
    if not isinstance((values.get("fewshot_config") or {}).get("doc_to_text", ""), str):
        found.add("function: fewshot doc_to_text")
    return found if "!function" in str(_shown(values)) else {"function: nowhere"}


def _of_fields(values: dict) -> set[str]:
    found = {f"data: {_source(values)}"}
    for field in ("doc_to_text", "doc_to_target", "doc_to_choice"):
        value = values.get(field)
        kind = "Jinja" if "{{" in str(value) and isinstance(value, str) else "column"
        found.add(f"{field}: {type(value).__name__ if isinstance(value, (int, list)) else kind}")
    return found


def _source(values: dict) -> str:
    if "custom_dataset" in values:
        return "custom"
    return values["dataset_path"] if values["dataset_path"] in ("json", "csv") else "hub"


def _shown(value):
    if isinstance(value, dict):
        return [_shown(one) for one in value.values()]
    return [_shown(one) for one in value] if isinstance(value, list) else str(value)
