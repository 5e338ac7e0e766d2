"""The metrics of a task that names none, as lm-evaluation-harness' guide "Scoring & Metrics" has them.

Its release 0.4.13 differs from the guide: it scores generated text by exact_match, and leaves perplexity out of the
metrics of whole texts.
"""

from __future__ import annotations

from dataclasses import replace

from calipers.errors import InputError
from calipers.scores.entries import DEFAULTS, GENERATION, ROLLING
from calipers.tasks.lm_eval.config import TaskConfig
from calipers.tasks.lm_eval.yaml import TaskFile


def with_guide_metrics(config: TaskConfig, file: TaskFile) -> TaskConfig:
    """The task with the guide's default metrics; InputError for one that generates text and names no metric."""
    if config.metric_list or config.scorer is not None or config.process_results is not None:
        return config
    if config.output_type == ROLLING:
        return replace(config, metric_list=[{"metric": name} for name in ("perplexity", *DEFAULTS[ROLLING])])
    inner = [bool(entry.get("metric_list")) for entry in config.filter_list or ()]
    if config.output_type != GENERATION or (inner and all(inner)):
        return config
    wrong = "there is none, and the guide has no default metrics for generated text"
    right = "expected metric_list: [{metric: exact_match}], or --default-metrics release"
    raise InputError.at(file.place("metric_list"), wrong, right)
