"""Cards: what each built-in metric is, in plain words, as data; no arithmetic is loaded."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from calipers.errors import InputError
from calipers.names import METRICS

WIDTH = 96  # characters of a line of plain text
_LABEL = 12
_SYSTEM = 10


@dataclass(frozen=True, slots=True)
class Card:
    """What a metric means. ``{k}`` in any text stands for the k that was asked for."""

    name: str  # the entry in `names.METRICS`
    short: str  # what a table says beside the number
    one_line: str
    estimates: str
    formula: str
    source: str
    nothing: str  # on no tasks
    gaps: str
    one_sample: str
    interval: str
    edges: tuple[str, ...] = ()
    others: Mapping[str, str] = field(default_factory=dict)  # system -> what it means by the word
    unit: str = ""
    unbiased: bool = False  # where every task has the same number of samples; then a table says so

    def parts(self, k: int | None = None) -> list[tuple[str, str]]:
        """The labelled texts in the order they are shown, ``{k}`` filled in."""
        labelled = [
            ("estimates", self.estimates),
            ("formula", self.formula),
            ("unit", self.unit),
            ("source", self.source),
            ("on nothing", self.nothing),
            ("on gaps", self.gaps),
            ("one sample", self.one_sample),
            ("interval", self.interval),
        ]
        return [(label, filled(text, k)) for label, text in labelled if text]

    def to_text(self, k: int | None = None) -> str:
        """The card as plain text for a terminal."""
        lines = [filled(self.name, k), *_wrapped(filled(self.one_line, k), ""), ""]
        for label, text in self.parts(k):
            lines += _wrapped(text, f"{label:<{_LABEL}}")
        for number, edge in enumerate(self.edges):
            lines += _wrapped(filled(edge, k), f"{'mind' if not number else '':<{_LABEL}}- ")
        if self.others:
            lines += ["", "what other systems mean by the word"]
            lines += [
                line for who, text in self.others.items() for line in _wrapped(filled(text, k), f"  {who:<{_SYSTEM}}")
            ]
        return "\n".join(lines) + "\n"

    def to_markdown(self) -> str:
        """The card as a section of a page."""
        lines = [f"## `{filled(self.name, None)}`", "", escaped(filled(self.one_line, None)), ""]
        for label, text in self.parts():
            shown = f"`{text}`" if label == "formula" else escaped(text)
            lines.append(f"- **{label}**: {shown}")
        lines += [f"- **mind**: {escaped(filled(edge, None))}" for edge in self.edges]
        if self.others:
            lines += ["", "| system | what it means by the word |", "|---|---|"]
            lines += [f"| {who} | {escaped(filled(text, None))} |" for who, text in self.others.items()]
        return "\n".join(lines) + "\n"


def filled(text: str, k: int | None) -> str:
    """The text with the k that was asked for, or the letter.

    >>> filled("pass@{k}", 3), filled("pass@{k}", None), filled("the first {k} samples", 1)
    ('pass@3', 'pass@k', 'the first sample')
    """
    if k == 1:
        text = re.sub(r"(\{k\} (?:fresh )?sample)s\b", r"\1", text.replace("first {k} samples", "first sample"))
    return text.replace("{k}", "k" if k is None else str(k))


def escaped(text: str) -> str:
    """Text in which Markdown sees nothing to format: names and powers stay as they are written."""
    for mark in ("\\", "`", "*", "_", "|", "<"):
        text = text.replace(mark, "\\" + mark)
    return text


def _wrapped(text: str, first: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )


NOTHING = "No value, and a why. Under EvSys' dialect: 0.0."
GAPS = (
    "A gap is no sample: the task's other samples count. A task with nothing but gaps is undefined, is counted as "
    "such, and leaves the estimate. While every reward lies in [0, 1], or in a known --range, bounds show the value "
    "with every gap at the low end and at the high end. --missing zero counts a gap as 0; --missing fail refuses to "
    "score."
)
GAPS_AND_SHORT = GAPS + (
    " The bounds are over all tasks: one with fewer than {k} samples is filled up to {k}, too, or to the samples that "
    "were planned for it."
)
TOO_FEW = "A task with fewer than {k} samples is undefined and counted, never filled up; the bounds include it."
UNEVEN = (
    "Unbiased where every task has the same number of samples. Where numbers differ it is not if they depend on the "
    "results, as after retries; a warning says so where it shows."
)
TASKS_ARE_UNITS = "Samples of one task are averaged first; they never count as separate tasks."
WILSON = (
    f"Wilson's interval (1927) with an effective number of tasks and a t quantile. It is exactly Wilson's when every "
    f"task's value is 0 or 1 (method wilson, otherwise wilson_t), never has zero width and never leaves [0, 1]. "
    f"{TASKS_ARE_UNITS} One task gives no interval. With --cluster the units are the clusters."
)
WILSON_OR_T = (
    f"{WILSON} Rewards outside [0, 1] have no known range, unless --range names it, and get the t interval over "
    "task values."
)
PASS = "A sample passes when its reward is at least 1.0; pass@3(threshold=0.5) asks for another threshold."
NAN_FAILS = "A reward of NaN is a sample that does not pass."
CLT = "Miller 2024, Adding error bars to evals, arXiv:2411.00640"

MEAN_REWARD = Card(
    name="mean_reward",
    short="mean over tasks of each task's mean reward",
    one_line="The mean over tasks of the task's mean reward.",
    estimates="The reward to expect of one sample of one more task like these, every task weighing the same.",
    formula="(1/T) sum_t (1/n_t) sum_i r_ti over T tasks with n_t samples each",
    source=CLT,
    nothing=NOTHING,
    gaps=GAPS,
    one_sample="The plain mean of the rewards; the interval needs no repeats.",
    interval=WILSON_OR_T,
    edges=(
        "Rewards are not clamped: negative ones and those above 1 enter as they are.",
        "A reward of NaN makes the value NaN (null in JSON), and why says how many there are.",
    ),
    others={
        "EvSys": "The same, also called avg. Tasks without a surviving sample are skipped; 0.0 when none is left.",
        "lm-eval": "The mean over documents of one value each; by default the first repeat, the others are dropped.",
        "NeMo Gym": "mean/reward: over all rollouts, so a task with more rollouts weighs more. Failed rollouts are "
        "left out and stand in a file beside.",
        "Harbor": "mean: over trials, not tasks; a trial without a reward counts 0.",
    },
)

PASS_RATE = Card(
    name="pass_rate",
    short="passing samples over all samples, pooled",
    one_line="Passing samples over all samples, pooled over tasks.",
    estimates="The chance that one sample passes, a task weighing as much as it has samples.",
    formula="sum_t c_t / sum_t n_t for c_t passes in n_t samples",
    source="EvSys, Metrics page; its standard error is the clustered one of Miller 2024, arXiv:2411.00640, the "
    "clusters being the tasks",
    nothing=NOTHING,
    gaps=GAPS,
    one_sample="The share of tasks that pass.",
    interval=WILSON + " Tasks weigh by their number of samples.",
    edges=(
        PASS,
        NAN_FAILS,
        "With the same number of samples for each task, and rewards of 0 and 1, it equals mean_reward.",
        "Where hard tasks lose more samples than easy ones it is too high; mean_reward is safer.",
    ),
    others={
        "EvSys": "The same in the headline; in its breakdowns the word means the share of tasks whose mean reward "
        "is at least 1, our solved_rate.",
        "lm-eval": "No such name.",
        "NeMo Gym": "No such name; mean/reward is the same number when rewards are 0 and 1.",
        "Harbor": "No such name; mean is the same number when rewards are 0 and 1 and none is missing.",
    },
)

SOLVED_RATE = Card(
    name="solved_rate",
    short="share of tasks whose mean reward is at least 1",
    one_line="The share of tasks whose mean reward is at least 1.",
    estimates="The chance that all samples of a task pass, for as many as were taken and rewards of at most 1.",
    formula="(1/T) sum_t [mean of r_ti >= 1]",
    source="EvSys, Benchmarks page (its breakdowns call it pass_rate)",
    nothing=NOTHING,
    gaps=GAPS,
    one_sample="The share of tasks that pass, as pass_rate.",
    interval=WILSON,
    edges=(
        "solved_rate(threshold=0.5) asks for another threshold on the mean.",
        "It falls as samples are added, since one failed sample fails the task; pass^k has no such drift.",
        "A reward above 1 can make up for a failed sample.",
    ),
    others={
        "EvSys": "pass_rate inside a breakdown.",
        "lm-eval": "No such name.",
        "NeMo Gym": "No such name.",
        "Harbor": "No such name.",
    },
)

PASS_AT_K = Card(
    name="pass@{k}",
    short="the Codex estimator over all samples",
    unbiased=True,
    one_line="The chance of at least one pass in {k} samples of a task, averaged over tasks.",
    estimates="How often at least one of {k} fresh samples would pass, for one more task like these. All n samples are "
    "used, and their order does not matter.",
    formula="(1/T) sum_t (1 - C(n_t - c_t, {k}) / C(n_t, {k})) for c_t passes in n_t samples",
    source="Chen et al. 2021, Evaluating large language models trained on code, arXiv:2107.03374, eq. 1",
    nothing=NOTHING,
    gaps=GAPS_AND_SHORT,
    one_sample="pass@1 is the mean over tasks of the share of passes; with one sample each, the share of tasks that "
    "pass. Any larger k is undefined.",
    interval=WILSON,
    edges=(
        PASS,
        NAN_FAILS,
        TOO_FEW,
        UNEVEN,
        "1 - (1 - c/n)^k, which some tools print, is biased: 0.832 instead of 0.917 for 3 passes in 10 and k = 5.",
    ),
    others={
        "EvSys": "Any pass among the first {k} samples, by their order: our any_of_first_{k}. Further samples are "
        "ignored, and fewer than {k} are accepted. Only pass@1 and pass@3 exist.",
        "lm-eval": "The same estimator; any truthy score passes; a document with fewer than k repeats gives 1.",
        "NeMo Gym": "In per cent. The helper uses this estimator for a task whose scores are all 0 or 1, else the best "
        "of the first k; the documented example asks whether any rollout passes, and its pass@1 is the mean reward.",
        "Harbor": "The same estimator for k = 2, 4, 8, ... and 5, 10, 15, ... up to the smallest number of attempts; "
        "a missing reward is a failure; left out entirely once one reward is neither 0 nor 1.",
    },
)

PASS_HAT_K = Card(
    name="pass^{k}",
    short="the chance of no failure in {k} samples",
    unbiased=True,
    one_line="The chance of no failure in {k} samples of a task, averaged over tasks.",
    estimates="How often all of {k} fresh samples would pass, for one more task like these: how reliable the model is.",
    formula="(1/T) sum_t C(c_t, {k}) / C(n_t, {k}) for c_t passes in n_t samples",
    source="Yao et al. 2024, tau-bench, arXiv:2406.12045",
    nothing=NOTHING,
    gaps=GAPS_AND_SHORT,
    one_sample="pass^1 equals pass@1. Any larger k is undefined with one sample.",
    interval=WILSON,
    edges=(
        PASS,
        NAN_FAILS,
        TOO_FEW,
        UNEVEN,
        "(c/n)^k is biased: 0.0039 instead of 0.0024 for 32 passes in 64 and k = 8.",
    ),
    others={
        "EvSys": "All of the first {k} samples pass, by their order: our all_of_first_{k}. Fewer than {k} are "
        "accepted. Only pass^3 exists.",
        "lm-eval": "No such name.",
        "NeMo Gym": "No such name.",
        "Harbor": "No such name.",
    },
)

ANY_OF_FIRST_K = Card(
    name="any_of_first_{k}",
    short="any pass among the first {k} samples, in order",
    one_line="The share of tasks with a pass among their first {k} samples.",
    estimates="The same quantity as pass@{k}, from one draw instead of all. It holds after retries, too: a run that "
    "stops each task at its first pass, after R samples at most, knows the outcome of the first {k} for {k} up to R.",
    formula="(1/T) sum_t [some r_ti >= 1 with i <= {k}]",
    source="EvSys, Metrics page (there it is called pass@{k})",
    nothing=NOTHING,
    gaps=GAPS_AND_SHORT + " The first {k} samples are the first {k} that are not gaps.",
    one_sample="any_of_first_1 is the share of tasks that pass. For a larger k a task that passes is 1, one that "
    "fails is undefined.",
    interval=WILSON,
    edges=(
        PASS,
        NAN_FAILS,
        "A task with fewer than {k} samples is 1 when one of them passes; without a pass it is undefined and counted. "
        "any_of_first_{k}(short=judged) counts it 0, as EvSys does.",
        "Where samples are lost it is too high: a task with a pass stays defined, one without becomes undefined.",
        "It depends on the order of samples, and ignores all after the first {k}: at 16 samples and k = 4 its "
        "variance is 6.5 times that of pass@k.",
    ),
    others={"EvSys": "Called pass@{k} (k = 1 and 3); a task with fewer samples is judged by those it has."},
)

ALL_OF_FIRST_K = Card(
    name="all_of_first_{k}",
    short="all of the first {k} samples pass, in order",
    one_line="The share of tasks whose first {k} samples all pass.",
    estimates="The same quantity as pass^{k} where every task has at least {k} samples, from one draw instead of all.",
    formula="(1/T) sum_t [every r_ti >= 1 with i <= {k}]",
    source="EvSys, Metrics page (there it is called pass^{k})",
    nothing=NOTHING,
    gaps=GAPS + " The first {k} samples are the first {k} that are not gaps.",
    one_sample="The share of tasks that pass, whatever k is.",
    interval=WILSON,
    edges=(
        PASS,
        NAN_FAILS,
        "A task with fewer than {k} samples is judged by those it has, without a mark: this makes it too high.",
        "It depends on the order of samples, and ignores all after the first {k}.",
    ),
    others={"EvSys": "The same, called pass^{k} (k = 3)."},
)

MAX_AT_K = Card(
    name="max@{k}",
    short="the best reward of {k} samples",
    unbiased=True,
    one_line="The expected best reward among {k} samples of a task, averaged over tasks.",
    estimates="What best-of-{k} would earn on one more task like these, if the best could be told. For rewards of 0 "
    "and 1 it equals pass@{k}.",
    formula="(1/T) sum_t sum_i r_t(i) C(i - 1, {k} - 1) / C(n_t, {k}) over the sorted rewards r_t(1) <= r_t(2) <= ...",
    source="The U-statistic whose kernel is the maximum (Hoeffding 1948); for rewards of 0 and 1 it is Chen et al. "
    "2021, arXiv:2107.03374",
    nothing=NOTHING,
    gaps=GAPS_AND_SHORT,
    one_sample="max@1 is mean_reward. Any larger k is undefined with one sample.",
    interval=WILSON_OR_T,
    edges=(
        TOO_FEW,
        UNEVEN,
        "A reward of NaN makes the value NaN (null in JSON), and why says how many there are.",
    ),
    others={
        "EvSys": "No such name.",
        "lm-eval": "No such name.",
        "NeMo Gym": "Its pass@k becomes the best of the first k once a score of the task is neither 0 nor 1; that "
        "depends on the order.",
        "Harbor": "max is the largest reward of any trial, a missing one counting 0: our max(column=reward).",
    },
)


MAJ_AT_K = Card(
    name="maj@{k}",
    short="majority vote of {k} samples, over all subsets, ties shared",
    one_line="What the answer that most of {k} samples agree on is worth, averaged over tasks.",
    estimates="The reward to expect when {k} fresh samples vote on the answer, for one more task like these.",
    formula="(1/T) sum_t mean over all {k}-subsets of the mean worth of the answers with the most votes",
    source="Wang et al. 2022, Self-consistency, arXiv:2203.11171; the expectation over all subsets is our own",
    nothing=NOTHING,
    gaps=GAPS_AND_SHORT + " A missing sample may join an answer, bring a new one, or not vote: bounds hold for all of "
    "these, and are wider than they need be where there are too many ways to vote to try them all.",
    one_sample="maj@1 is the mean over tasks of the reward of samples that have an answer, the others counting 0.",
    interval=WILSON_OR_T,
    edges=(
        "Votes are the record's answer, equal where they are equal as JSON: 1 and 1.0 are two answers.",
        "An answer is worth the mean reward of the samples that gave it.",
        "A sample without an answer does not vote; a subset in which nobody votes counts 0.",
        TOO_FEW,
        "Rollouts without any answer at all are an input error, not a 0.",
    ),
    others={
        "EvSys": "No such name.",
        "lm-eval": "maj@k: a filter over the first k repeats; of answers with equal votes the first seen wins.",
        "NeMo Gym": "majority@k: over the first k rollouts, ties averaged, in per cent; no answer does not vote.",
        "Harbor": "No such name.",
    },
)

GPASS_AT_K = Card(
    name="gpass@{k}",
    short="at least a share tau of {k} samples pass",
    unbiased=True,
    one_line="The chance that at least a share tau of {k} samples of a task pass, averaged over tasks.",
    estimates="How often at least tau of {k} fresh samples would pass, for one more task like these.",
    formula="(1/T) sum_t P(X >= ceil(tau {k})) for X hypergeometric: {k} drawn from n_t with c_t passes",
    source="Liu et al. 2024, Are your LLMs capable of stable reasoning?, arXiv:2412.13147",
    nothing=NOTHING,
    gaps=GAPS_AND_SHORT,
    one_sample="Undefined for k > 1 with one sample.",
    interval=WILSON,
    edges=(
        "tau is 0.5 unless asked otherwise: gpass@{k}(tau=0.75). tau=1 is pass^{k}; one pass is always needed.",
        "tau is read as a decimal: 0.55 of 100 are 55 samples. As a binary float it would be 56.",
        PASS,
        NAN_FAILS,
        TOO_FEW,
        UNEVEN,
    ),
    others=dict.fromkeys(("EvSys", "lm-eval", "NeMo Gym", "Harbor"), "No such name."),
)

MGPASS_AT_K = Card(
    name="mgpass@{k}",
    short="mean of gpass@{k} over tau from one half to one",
    one_line="The mean of gpass@{k} over tau between one half and one.",
    estimates="How good and how steady the model is at once, for one more task like these.",
    formula="(1/T) sum_t (2/{k}) sum over i from ceil({k}/2) + 1 to {k} of P(X >= i)",
    source="Liu et al. 2024, Are your LLMs capable of stable reasoning?, arXiv:2412.13147",
    nothing=NOTHING,
    gaps=GAPS_AND_SHORT,
    one_sample="mgpass@1 is 0 by its formula, whose sum is empty.",
    interval=WILSON,
    edges=(PASS, NAN_FAILS, TOO_FEW),
    others=dict.fromkeys(("EvSys", "lm-eval", "NeMo Gym", "Harbor"), "No such name."),
)


_POSTERIOR = (
    "The central interval of the beta distribution that has the posterior's mean and variance (method posterior); "
    "stderr is the posterior standard deviation. It speaks of these very tasks, sampled again, not of tasks like "
    "these: for that, ask mean_reward or pass@k beside it."
)

BAYES_MEAN = Card(
    name="bayes_mean",
    short="posterior mean of these tasks' rewards, uniform prior",
    one_line="The posterior mean of the tasks' expected rewards under a uniform prior.",
    estimates="The mean reward of these very tasks if each were sampled for ever.",
    formula="(1/T) sum_t sum_j w_j (1 + n_tj) / (L + n_t) over the L levels w_j a reward takes",
    source="Hariri et al. 2026, Don't pass@k: a Bayesian framework, arXiv:2510.04265",
    nothing=NOTHING,
    gaps=GAPS,
    one_sample="Defined: one pass of one sample is 2/3, one failure 1/3.",
    interval=_POSTERIOR,
    edges=(
        "The levels are 0, 1 and every other reward that occurs.",
        "No value when a reward leaves [0, 1], is NaN, or when there are more than 32 levels: then it is no rubric.",
        "Doubling every task narrows the posterior but not the mean.",
    ),
    others=dict.fromkeys(("EvSys", "lm-eval", "NeMo Gym", "Harbor"), "No such name."),
)

BAYES_PASS_AT_K = Card(
    name="bayes_pass@{k}",
    short="posterior chance of a pass in {k} samples, uniform prior",
    one_line="The posterior chance of at least one pass in {k} samples, averaged over tasks.",
    estimates="How often at least one of {k} fresh samples of these very tasks would pass.",
    formula="(1/T) sum_t (1 - B(c_t + 1, n_t - c_t + 1 + {k}) / B(c_t + 1, n_t - c_t + 1))",
    source="Hariri et al. 2026, Don't pass@k: a Bayesian framework, arXiv:2510.04265",
    nothing=NOTHING,
    gaps=GAPS,
    one_sample="Defined for every k, also above the number of samples.",
    interval=_POSTERIOR,
    edges=(
        "k above the number of samples extrapolates: there the prior speaks, not the data.",
        "No pass in 10 gives 0.3125 for k = 5, not 0.",
        PASS,
        NAN_FAILS,
    ),
    others=dict.fromkeys(("EvSys", "lm-eval", "NeMo Gym", "Harbor"), "No such name."),
)


_NO_POOLED_INTERVAL = "None is computed, and why says so: "
_POOLED_EXTREME = _NO_POOLED_INTERVAL + "the extremes of a sample say little about the extremes of its source."

_pooled_card = partial(
    Card,
    estimates="A description of these rollouts, each of them weighing the same, whichever task it is of.",
    source="Harbor 0.25.0, metrics over trials.",
    nothing="No value, and a why, when no rollout has a reward.",
    gaps="A gap leaves it; with --missing zero, which is Harbor's rule, it counts 0, for the extremes too. An outcome "
    "that is the model's own doing (refused, timed_out, ...) counts 0 where no verifier gave a reward.",
)

POOLED_MEAN = _pooled_card(
    name="pooled_mean",
    short="mean reward over rollouts, pooled",
    one_line="The mean reward of all rollouts; a task with more samples weighs more.",
    estimates="What one rollout is worth, a task weighing as much as it has samples.",
    formula="sum of the rewards / number of the rollouts",
    one_sample="The same as mean_reward.",
    interval="The rule of mean_reward with tasks weighing by their number of samples, so that samples of one task do "
    "not count as separate tasks: Wilson's with an effective number of tasks when all rewards lie in [0, 1], else t.",
    edges=("mean_reward averages per task first; this pools.",),
    others={
        "EvSys": "No such name; mean_reward averages per task first.",
        "NeMo Gym": "mean/reward: the same, gaps left out.",
        "Harbor": "mean: the same over all trials that ended, with every missing reward as 0.",
    },
)
POOLED_SUM = _pooled_card(
    name="pooled_sum",
    short="sum of the rewards over rollouts",
    one_line="The sum of the rewards of all rollouts: the true sum, rounded once.",
    formula="sum of the rewards",
    one_sample="The sum over tasks.",
    interval=_NO_POOLED_INTERVAL + "a sum describes these rollouts and estimates nothing beyond them.",
    others={"Harbor": "sum: the same."},
)
POOLED_MIN = _pooled_card(
    name="pooled_min",
    short="smallest reward of any rollout",
    one_line="The smallest reward of any rollout.",
    formula="min of the rewards",
    one_sample="The smallest reward of any task.",
    interval=_POOLED_EXTREME,
    others={"NeMo Gym": "min/reward: the same.", "Harbor": "min: the same; a missing reward makes it 0 or less."},
)
POOLED_MAX = _pooled_card(
    name="pooled_max",
    short="largest reward of any rollout",
    one_line="The largest reward of any rollout.",
    formula="max of the rewards",
    one_sample="The largest reward of any task.",
    interval=_POOLED_EXTREME,
    edges=("max@k is another thing: the expected best of k samples of a task.",),
    others={"NeMo Gym": "max/reward: the same.", "Harbor": "max: the same; a missing reward makes it 0 or more."},
)


_ASK = "Ask with column=: the name of any numeric key, of a usage number, or of a reward."
_NO_INTERVAL = "None is computed, and why says so: "
_EXTREME = _NO_INTERVAL + "the extremes of a sample say little about the extremes of its source."
WOODRUFF = (
    "Woodruff's interval (1952, method woodruff): every value whose share of rollouts below it the data would not tell "
    "from q. Samples of one task count together. None for one task, where too few tasks leave an end beyond all that "
    "was seen, nor where all values around it are equal."
)
_HARBOR = "Over trials, a missing value counting 0."

_column_card = partial(
    Card,
    estimates="A description of these rollouts, each of them weighing the same.",
    source="Textbook definition.",
    nothing="No value, and a why, when no rollout has a number in the column.",
    gaps="A rollout without a number in the column is left out. In a column of rewards an outcome that is the model's "
    "own doing (refused, truncated, ...) counts 0, and every other outcome without a reward is a gap.",
    edges=(_ASK,),
)

MEAN = _column_card(
    name="mean",
    short="mean of the column over rollouts, pooled",
    one_line="The mean of a column over all rollouts that have it.",
    estimates="What the column is worth in one rollout, a task weighing as much as it has samples.",
    formula="sum of the values / number of the values",
    source="Miller 2024, Adding error bars to evals, arXiv:2411.00640",
    one_sample="The mean over tasks.",
    interval="The rule of mean_reward with tasks weighing by their number of samples, so that samples of one task do "
    "not count as separate tasks: Wilson's with an effective number of tasks when all values lie in [0, 1], else t.",
    edges=(_ASK, "mean_reward averages per task first; mean(column=reward) pools."),
    others={
        "EvSys": "No such name; mean_reward averages per task first.",
        "lm-eval": "Over documents, after one value each has been chosen.",
        "NeMo Gym": "mean/FIELD: the same, pooled over rollouts.",
        "Harbor": _HARBOR,
    },
)
MEDIAN = _column_card(
    name="median",
    short="median of the column over rollouts",
    one_line="The middle value of a column; of an even number of values, the mean of the two in the middle.",
    formula="percentile(column=..., q=50)",
    one_sample="The middle over tasks.",
    interval=WOODRUFF,
    others={
        "lm-eval": "The upper of the two middle values, when their number is even.",
        "NeMo Gym": "median/FIELD: the same.",
    },
)
MIN = _column_card(
    name="min",
    short="smallest value of the column",
    one_line="The smallest value of a column.",
    formula="min of the values",
    one_sample="The smallest value of any task.",
    interval=_EXTREME,
    others={"NeMo Gym": "min/FIELD: the same.", "Harbor": _HARBOR},
)
MAX = _column_card(
    name="max",
    short="largest value of the column",
    one_line="The largest value of a column.",
    formula="max of the values",
    one_sample="The largest value of any task.",
    interval=_EXTREME,
    edges=(_ASK, "max@k is another thing: the expected best of k samples of a task."),
    others={"NeMo Gym": "max/FIELD: the same.", "Harbor": _HARBOR},
)
SUM = _column_card(
    name="sum",
    short="sum of the column over rollouts",
    one_line="The sum of a column over all rollouts that have it: the true sum, rounded once.",
    formula="sum of the values",
    one_sample="The sum over tasks.",
    interval=_NO_INTERVAL + "a sum describes these rollouts and estimates nothing beyond them.",
    edges=(_ASK, "It does not depend on the order of rollouts, nor on how files divide them."),
    others={"Harbor": _HARBOR},
)
STD = _column_card(
    name="std",
    short="standard deviation of the column, n - 1",
    one_line="The standard deviation of a column over all rollouts, with n - 1.",
    formula="sqrt(sum (x - mean)^2 / (n - 1))",
    one_sample="The spread between tasks. A single value in all is undefined: null, and a why.",
    interval=_NO_INTERVAL + "it is no mean of task values.",
    edges=(_ASK, "Spread within tasks and between tasks is mixed; it is no error bar of the mean."),
    others={"NeMo Gym": "std/FIELD: the same; 0.0 when there is exactly one rollout."},
)
PERCENTILE = _column_card(
    name="percentile",
    short="percentile of the column, linear rule",
    one_line="The q-th percentile of a column, q from 0 to 100.",
    formula="x_(j) + g (x_(j+1) - x_(j)) with j + g = 1 + (n - 1) q / 100 over the sorted values",
    source="The linear rule of Hyndman and Fan 1996 (their type 7), which numpy uses by default.",
    one_sample="The percentile over tasks.",
    interval=WOODRUFF,
    edges=(
        "Ask with column= and q=: percentile(column=latency_s, q=95).",
        "Other rules give other numbers on small data: of 1 to 20, p90 is 18.1 here and 19 by the upper rule.",
    ),
    others={
        "EvSys": "No such name.",
        "lm-eval": "No such name.",
        "NeMo Gym": "No such name.",
        "Harbor": "No such name.",
    },
)


_T_INTERVAL = (
    "The t interval over task values, since costs have no upper end. One task gives no interval; nor do values without "
    "any spread."
)
_NO_RATIO_INTERVAL = "None is computed, and why says so: "
_SHOWN = "Shown by itself, under economics, when the log has usage. It is no part of the result's digest."
_NOT_TOTAL = "It is per sample: what a task costs in all is that times its samples."
_GAPS = "A rollout that does not report it is left out, never counted as 0. Failed rollouts that report it count."
_EVSYS = "The same number under the same name: the mean over samples that report it, then over tasks."

_per_task = partial(
    Card,
    source="EvSys, Benchmarks page",
    nothing="No value, and a why, when no rollout reports it.",
    gaps=_GAPS,
    one_sample="The mean over tasks.",
    interval=_T_INTERVAL,
    edges=(_NOT_TOTAL, _SHOWN),
    others={"EvSys": _EVSYS},
)

TIME_PER_TASK = _per_task(
    name="time_per_task",
    short="mean latency of a sample, averaged per task first",
    one_line="The mean over tasks of the mean latency of the task's samples.",
    estimates="How long one sample of one more task like these takes.",
    formula="(1/T) sum_t mean of latency_s over the task's samples",
    unit="s",
)
TOKENS_PER_TASK = _per_task(
    name="tokens_per_task",
    short="mean tokens of a sample, in and out",
    one_line="The mean over tasks of the mean tokens, in and out, of the task's samples.",
    estimates="How many tokens one sample of one more task like these takes.",
    formula="(1/T) sum_t mean of (input_tokens + output_tokens) over the task's samples",
    gaps=_GAPS + " Where only one of the two counts is reported, the other is 0.",
    edges=(_NOT_TOTAL, "Cached and reasoning tokens are not added: they are parts of the two.", _SHOWN),
    unit="tokens",
)
COST_PER_TASK = _per_task(
    name="cost_per_task",
    short="mean cost of a sample, averaged per task first",
    one_line="The mean over tasks of the mean cost of the task's samples.",
    estimates="What one sample of one more task like these costs.",
    formula="(1/T) sum_t mean of cost_usd over the task's samples",
    unit="USD",
)
COST_PER_SOLVED = Card(
    name="cost_per_solved",
    short="total cost over tasks with a pass",
    one_line="The total cost over the number of tasks with at least one pass.",
    estimates="What it took to solve a task here, the cost of failures included.",
    formula="sum of cost_usd / number of tasks with some r_ti >= 1",
    source="Own definition.",
    nothing="No value, and a why, when no rollout reports a cost, or no task has a pass.",
    gaps=_GAPS + " A task none of whose rollouts reports a cost is left out on both sides.",
    one_sample="Total cost over passes.",
    interval=_NO_RATIO_INTERVAL + "it is a ratio of totals that may divide by no pass.",
    edges=(
        "A sample passes when its reward is at least 1.0; cost_per_solved(threshold=0.5) asks for another threshold.",
        "More samples cost more and solve little more: compare runs with the same number of samples.",
        _SHOWN,
    ),
    unit="USD",
)
TIME_PER_SOLVED = Card(
    name="time_per_solved",
    short="total latency over tasks with a pass",
    one_line="The total latency over the number of tasks with at least one pass.",
    estimates="How long it took to solve a task here, one sample after the other, the time of failures included.",
    formula="sum of latency_s / number of tasks with some r_ti >= 1",
    source="Own definition.",
    nothing="No value, and a why, when no rollout reports a latency, or no task has a pass.",
    gaps=_GAPS + " A task none of whose rollouts reports a latency is left out on both sides.",
    one_sample="Total latency over passes.",
    interval=_NO_RATIO_INTERVAL + "it is a ratio of totals that may divide by no pass.",
    edges=(
        "A sample passes when its reward is at least 1.0; time_per_solved(threshold=0.5) asks for another threshold.",
        "More samples take longer and solve little more: compare runs with the same number of samples.",
        _SHOWN,
    ),
    unit="s",
)


def _latency(q: int, edge: str = "") -> Card:
    return Card(
        name=f"latency_p{q}",
        short=f"{q}th percentile of latency over rollouts",
        one_line=f"The {q}th percentile of latency over all rollouts.",
        estimates="A description of these rollouts, each of them weighing the same.",
        formula=f"percentile(column=latency_s, q={q})",
        source="The linear rule of Hyndman and Fan 1996 (their type 7), which numpy uses by default.",
        nothing="No value, and a why, when no rollout reports a latency.",
        gaps=_GAPS,
        one_sample="The percentile over tasks.",
        interval=WOODRUFF,
        edges=(edge, _SHOWN) if edge else (_SHOWN,),
        unit="s",
    )


LATENCY_P50 = _latency(50)
LATENCY_P90 = _latency(90)
LATENCY_P99 = _latency(99, "Of fewer than 100 rollouts it is hardly more than the largest value.")


def _in_order(cards: Iterable[Card]) -> dict[str, Card]:
    order = list(METRICS.entries)
    index = {name: order.index(name) if name in order else len(order) for name in (card.name for card in cards)}
    return {card.name: card for card in sorted(cards, key=lambda card: index[card.name])}


CARDS: Final[Mapping[str, Card]] = _in_order([thing for thing in globals().values() if isinstance(thing, Card)])
"""Entry of `METRICS` -> its card, in the order of the index."""


def card_for(name: str) -> tuple[Card, int | None]:
    """The card of a metric as a user names it, and its k; parameters in parentheses do not matter.

    >>> card, k = card_for("pass@3")
    >>> card.name, k
    ('pass@{k}', 3)
    >>> card_for("percentile(column=latency_s, q=95)")[0].unit
    ''
    """
    bare = name.partition("(")[0].strip()
    if bare in CARDS:  # pass@{k} itself, as the list prints it
        return CARDS[bare], None
    match = METRICS.match(bare)
    if match is None or match[0] not in CARDS:
        raise METRICS.unknown(bare)
    entry, k = match
    if k == 0:
        raise InputError(f"metric {name!r}: k is 0; expected a positive integer")
    return CARDS[entry], k
