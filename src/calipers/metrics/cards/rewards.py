"""Cards of the metrics of rewards."""

from __future__ import annotations

from calipers.metrics.cards.card import Card

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
