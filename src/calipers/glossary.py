"""Explanations of words on pages and in options, as `calipers explain` prints them.

Outcomes, formats, models, dialects and terms are explained here; metrics and methods have cards. So explaining a word
loads no numerical code. Tests compare the words with the program.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from itertools import starmap
from typing import Final

from calipers.cards import (
    EXPLAINED,
    METRIC_CARDS,
    STATISTIC_CARDS,
    WIDTH,
    card_for,
    filled,
    method_named,
)
from calipers.errors import UnknownName, nearest
from calipers.names import FILTERS, METRICS, VERIFIERS
from calipers.systems import DialectCard, every_system

_LABEL = 13  # columns before the text of a line with a label
_ZERO = "0, unless a verifier gave a reward: the model is responsible"
_NOTHING = "0, even if it has a reward: the model is responsible"
_NOT_ITS_FAULT = "nothing, it is missing: the verification failed, not the model"
_SPARED = "nothing, and it is not missing: the result covers the tasks before the stop"
_UNKNOWN = "nothing, it is missing: the model's result is unknown"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a planned rollout ended."""

    one_line: str
    contributes: str
    set_by: str


@dataclass(frozen=True, slots=True)
class Term:
    """A word that a page or an option uses."""

    text: str
    see: tuple[str, ...] = ()  # words to explain next


OUTCOMES: Final[Mapping[str, Outcome]] = {
    "scored": Outcome("A verifier gave the rollout a reward.", "its reward", "the verifier"),
    "refused": Outcome("The model declined to answer.", _ZERO, "the client or the agent"),
    "truncated": Outcome(
        "The completion stopped at the token limit, or inside its reasoning.", _ZERO, "the client or the agent"
    ),
    "empty": Outcome("The completion has no text, or none after its reasoning.", _ZERO, "the client or the agent"),
    "timed_out": Outcome("The model or the agent reached its time limit.", _ZERO, "the client or the agent"),
    "unparsed": Outcome("A filter found no answer in the completion.", _ZERO, "the filter"),
    "broke_verifier": Outcome(
        "The verifier failed on this answer every time, but not on a neutral answer.", _NOTHING, "the verifier"
    ),
    "tampered": Outcome("The agent changed the files of its verifier.", _NOTHING, "the verifier"),
    "filter_timeout": Outcome("A filter timed out while it extracted the answer.", _NOT_ITS_FAULT, "the filter"),
    "verifier_failed": Outcome(
        "The verifier failed for a reason other than the answer.", _NOT_ITS_FAULT, "the verifier"
    ),
    "judge_failed": Outcome("The judge model gave no usable verdict.", _NOT_ITS_FAULT, "the verifier"),
    "client_failed": Outcome("The model's server returned no completion.", _UNKNOWN, "the client"),
    "cancelled": Outcome("The run was stopped before the rollout was finished.", _UNKNOWN, "the run"),
    "not_run": Outcome("The rollout was planned and never started.", _UNKNOWN, "the run"),
    "missing": Outcome("The rollout has no reward, and the file gives no reason.", _UNKNOWN, "the reader"),
    "stopped_early": Outcome("The rollout was not run because --until had stopped the run.", _SPARED, "the run"),
}

FORMATS: Final[Mapping[str, str]] = {
    "native": "JSON Lines with Calipers' own keys: task, sample, reward, outcome, usage, metadata.",
    "jsonl": "Any JSON Lines; --columns task=id,reward=score names the keys.",
    "evsys_predictions": "EvSys' prediction rows: JSON Lines with task_id and sample_idx.",
    "json_array": "A JSON array of records, with the same keys as JSON Lines.",
    "evsys_rewards": "EvSys' rewards: a JSON list with a list of rewards for each task.",
    "csv": "CSV with a header line.",
    "parquet": "Parquet with a row for each rollout.",
    "nemo_gym": "NeMo Gym's rollouts: JSON Lines with _ng_task_index and _ng_rollout_index.",
    "lm_eval_samples": "lm-evaluation-harness' samples: JSON Lines with doc_id, resps and filtered_resps.",
    "lm_eval_results": "lm-evaluation-harness' results file; Calipers reads the samples files beside it.",
    "run": "A run folder: its plan, its log, and the planned rollouts that were not run.",
    "harbor": "The directory of a Harbor job, finished or not, of one of its trials, or of several jobs.",
    "inspect": "inspect's logs, .eval and .json, with a rollout for each epoch of each sample, run or not.",
    "partial": "A file of calipers score --partial: packed rollouts, for calipers merge and all that reads rollouts.",
    "verl": "verl's rollout_data_dir and validation_data_dir: JSON Lines with input, output, score and step.",
    "trl": "TRL's completions: Parquet with step, prompt, completion, a column for each reward, and advantage.",
    "verifiers": "The episodes of verifiers 0.4 and prime-rl: JSON Lines with task (an object) and traces (a list).",
    "verifiers_v0": "Results of verifiers before 0.4: JSON Lines with example_id, prompt, completion and reward.",
    "skyrl": "SkyRL's dumped evaluations: JSON Lines with input_prompt, output_response and score.",
    "nemo_rl": "NeMo-RL's training and validation data: JSON Lines with content, rewards (a list) and idx.",
    "open_instruct": "open-instruct's rollouts: JSON Lines with prompt_tokens, response_tokens, reward and prompt_idx.",
    "tinker_eval": "tinker-cookbook's evaluations: JSON Lines with benchmark, example_id, turns and reward.",
    "tinker_rl": "tinker-cookbook's rollout summaries: JSON Lines with group_idx, traj_idx and total_reward.",
    "promptfoo": "promptfoo's results: JSON that begins with evalId, or JSON Lines with testIdx and promptIdx.",
    "openai_evals": "A log of OpenAI evals: JSON Lines that begin with a spec, then events.",
    "every_eval_ever": "Every Eval Ever's samples: JSON Lines with evaluation_id, sample_id and evaluation.",
}


_BY_PROMPT: Final = "the prompt and its gold answer; the name is the end of the prompt and a hash of both"
_STEP_OF_ROW: Final = "step, from the row"
FORMAT_DETAILS: Final[Mapping[str, Mapping[str, str]]] = {
    "verl": {
        "task": f"{_BY_PROMPT}. The uid of a prompt is new at each validation, so it does not name a task.",
        "rollout": "a row; in the newer trainer several rows of one session are one rollout, the last output counts",
        "rewards": "score, and every number or boolean of reward_extra_info, such as acc",
        "labels": _STEP_OF_ROW,
        "missing": "verl has no field for errors: a failed rollout is absent or scored 0, and nothing tells which",
        "its number": "mean@N is mean_reward; best@k draws with replacement and is bootstrap_best@k, not pass@k",
    },
    "trl": {
        "task": "the prompt; the name is the end of the prompt and a hash of it",
        "rewards": "every float column between completion and advantage; a float extra cannot be told from a reward",
        "labels": _STEP_OF_ROW,
        "missing": "NaN or null, where a reward function returned None; a row without any reward is missing",
        "note": "A file has the last generation batch of a step, and an evaluation at that step replaces it unmarked.",
        "its number": "rewards/NAME/mean is pooled_mean, if logging_steps is 1",
    },
    "verifiers": {
        "task": "task.key, else task.hash, else data.id, else data.idx",
        "rollout": "a trace: the agents of an episode are groups; without a trace it is a failure of the policy",
        "rewards": "each score by its name, and reward, the sum of score x weight over those that are not null",
        "labels": "step, split (train or eval), run, policy_start, policy_end, truncated, and the keys of task.data",
        "missing": "a trace that is not ok is client_failed, or timed_out; its rewards do not count",
        "note": "prime-rl's effective is a filtered copy of all, without failures; of a folder only all is read.",
        "its number": "effective/avg@G is pooled_mean, effective/pass@k is pass@k: over the tasks with k rollouts left",
    },
    "verifiers_v0": {
        "task": "example_id; the key task is the environment, and the label env_task here",
        "rewards": "reward, the weighted total, and each metric by its name",
        "missing": "a row with an error is client_failed; verifiers counts it as 0",
        "its number": "avg_reward is pooled_mean and pass_at_k is pass@k(threshold=0.5), both with --missing zero",
    },
    "skyrl": {
        "task": _BY_PROMPT,
        "rewards": "score, or its sum where it is a list with a score for each token; then also last_token_score",
        "labels": "step, from the folder global_step_N_evals; the dataset is data_source",
        "its number": "avg_score is pooled_mean; pass_at_n is any sample whose last token's score is above 0",
    },
    "nemo_rl": {
        "task": "the messages before the first assistant turn, or the first text",
        "labels": "step and split (train or val), from the name of the file",
        "its number": "accuracy is pooled_mean; pass_k is pass@k(threshold=1e-300): any reward above 0",
    },
    "open_instruct": {
        "task": "a hash of prompt_tokens and ground_truth; prompt_idx is a place in the batch",
        "labels": f"{_STEP_OF_ROW}; dataset",
        "note": "Groups that active sampling or zero variance removed are not in the file. Rewards often go up to 10.",
        "its number": "the mean score is pooled_mean",
    },
    "tinker_eval": {
        "task": "example_id",
        "missing": "an error that begins with timeout is timed_out and counts; any other is client_failed",
        "labels": "truncated",
        "its number": "score is pass_rate(threshold=1e-300) --missing zero: any reward above 0 is a pass",
    },
    "tinker_rl": {
        "task": "split, iteration and group_idx: the file has no prompts, so tasks do not meet again at the next step",
        "rewards": "total_reward and final_reward",
        "labels": "step (the iteration), split, tags",
        "its number": "reward/total is pooled_mean of total_reward",
    },
    "promptfoo": {
        "task": "variables, description, assertions and threshold of a test, which all its repeats share",
        "rollout": "a row; the model is the provider, the agent is the prompt",
        "rewards": "pass, score and each named score",
        "missing": "failureReason 2 is client_failed; an assertion whose grader failed is verifier_failed",
        "its number": "the pass rate is pass_rate of pass with --missing zero: promptfoo counts errors as failures",
    },
    "openai_evals": {
        "task": "sample_id",
        "rollout": "a match event; a sample without one is one rollout",
        "rewards": "correct, and the numbers of metrics events",
        "missing": "an error event and no match is client_failed; an error beside a match changes nothing",
        "its number": "accuracy is pass_rate",
    },
    "every_eval_ever": {
        "task": "sample_id",
        "rollout": "the rows of a sample_id with the same metadata.epoch",
        "rewards": "evaluation.score by evaluation_result_id",
        "missing": "a row with an error is client_failed, whatever its score",
        "note": "Its inspect converter writes the mean over epochs into each row; a note says so.",
    },
}
"""What `calipers explain` prints about a format below its one line."""


MODELS: Final[Mapping[str, str]] = {
    "openai": "openai/NAME: any OpenAI-compatible server, at --base-url or $OPENAI_BASE_URL.",
    "hf": "hf/PATH: a transformers causal model in this process, from a directory; pip install 'calipers[hf]'.",
    "litellm": "litellm/ID: any model that litellm supports; pip install 'calipers[litellm]'.",
    "replay": "replay/FILE: the completions of an earlier log, by task and sample, else by prompt.",
    "python": "python/FILE.py:OBJECT or python/MODULE:OBJECT: a function, or an object with generate().",
}


DIALECTS: Final[Mapping[str, DialectCard]] = {
    "native": DialectCard(
        one_line="Calipers' own names and rules: all metrics, with their parameters.",
        default=("mean_reward", "pass_rate"),
        gaps="excluded from the estimate",
    ),
    **{name: system.card for name, system in every_system().items()},
}


TERMS: Final[Mapping[str, Term]] = {
    "step": Term(
        "The training step of a rollout, as the file of a training system says. Rollouts of several steps are shown by "
        "step, as a mean over a training run is the score of no policy.",
        ("split", "slice"),
    ),
    "split": Term(
        "Whether a rollout was for training or for an evaluation. Numbers never mix both: --by step becomes "
        "--by split+step where a set has both.",
        ("step", "slice"),
    ),
    # the ledger
    "ledger": Term(
        "The line of a page that accounts for every planned rollout, such as 20 planned = 18 scored + 2 not_run. Each "
        "rollout is counted once, under its outcome. The ledger also says how many are missing and how they are "
        "treated.",
        ("outcome", "missing", "planned"),
    ),
    "planned": Term(
        "The number of rollouts that should exist: tasks times samples of the plan of a run, or all rows of a file "
        "if there is no plan.",
        ("ledger", "not_run"),
    ),
    "counted as 0": Term(
        "Rollouts that enter the mean with the value 0, because the model did not give an answer that could be scored, "
        "such as refused, truncated or unparsed, or because --missing zero counts missing rollouts so.",
        ("ledger", "outcome", "missing"),
    ),
    "to narrow": Term(
        "The line of a page that says how much narrower the interval would be with twice the tasks, and at most with "
        "any number of samples of the same tasks, by the variance between tasks and between samples.",
        ("interval", "variance"),
    ),
    "common tasks": Term(
        "The tasks that all runs of a comparison have. Runs are compared on them alone, task by task.", ("difference",)
    ),
    "outcome": Term(
        "How a planned rollout ended, such as scored, refused or client_failed. It decides whether a rollout without a "
        "reward counts 0 or is missing. calipers list outcomes shows all.",
        ("ledger", "scored"),
    ),
    "missing": Term(
        "A missing rollout was planned and has no reward, and the model is not known to be responsible: its server "
        "failed, its verification failed, or it was not run. --missing gap (the default of native) excludes it from "
        "the estimate and shows bounds; --missing zero counts it as 0; --missing fail exits with 3. Rollouts that the "
        "model failed by itself, such as refused or truncated ones, count 0 and are not missing.",
        ("bounds", "ledger", "outcome"),
    ),
    "worst_interval": Term(
        "The ends of a score with missing rollouts: the lower end of its interval with all of them at the lowest "
        "reward, and the upper end with all of them at the highest.",
        ("missing", "bounds"),
    ),
    "filled_intervals": Term(
        "The intervals with all missing rollouts at the lowest reward, and with all of them at the highest.",
        ("worst_interval", "bounds"),
    ),
    "ends_seen": Term("The lowest and the highest value of each reward in a group.", ("95 % range",)),
    "first_tries": Term(
        "The shares of tasks that pass at the first try, and within all tries, if a run stops its tasks by their "
        "results.",
        ("sample",),
    ),
    "threshold": Term("The reward from which a sample passes: 1, unless --threshold sets it.", ("reward",)),
    "remarks": Term("The notes and warnings of a document as data: a code, its values, and a text.", ("group",)),
    "gap": Term(
        "The value of --missing that excludes missing rollouts from the estimate. A gap is a missing rollout.",
        ("missing", "bounds"),
    ),
    "excluded": Term(
        "Missing rollouts that are excluded count neither as passes nor as failures. The bounds show the value if all "
        "of them had failed, and if all had passed.",
        ("missing", "bounds"),
    ),
    "earlier attempt": Term(
        "A rollout that was run more than once has earlier attempts. Only its last attempt counts.", ("ledger",)
    ),
    "asked again": Term(
        "A rollout on a cluster is asked again when its worker was lost with it: the machine or the process ended. Its "
        "request may have been made twice, and its result counts once.",
        ("ledger",),
    ),
    "exceptions": Term("The errors that trials raised, by type, and the number of planned rollouts with one."),
    # a table of estimates
    "metric": Term(
        "A number computed from the rollouts of all tasks, such as mean_reward or pass@3. ↑ marks metrics that are "
        "better when higher, ↓ those that are better when lower. calipers list metrics shows all.",
        ("mean_reward", "pass_rate", "pass@{k}"),
    ),
    "value": Term("The estimate of a metric from the rollouts that have a reward.", ("interval", "stderr")),
    "stderr": Term(
        "The standard error of the value: the standard deviation it would have over other samples of tasks of the "
        "same kind, computed over tasks, or over clusters with --cluster.",
        ("interval", "cluster"),
    ),
    "interval": Term(
        "A confidence interval of the value. Tasks are treated as a random sample of the tasks that matter, so at the "
        "confidence level of 95 %, about 95 of 100 such intervals contain the true value.",
        ("confidence level", "wilson_t", "wilson", "t", "bootstrap"),
    ),
    "confidence level": Term(
        "The share of intervals that contain the true value in the long run, 95 % by default. --confidence sets it.",
        ("interval",),
    ),
    "n": Term("The number of tasks and samples behind a value, without missing rollouts.", ("task", "sample")),
    "unit": Term("The unit of the value: s for seconds, USD for dollars, or tokens."),
    "method": Term("The method of an interval or a test. calipers list intervals and list methods show all."),
    "undefined": Term(
        "A metric is undefined for a task that has too few samples for it, such as pass@4 with 3 samples. Such tasks "
        "are excluded from the value. A metric that is undefined for every task has no value (null). In a gate, a "
        "requirement is undefined if its value is null or the missing rollouts could change the answer: exit 3.",
        ("missing", "bounds", "requirement"),
    ),
    "unbiased": Term(
        "The expected value of the estimate is the true value: it is neither too high nor too low on average.",
        ("pass@{k}",),
    ),
    "extrapolated": Term(
        "Computed for more samples than the rollouts have, from a fitted model. It depends on the model.",
        ("beta_binomial", "bayes_pass@{k}"),
    ),
    "effective": Term(
        "The effective number of tasks is the number of independent tasks with values of 0 and 1 that would give the "
        "same standard error.",
        ("wilson_t",),
    ),
    "what it is": Term("A column with a short definition of each number.", ("metric",)),
    "warning": Term("A reason why a number that is right for these rollouts may mislead about the model."),
    # groups, slices and suites
    "group": Term("All rollouts of one agent, model and dataset. Each group has its own ledger and numbers."),
    "slice": Term(
        "The rollouts of a group that share a value of the key of --by. Intervals of slices are not adjusted for the "
        "number of slices.",
        ("cluster",),
    ),
    "dataset": Term("The set of tasks that a rollout belongs to.", ("group", "macro", "micro")),
    "model": Term("The model that made the completions, written KIND/NAME: openai/gpt-4o-mini.", ("openai", "group")),
    "agent": Term("The program that works on a task and calls the model.", ("group",)),
    "over datasets": Term("The means of a metric over several datasets.", ("macro", "micro")),
    "macro": Term("The mean over datasets in which every dataset has the same weight.", ("micro", "mover")),
    "micro": Term("The mean over datasets in which every task has the same weight.", ("macro",)),
    "economics": Term(
        "The table of what the rollouts cost: time, tokens and dollars per task, and totals. It is not part of the "
        "digest.",
        ("time_per_task", "tokens_per_task", "cost_per_task", "cost_per_solved"),
    ),
    "total": Term("The sum of usage over all rollouts: time, tokens and dollars.", ("economics",)),
    "latency_s": Term("The seconds that a rollout took.", ("economics", "latency_p50")),
    "cost_usd": Term("The dollars that a rollout cost.", ("economics", "cost_per_task")),
    "input_tokens": Term("The tokens of the prompts of a rollout.", ("economics",)),
    "cached_tokens": Term("The input tokens that the server took from its cache.", ("input_tokens",)),
    "reasoning_tokens": Term("The output tokens that the model used for reasoning.", ("output_tokens",)),
    "output_tokens": Term("The tokens of the completions of a rollout.", ("economics",)),
    "cluster": Term(
        "Tasks that belong together, such as questions about the same text. Their results are correlated, so "
        "--cluster KEY treats them as one unit of the standard error, of the interval and of a test.",
        ("stderr",),
    ),
    "variance": Term(
        "The variance of the mean reward has two parts: between tasks, which only more tasks reduce, and between the "
        "samples of a task, which more samples per task reduce as well.",
        ("share of sampling", "plan"),
    ),
    # where a result comes from
    "dialect": Term(
        "The metric names and rules of another system. The same name, such as pass@3, has different definitions in "
        "different systems; --dialect NAME uses those of NAME. native is Calipers' own. calipers list dialects shows "
        "all.",
        ("native", "evsys", "nemo_gym", "lm_eval", "harbor"),
    ),
    "digest": Term(
        "A SHA-256 hash of the settings and numbers of a result, without costs. Two results with the same digest have "
        "the same numbers.",
        ("seed", "signature"),
    ),
    "seed": Term("The start of the random numbers of resampling. The same seed gives the same numbers."),
    "signature": Term(
        "A short text in the JSON that says how a number was computed: metric, dialect, counts, interval, seed and "
        "version."
    ),
    "why": Term("A key in the JSON with the reason why a value or an interval is null."),
    "provenance": Term("What a run records about itself: versions, settings, the benchmark's digest, and the model."),
    "run": Term(
        "A benchmark run against a model, in a run folder with its plan and its log. Run the same command again to "
        "resume it. In a comparison the runs are called A, B, C in the order of the command.",
        ("planned", "not_run"),
    ),
    # what is scored
    "task": Term("A question or an assignment of a benchmark, with its target and its verifier.", ("sample",)),
    "sample": Term("One attempt at a task; --samples sets how many there are per task.", ("rollout",)),
    "rollout": Term(
        "One sample of a task by a model, from the prompt to the reward. A row of a file is a rollout.",
        ("reward", "outcome"),
    ),
    "completion": Term("The text that a model returns.", ("rollout",)),
    "reward": Term("The number that a verifier gives a rollout, usually from 0 to 1.", ("pass", "mean_reward")),
    "pass": Term(
        "A rollout passes if its reward is at least 1, or at least --threshold in curve and items.",
        ("pass_rate", "pass@{k}"),
    ),
    "solved": Term("A task is solved if it has a pass. In a curve: the share of tasks with a pass in k samples."),
    "verifier": Term("The program that gives a rollout its reward. calipers list verifiers shows all."),
    "accuracy": Term(
        "Several metrics are called accuracy. The share of samples that pass is pass_rate; the mean over tasks is "
        "mean_reward. lm-evaluation-harness' acc and acc_norm are mean_reward over its rewards of these names "
        "(--dialect lm_eval). On the page of judge-check, accuracy is the share of labelled rollouts that the judge "
        "rates as the label does.",
        ("pass_rate", "mean_reward", "pass@{k}", "lm_eval"),
    ),
    # compare
    "verdict": Term(
        "The answer of a comparison: better, worse, equivalent or undecided. It follows from the adjusted p, at the "
        "confidence level.",
        ("better", "equivalent", "undecided", "p adjusted"),
    ),
    "better": Term("The second run is better than the first: the paired test shows a difference.", ("verdict",)),
    "worse": Term("The second run is worse than the first: the paired test shows a difference.", ("verdict",)),
    "higher": Term("The second run's value is higher. The metric has no better direction.", ("better",)),
    "lower": Term(
        "The second run's value is lower. The metric has no better direction. In a gate, lower(METRIC) is the lower "
        "end of the interval.",
        ("worse", "interval"),
    ),
    "upper": Term("In a gate, upper(METRIC) is the upper end of the interval.", ("interval",)),
    "undecided": Term(
        "The data show neither a difference nor, with --margin, equivalence. It is not evidence that the runs are "
        "equal. The sentence beside it says how many tasks would decide.",
        ("equivalent", "plan"),
    ),
    "equivalent": Term("The runs are shown to differ by less than --margin.", ("equivalence", "margin")),
    "margin": Term("The largest difference that does not matter, set by --margin.", ("equivalence",)),
    "difference": Term(
        "The second run's value minus the first run's, on the tasks that both have. It is computed task by task "
        "(paired), which removes the variance between tasks that both runs share.",
        ("p", "floored_t"),
    ),
    "delta": Term("In a gate, delta(METRIC) is the difference from the --baseline.", ("difference",)),
    "first": Term("The first run of a pair: A of B - A.", ("difference",)),
    "second": Term("The second run of a pair: B of B - A.", ("difference",)),
    "p": Term(
        "The p-value: the probability of a difference at least this large if there were none.",
        ("p adjusted", "floored_t", "sign_flip", "mcnemar"),
    ),
    "p adjusted": Term(
        "The p-value adjusted for the number of tests, so that more tests do not give more false claims. --adjust "
        "chooses the method.",
        ("sidak", "holm", "bh"),
    ),
    "paired": Term("Both runs are compared task by task on the same tasks.", ("difference",)),
    "in flight": Term("Requests that were sent and not answered yet, of the number that may be sent at a time."),
    "__missing__": Term("The slice of the rollouts that do not have the key of --by.", ("slice",)),
    "baseline": Term("The run that other runs are compared with."),
    "flips": Term(
        "Tasks that changed between two runs: regressions got worse, fixes got better. In rescore: rollouts "
        "that got another reward from the new verifier, such as from pass to fail.",
        ("difference",),
    ),
    "answered": Term("The end of the completion of a run on a task that changed.", ("flips",)),
    "rank": Term("The place of a run among all runs by its value.", ("rank_sets",)),
    "best in": Term(
        "The share of bootstrap resamples of the tasks in which the run is the best. It is not the probability of "
        "being the best.",
        ("rank_sets", "winner", "optimism"),
    ),
    # gate
    "gate": Term(
        "A check of results against requirements: exit 0 if they are met, 1 if not, 3 if a value is undefined.",
        ("requirement", "tier"),
    ),
    "requirement": Term(
        "An expression such as lower(pass@1) >= 0.6 that a gate checks. calipers gate --help has the syntax.",
        ("tier", "bounds"),
    ),
    "tier": Term(
        "How much a requirement of a policy matters. The gate fails if a critical requirement fails, or if more "
        "supporting requirements fail than allowed_failures. An advisory requirement is reported and never fails it. "
        "In the JSON and CSV of a leaderboard, a new tier starts at the first model that is worse than the first "
        "model of the tier before; models of two tiers may still be tied.",
        ("requirement", "tied"),
    ),
    # a leaderboard
    "leaderboard": Term(
        "A table of models in the order of their values on the tasks that all of them have, with the ranks that each "
        "may hold and with the models that are tied. calipers leaderboard makes one.",
        ("place", "tied", "rank_sets"),
    ),
    "place": Term(
        "The number of a row of a leaderboard, by value. Between tied models the order is not evidence.",
        ("tied", "rank_sets"),
    ),
    "tied": Term(
        "Two models are tied if the tasks do not show which one is better. The test is paired by task and adjusted for "
        "all pairs of models. A bar, or a letter, joins neighbours of which all pairs are tied. A tie is undecided: "
        "it does not show that the models are equivalent.",
        ("undecided", "rank_sets", "simultaneous"),
    ),
    "simultaneous": Term(
        "The interval of a difference between two models of a leaderboard. The intervals of all pairs hold at the same "
        "time at the confidence level, so each is wider than the interval of a single comparison.",
        ("difference", "interval", "rank_sets"),
    ),
    "cost": Term(
        "In a leaderboard: what the rollouts of a model cost in dollars on the tasks of the table, as far as cost_usd "
        "was recorded. In a matrix: what all its rollouts cost.",
        ("cost_usd", "cost_per_task"),
    ),
    # a watch
    "watch": Term(
        "A look at a training run as it goes on: its curves with bands, alarms, and the best checkpoint. calipers "
        "watch makes one.",
        ("band", "alarm", "best_step"),
    ),
    "series": Term("The steps of one split of one dataset. Steps of a series are compared; series are never pooled."),
    "alarm": Term(
        "A change that a watch looks for, such as drop(pass@1) > 0.02. Each has a null, which is that the limit is "
        "kept at every step, and an e-process against it. Once raised, it is open until it has recovered.",
        ("e_process", "evidence", "recovery"),
    ),
    "evidence": Term(
        "How strongly the steps so far speak against an alarm's null: the capital of a bet that starts with 1 and does "
        "not grow on average as long as the null holds.",
        ("e_process", "needed"),
    ),
    "needed": Term(
        "What the evidence of one alarm would have to be to raise it while all others are quiet: the weight of the "
        "alarm and the rate of false alarms are in it.",
        ("evidence", "closed_average"),
    ),
    "curve": Term("On a page of a watch: the values of a metric by step, as a line of bars."),
    "change": Term("On a page of a watch: the value less that of the base step, with a band that holds at all steps."),
    "may be best": Term("Whether no other step is shown to be better than this one.", ("best_set",)),
    "interval of one look": Term(
        "The interval of a step by itself. It forgets that the step was picked, and that others were looked at.",
        ("best_step", "simultaneous_band"),
    ),
    # a matrix
    "matrix": Term(
        "A table of benchmarks and models: each model's value on each benchmark, the paired difference of two models, "
        "and the mean over benchmarks, which is the one primary test. calipers score and compare show one for a "
        "folder of runs, and calipers run for several runs.",
        ("macro mean", "holm", "satterthwaite_t"),
    ),
    "benchmark": Term(
        "A set of tasks with their verifiers. In a matrix it is a row: two models are compared on the tasks planned in "
        "both.",
        ("dataset", "matrix"),
    ),
    "macro mean": Term(
        "The mean over benchmarks in which every benchmark has the same weight. In a matrix it is over the benchmarks "
        "on which all models were compared, and its difference is the one primary test of the page. Benchmarks of "
        "unlike scales have none.",
        ("macro", "mover", "satterthwaite_t"),
    ),
    "mean of range": Term(
        "The macro mean in which each value is a share of the range of its benchmark: (y - low)/(high - low). "
        "--mean of-range asks for it where benchmarks have different ranges, which have no other mean.",
        ("macro mean",),
    ),
    "better than each": Term(
        "In a matrix: the model that is better than every other model on the benchmark. Every pair of models is tested "
        "task by task, and each p is adjusted for the number of tests (Holm). ▲ marks it.",
        ("better", "holm"),
    ),
    "not recorded": Term("No rollout has a cost_usd.", ("cost_usd", "cost")),
    "suite": Term(
        "Several benchmarks that are run together. The YAML file of a suite has benchmarks, models, settings and the "
        "rules of a gate; calipers run runs all of it, and the same command resumes it.",
        ("matrix", "gate", "over datasets"),
    ),
    "result": Term("A result.json, or the name of a result in a policy.", ("gate",)),
    "passed": Term("The requirement is met.", ("requirement",)),
    "failed": Term("The requirement is not met.", ("requirement",)),
    "no answer": Term(
        "The requirement is undefined: its value is null, or the missing rollouts could change the answer.",
        ("undefined", "bounds"),
    ),
    "level": Term("The confidence level of the interval.", ("confidence level",)),
    # curve
    "k": Term("The number of samples per task that a metric such as pass@k uses.", ("pass@{k}",)),
    "band": Term(
        "The confidence interval of a curve at each k. On a page of a watch: the interval of a step that holds at all "
        "planned steps together.",
        ("interval", "simultaneous_band"),
    ),
    "tries per task": Term("The expected number of samples if you stop at the first pass, and after k samples."),
    "usd per task": Term("The expected cost of a task if you stop at the first pass, and after k samples."),
    "usd per solved task": Term("The expected cost divided by the share of tasks solved.", ("usd per task",)),
    # plan
    "plan": Term(
        "The rollouts that a run intends to make, in plan.json. calipers plan computes how many tasks and samples a "
        "comparison needs.",
        ("noncentral_t", "pilot"),
    ),
    "alpha": Term(
        "In plan, the probability of claiming a difference if there is none. On the page of judge-check, "
        "Krippendorff's alpha.",
        ("p", "krippendorff"),
    ),
    "pilot": Term("A small earlier run that gives the variance for a plan.", ("pilot_range",)),
    "power to show": Term("The probability that the comparison detects the difference.", ("noncentral_t",)),
    "smallest difference": Term("The smallest true difference that the comparison detects with the wanted power."),
    "95 % range": Term("The range of the number that the pilot allows.", ("pilot_range",)),
    "price": Term("The cost of both runs."),
    "design effect": Term("The variance with clusters, divided by the variance of independent tasks.", ("cluster",)),
    # items
    "difficulty": Term("1 minus the mean value of a task over the runs."),
    "passes": Term("The passing samples of a task, of all its samples."),
    "mean": Term("The mean over tasks. As a metric, mean(column=KEY) is the mean of a column."),
    "variance: tasks": Term("The variance of the tasks' true means.", ("variance",)),
    "of a sample": Term("The variance of a single sample of a task.", ("variance",)),
    "share of sampling": Term(
        "The part of the variance of the mean that comes from sampling each task, and that more samples per task "
        "reduce.",
        ("variance",),
    ),
    "p (contradicts)": Term(
        "The probability of a discrimination this low for a task that does not tell runs apart: one-sided, not "
        "adjusted for the number of tasks.",
        ("item_rest",),
    ),
    "contradicts": Term(
        "Better runs do worse on this task. Its target or its verifier may be wrong.", ("item_rest", "p (contradicts)")
    ),
    "everyone": Term("Every sample of every run passes, so the task does not tell these runs apart.", ("item_rest",)),
    "nobody": Term("No sample of any run passes, so the task does not tell these runs apart.", ("item_rest",)),
    # judge-check and selftest
    "score": Term("The mean of the labels over all rollouts, as each method estimates it.", ("ppi++", "judge")),
    "weight": Term("The weight of the judge's scores in the estimate; 0 is labels alone.", ("ppi++",)),
    "rate": Term("How often the judge is right: sensitivity, specificity or accuracy.", ("sensitivity",)),
    "sensitivity": Term("The share of rollouts with a good label that the judge rates as good.", ("specificity",)),
    "specificity": Term("The share of rollouts with a bad label that the judge rates as bad.", ("sensitivity",)),
    "good": Term("A judgement or label of at least --threshold.", ("sensitivity",)),
    "bad": Term("A judgement or label below --threshold.", ("specificity",)),
    "rater": Term("A person or program that labels rollouts.", ("krippendorff",)),
    "same": Term("The share of rollouts that both raters rate alike.", ("krippendorff",)),
    "reliable": Term(
        "Krippendorff's alpha is at least 0.8; from 0.667 it is tentative, and below that not reliable.",
        ("krippendorff",),
    ),
    "answer": Term(
        "What a filter extracts from a completion. In a self-test, the text that a verifier gets: gold (the target), "
        "empty, echo (the prompt), random (words) or another's (the target of another task).",
        ("false negatives", "false positives"),
    ),
    "wrong": Term("The tasks on which the verifier's verdict is wrong.", ("false negatives", "false positives")),
    "false negatives": Term("The share of gold answers that the verifier fails."),
    "false positives": Term("The share of wrong answers that the verifier passes."),
    # certificates and audits
    "certificate": Term(
        "A signed file with the numbers of a run, how they were computed, and the root of a tree of hashes over its "
        "rollouts. calipers verify checks it.",
        ("digest", "tree", "signature of a certificate"),
    ),
    "check": Term(
        "One thing that calipers verify looks at in a certificate: its form, its signature, its numbers.", ("state",)
    ),
    "state": Term("What a check came to: good, wrong, or not known because something is not given.", ("check",)),
    "not known": Term(
        "A check of a certificate for which something is not given, such as the key or the rollouts.", ("state",)
    ),
    "form": Term("Whether a file is a certificate, and its numbers have the digest that it states.", ("certificate",)),
    "signature of a certificate": Term("Whether the key that you trust signed a certificate.", ("certificate",)),
    "numbers": Term("Whether the given rollouts have the certified digest.", ("digest", "certificate")),
    "tree": Term(
        "A Merkle tree over salted hashes of the rollouts of a certificate. It shows that each given rollout is the "
        "certified one, and names the first that is not. result.tree has its salts.",
        ("certificate", "shown"),
    ),
    "shown": Term("A single rollout with a proof that it is among the certified ones.", ("tree",)),
    "registered plan": Term("A plan that calipers preregister certified before the run.", ("certificate",)),
    "time stamp": Term("The word of an authority that a certificate existed at a time (RFC 3161).", ("certificate",)),
    "finding": Term(
        "Something in an audit that no honest run shows, or that at most 1 % of them show by chance.",
        ("list", "expected"),
    ),
    "list": Term("Something in an audit to look at, which proves nothing.", ("finding",)),
    "count": Term("How often a rule of an audit was met.", ("finding", "list")),
    "expected": Term("How often a rule of an audit is met by chance in an honest run.", ("finding",)),
    "same_text_elsewhere": Term("A finding: one long completion passes in several tasks.", ("finding",)),
    "seeds": Term("A finding: seeds that follow each other in most tasks skip some in others.", ("finding",)),
    "attempts": Term("A finding: a rollout with a reward was run again.", ("finding",)),
    "requests": Term(
        "A finding: one request id with several completions. With one completion it is a list.", ("finding",)
    ),
    "times": Term("A finding: rollouts that end before they start.", ("finding",)),
    "token_rate": Term("A finding: completions faster than any server writes them.", ("finding",)),
    "gold_text": Term("A finding: a long reference solution stands word by word in a completion.", ("finding",)),
    "rejudged": Term("A finding: rewards that the run's own verifier does not give again.", ("finding",)),
    "strong_runs": Term("Tasks where all better runs give one answer, which is not the key.", ("finding", "list")),
    "empty_passes": Term("A list: rollouts that pass with an empty completion.", ("list",)),
    "instant": Term("A list: completions within 50 ms, from a cache, a replay, or no model.", ("list",)),
    "fewer_samples": Term("A list: tasks with fewer samples than most.", ("list",)),
    "oracle_agent": Term("A list: rollouts of an agent that asks no model.", ("list",)),
    # systems
    "sandbox": Term("The container in which programs of models, verifiers and metric scripts run, without network."),
    "trust": Term("--trust runs code that came with the data, such as !function in lm-eval tasks."),
    "plugin": Term("Python code that adds metrics, verifiers, filters or clients; --plugin loads it."),
    "filter": Term("A function that extracts the answer from a completion. calipers list filters shows all."),
}
"""Words of pages, in lower case, and their explanations."""

ALSO: Final[Mapping[str, str]] = {
    **{"if missing failed / passed": "bounds", "same as": "metric"},
    **{"fail": "failed", "common task": "common tasks"},
    **{"cost per task": "usd per task", "cost per tasks": "usd per task", "cost per million tasks": "usd per task"},
    **dict.fromkeys(
        ("cost per solved task", "cost per solved tasks", "cost per million solved tasks"), "usd per solved task"
    ),
    **{"per solved task": "cost_per_solved", "per task": "total_cost_per_task"},
    **{"usd": "unit", "s": "unit", "tokens": "unit", "metrics": "metric", "methods": "method", "breakdowns": "slice"},
    **{"undefined tasks": "undefined", "higher is better": "metric", "samples per task": "sample"},
    **{"gap to number": "flips", "number to gap": "flips", "other reward": "flips", "the same": "flips"},
    **{"missing to reward": "flips", "reward to missing": "flips", "reward changed": "flips"},
    **{"gaps": "gap", "left out": "excluded", "not run": "not_run", "outcomes": "outcome", "exception": "exceptions"},
    **{"standard error": "stderr", "error bar": "stderr", "confidence interval": "interval", "ci": "interval"},
    **{"confidence": "confidence level", "p value": "p", "null": "undefined", "effective tasks": "effective"},
    **{"tasks": "task", "samples": "sample", "epochs": "sample", "rollouts": "rollout", "trial": "rollout"},
    **{"acc": "accuracy", "acc norm": "accuracy", "correct": "accuracy", "pass@k": "pass@{k}", "pass^k": "pass^{k}"},
    **{
        "max@k": "max@{k}",
        "maj@k": "maj@{k}",
        "rewards": "reward",
        "verifiers": "verifier",
        "completions": "completion",
    },
    **{"x": "run", "x - x": "difference", "x → x": "flips", "x answered": "answered", "first answered": "answered"},
    **{"second answered": "answered", "p (bh)": "bh", "p (holm)": "holm", "p (sidak)": "sidak", "fixes": "flips"},
    **{"regressions": "flips", "pass to fail": "flips", "fail to pass": "flips", "changed": "flips", "runs": "run"},
    **{
        "critical": "tier",
        "supporting": "tier",
        "advisory": "tier",
        "requirements": "requirement",
        "of": "group",
        "(unnamed)": "group",
    },
    **{"clusters": "cluster", "tasks, range": "95 % range", "range of it": "95 % range", "range": "95 % range"},
    **{"per sample": "of a sample", "sampling share": "share of sampling", "always solved": "everyone"},
    **{"never solved": "nobody", "everyone solves it": "everyone", "nobody solves it": "nobody"},
    **{"contradicts the rest": "contradicts", "contradiction": "contradicts", "labels alone": "labels"},
    **{"judge alone": "judge", "judge: good": "good", "judge: bad": "bad", "label: good": "good", "label: bad": "bad"},
    **{"raters": "rater", "raters and judge": "rater", "labels and judge": "rater", "and": "rater", "agree": "same"},
    **{"not reliable": "reliable", "tentative": "reliable", "gold": "answer", "echo": "answer", "random": "answer"},
    **{"another's": "answer", "slices": "slice", "suites": "suite", "↑": "metric", "↓": "metric"},
    **{"#": "place", "ties": "tied", "tied with": "tied", "may rank": "rank_sets", "other model": "model"},
    **{f"undecided ({why})": "undecided" for why in ("missing rollouts", "sample counts", "unseen losses")},
    **{f"undecided ({why})": "undecided" for why in ("among all pairs", "the reader disagrees")},
    **{"x − x": "difference", "▲": "better", "▼": "worse", "~": "undecided", "=": "equivalent"},
    **{"yes": "better than each", "benchmarks": "benchmark", "models": "model", "mean of benchmarks": "macro mean"},
    **{"macro of range": "mean of range", "micro of range": "mean of range"},
    **{"warnings": "warning", "allowed failures": "tier", "tipping": "tipping_point", "trusted code": "trust"},
}
"""Other forms of a word -> the term, metric or method that explains it."""


def forms(word: str) -> list[str]:
    """The forms of a word to look up: the word itself, then without capitals, then without numbers, then with _.

    A single capital letter, which stands for a run, becomes x.

    >>> forms("95 % interval"), forms("B - A"), forms("timed out")
    (['95 % interval', '95 % interval', 'interval', 'interval'], ['B - A', 'x - x', 'x - x', 'x_-_x'], \
['timed out', 'timed out', 'timed out', 'timed_out'])
    """
    unmarked = re.sub(r"^[±▲▼=~] ", "", word.strip().replace("\N{MINUS SIGN}", "-"))
    lettered = re.sub(r"\b[A-Z]\b", "x", unmarked)
    plain = " ".join(lettered.casefold().replace("_", " ").split())
    bare = " ".join(re.sub(r"[-+]?[0-9][0-9.,]*( ?%)?", "", plain).strip(" :,").split())
    return [word.strip(), plain, bare, bare.replace(" ", "_")]


def term_named(word: str) -> str | None:
    """The name of the term, metric, method or outcome that explains a word of a page; None if the word is unknown.

    >>> term_named("95 % interval"), term_named("± stderr"), term_named("B - A"), term_named("gaps")
    ('interval', 'stderr', 'difference', 'gap')
    """
    known = {**{name.replace("_", " ").strip(): name for name in TERMS}, **{name: name for name in TERMS}, **ALSO}
    return next((known[form] for form in forms(word) if form in known), None)


class Explanation(str):
    """The text that ``calipers explain`` prints, shown as it is in a notebook."""

    __slots__ = ()

    def __repr__(self) -> str:
        return self.rstrip("\n")

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self)}</pre>"


def explain(word: str, *, dialect: str = "native") -> Explanation:
    """Explain a word: a metric, an interval, a test, a verifier, a filter, an outcome, a dialect or another word."""
    if dialect not in DIALECTS:
        raise UnknownName.of("dialect", dialect, DIALECTS)
    words = DIALECTS[dialect].words
    return Explanation(_native(word) if words is None else _word(word, dialect, words.get(word)))


def docstring_of(thing: object) -> str:
    """The docstring of a function or of an object's class, without backquotes."""
    text = inspect.getdoc(thing if inspect.isfunction(thing) else type(thing)) or ""
    return text.replace("`", "")


def _native(name: str) -> str:
    """What a word means in Calipers: a term of a page, then a metric, a method or another name."""
    target = term_named(name)
    term = TERMS.get(target or name)
    names = [name, target or name] if term is not None else [*forms(name), target or name]
    card = next((card for form in names if (card := _card(form))), None)
    if term is not None:
        return _term(target or name, term) + (f"\nalso {_kind(target or name)}\n{card}" if card else "")
    if card is not None:
        return card
    bare = name.partition("(")[0].strip()
    if bare in METRICS.plugins():  # this reads the installed packages, so it comes last
        return f"{bare}\nA metric of an installed plugin; its own documentation explains it.\n"
    names = [*METRICS.names(), *STATISTIC_CARDS, *EXPLAINED, *VERIFIERS.entries, *FILTERS.entries]
    others = [*MODELS, *OUTCOMES, *DIALECTS, *FORMATS, *TERMS]
    known = [*names, *others]
    hint = "" if nearest(name, known) else "calipers list WHAT shows all names"
    raise UnknownName.of(
        "metric, interval, test, verifier, filter, model, outcome, dialect, format or other word", name, known, hint
    )


def _kind(name: str) -> str:
    """What else a term of a page is the name of."""
    kinds = {"an outcome": OUTCOMES, "a format": FORMATS, "a metric": METRICS.entries}
    return next((kind for kind, names in kinds.items() if name in names), "a method")


def _card(name: str) -> str | None:
    """The card of a metric, a method or another name; None if there is none."""
    bare = name.partition("(")[0].strip()
    if METRICS.match(bare) or bare in METRIC_CARDS:
        card, k = card_for(name)
        return card.to_text(k)
    method = method_named(name)
    if method is not None:
        statistic = STATISTIC_CARDS[method]
        return _entry(method, statistic.one_line, starmap(_line, statistic.parts()))
    if name in VERIFIERS.entries:
        return _verifier(name, VERIFIERS.load(name))
    if name in FILTERS.entries:
        return _entry(name, docstring_of(FILTERS.load(name)))
    if name in MODELS:
        return _entry(f"{name}/...", MODELS[name])
    if name in OUTCOMES:
        outcome = OUTCOMES[name]
        lines = [_line("contributes", outcome.contributes), _line("set by", outcome.set_by)]
        return _entry(name, outcome.one_line, lines)
    if name in DIALECTS:
        return _dialect(name, DIALECTS[name])
    if name in FORMATS:  # after the dialects: some have the same name
        return _entry(name, FORMATS[name], starmap(_line, FORMAT_DETAILS.get(name, {}).items()))
    return None


def _entry(name: str, text: str, lines: Iterable[str] = ()) -> str:
    """What is printed about a word: the word, a text, and more lines below an empty one."""
    more = [*lines]
    return "\n".join([name, text, *([""] if more else []), *more]) + "\n"


def _term(name: str, term: Term) -> str:
    see = [_line("see also", ", ".join(term.see).replace("{k}", "k"))] if term.see else []
    return _entry(name, textwrap.fill(term.text, WIDTH), see)


def _word(name: str, dialect: str, ours: str | None) -> str:
    """The meaning of a word in another system's dialect: the name of our metric, and its card."""
    if ours is None:
        words = DIALECTS[dialect].words or {}
        native = "it is a native name: remove --dialect" if METRICS.match(name.partition("(")[0].strip()) else ""
        raise UnknownName.of(f"{dialect} metric", name, words, native)
    card, k = card_for(ours)
    meaning = f"In {dialect}, {name} is Calipers' {ours}."
    return f"{meaning}\n\n{card.to_text(k)}"


def _verifier(name: str, judge: object) -> str:
    """The docstring of a verifier, and its risks."""
    marks = {
        "an answer can forge its reward": getattr(judge, "forgeable", False),
        "it calls models, which costs money": getattr(judge, "costs", False),
        "it verifies more than a text, so it cannot verify stored completions": not getattr(judge, "rerunnable", True),
    }
    return _entry(name, docstring_of(judge), [_line("note", text) for text, applies in marks.items() if applies])


def _dialect(name: str, dialect: DialectCard) -> str:
    lines = [
        _line("by default", ", ".join(dialect.default)),
        _line("missing", dialect.gaps),
        _line("no data", dialect.nothing),
        _line("slices", dialect.slices),
    ]
    if dialect.words is None:
        return _entry(name, dialect.one_line, [*lines, _line("words", "see calipers list metrics")])
    widest, ours = max(map(len, dialect.words)), max(map(len, dialect.words.values()))
    lines += ["", "its words and Calipers' metrics"]
    for word, meant in dialect.words.items():
        card, k = card_for(meant)
        lines.append(f"  {word:<{widest}}  {meant:<{ours}}  {filled(card.short, k)}")
    return _entry(name, dialect.one_line, lines)


def _line(label: str, text: str) -> str:
    unbroken = text.replace(" %", "\xa0%")  # a number and its sign stay on one line
    lines = textwrap.fill(unbroken, WIDTH, initial_indent=f"{label:<{_LABEL}}", subsequent_indent=" " * _LABEL)
    return lines.replace("\xa0", " ")
