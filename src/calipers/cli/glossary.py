"""The words that are no metrics, in plain English: outcomes, formats and dialects.

Written out here, so that asking what a word means loads nothing; tests compare it with what is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from calipers.systems.system import DialectCard, every_system

_ZERO = "0, unless a verifier gave a reward: this is the model's own doing"
_NOTHING = "0, whatever reward stands beside it: this is the model's own doing"
_NOT_ITS_FAULT = "a gap: the grading failed, not the model"
_SPARED = "nothing, and it is no gap: the run is reported over the tasks before the stop"
_UNKNOWN = "a gap: nobody knows what the model would have done"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a planned rollout."""

    one_line: str
    contributes: str
    set_by: str


OUTCOMES: Final[Mapping[str, Outcome]] = {
    "scored": Outcome("A verifier gave it a reward.", "its reward", "the verifier"),
    "refused": Outcome("The model declined to answer.", _ZERO, "the client or the agent"),
    "truncated": Outcome("The answer stopped at the limit of tokens.", _ZERO, "the client or the agent"),
    "empty": Outcome("The model answered with nothing.", _ZERO, "the client or the agent"),
    "timed_out": Outcome("The model or agent used up its own limit of time.", _ZERO, "the client or the agent"),
    "unparsed": Outcome("A filter found no answer in the completion.", _ZERO, "the filter"),
    "broke_verifier": Outcome(
        "Twice there was no verdict on this answer, and there was one on a neutral answer.", _NOTHING, "the verifier"
    ),
    "tampered": Outcome("The agent changed the files of its judge.", _NOTHING, "the verifier"),
    "filter_timeout": Outcome("A filter took too long to look for the answer.", _NOT_ITS_FAULT, "the filter"),
    "verifier_failed": Outcome("The verifier broke down, whatever the answer.", _NOT_ITS_FAULT, "the verifier"),
    "judge_failed": Outcome("The model that judges gave no usable verdict.", _NOT_ITS_FAULT, "the verifier"),
    "client_failed": Outcome("No completion came back from the model's server.", _UNKNOWN, "the client"),
    "cancelled": Outcome("The run was stopped before it was done.", _UNKNOWN, "the run"),
    "not_run": Outcome("It was planned and never started.", _UNKNOWN, "the run"),
    "missing": Outcome("There is no reward, and no reason given.", _UNKNOWN, "the reader"),
    "stopped_early": Outcome("It was not run: --until had stopped the run before its turn.", _SPARED, "the run"),
}

FORMATS: Final[Mapping[str, str]] = {
    "native": "JSON Lines of our own record: task, sample, reward, outcome, usage, metadata.",
    "jsonl": "Any JSON Lines, its keys named by --columns task=id,reward=score.",
    "evsys_predictions": "EvSys' prediction rows: JSON Lines with task_id and sample_idx.",
    "evsys_rewards": "EvSys' rewards: a JSON list with a list of rewards for each task.",
    "csv": "CSV with a header line.",
    "parquet": "Parquet, a row for each rollout.",
    "nemo_gym": "NeMo Gym's rollouts: JSON Lines with _ng_task_index and _ng_rollout_index.",
    "lm_eval_samples": "lm-evaluation-harness' samples: JSON Lines with doc_id, resps and filtered_resps.",
    "lm_eval_results": "Its results file, which stands for the samples beside it.",
    "run": "The directory of a run: its plan, its log, and what the plan still owes.",
    "harbor": "A Harbor job's directory, finished or not; also one trial of it, or a directory of jobs.",
    "inspect": "inspect's logs, .eval and .json: a rollout for each epoch of each sample, run or not.",
}


MODELS: Final[Mapping[str, str]] = {
    "openai": "openai/NAME: any OpenAI-compatible server, at --base-url or $OPENAI_BASE_URL.",
    "hf": "hf/PATH: a transformers causal model in this process, from a directory; pip install 'calipers[hf]'.",
    "litellm": "litellm/ID: whatever litellm reaches; pip install 'calipers[litellm]'.",
    "replay": "replay/FILE: the answers of an earlier log, by task and sample, else by prompt.",
    "python": "python/FILE.py:OBJECT or python/MODULE:OBJECT: a function, or an object with generate().",
}


DIALECTS: Final[Mapping[str, DialectCard]] = {
    "native": DialectCard(
        one_line="Our own names and rules: every metric there is, with parameters.",
        default=("mean_reward", "pass_rate"),
        gaps="excluded from the estimate",
    ),
    **{name: system.card for name, system in every_system().items()},
}
