"""The words that are no metrics, in plain English: outcomes, formats and dialects.

Written out here, so that asking what a word means loads nothing; tests compare it with what is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from calipers.systems.harbor import words
from calipers.systems.nemo_gym.words import DEFAULT, WORDS

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


@dataclass(frozen=True, slots=True)
class Speech:
    """What a dialect's words mean here."""

    one_line: str
    default: tuple[str, ...]
    gaps: str
    nothing: str
    slices: str
    words: Mapping[str, str] | None = None  # its names -> ours; None: all of ours


DIALECTS: Final[Mapping[str, Speech]] = {
    "native": Speech(
        one_line="Our own names and rules: every metric there is, with parameters.",
        default=("mean_reward", "pass_rate"),
        gaps="leave the estimate",
        nothing="no value, and a why",
        slices="named by their JSON: true, 1, easy; __missing__ where there is none",
    ),
    "evsys": Speech(
        one_line="EvSys' six names and its numbers: the first k samples by order, 0.0 for nothing.",
        default=("mean_reward", "pass_rate"),
        gaps="leave the estimate, as EvSys drops failed rollouts",
        nothing="0.0",
        slices="named by Python's str: True, None; __missing__ where there is none",
        words={
            "avg": "mean_reward",
            "mean_reward": "mean_reward",
            "pass@1": "any_of_first_1",
            "pass@3": "any_of_first_3(short=judged)",
            "pass^3": "all_of_first_3",
            "pass_rate": "pass_rate",
        },
    ),
    "nemo_gym": Speech(
        one_line="NeMo Gym's five statistics of any numeric key, pooled over an agent's rollouts.",
        default=DEFAULT,
        gaps="leave the estimate, as NeMo Gym keeps failed attempts apart",
        nothing="no value, and a why",
        slices="named by their JSON: true, 1, easy; __missing__ where there is none",
        words=WORDS,
    ),
    "lm_eval": Speech(
        one_line="lm-evaluation-harness' means over documents, one for each metric and filter.",
        default=("mean",),
        gaps="leave the estimate, where lm-evaluation-harness knows none",
        nothing="no value, and a why",
        slices="named by their JSON: true, 1, easy; __missing__ where there is none",
        words={
            "mean": "mean_reward",
            "mean_reward": "mean_reward",
            "acc": "mean_reward(reward=acc)",
            "acc_all": "mean_reward(reward=acc_all)",
            "acc_bytes": "mean_reward(reward=acc_bytes)",
            "acc_mutual_info": "mean_reward(reward=acc_mutual_info)",
            "acc_norm": "mean_reward(reward=acc_norm)",
            "exact_match": "mean_reward(reward=exact_match)",
        },
    ),
    "harbor": Speech(
        one_line="Harbor's four statistics over all trials that ended, and its pass@k; what is missing counts 0.",
        default=words.DEFAULT,
        gaps="count 0, as Harbor counts a trial without a reward; a trial that did not end is left out",
        nothing="no value, and a why",
        slices="named by their JSON: true, 1, easy; __missing__ where there is none",
        words=words.WORDS,
    ),
}
