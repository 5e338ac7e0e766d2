"""Cards of the intervals of a single number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from calipers.stats.cards.card import IntervalCard

_GRID = "Measured at 95 % on simulated 0/1 samples"
_COUNTS = (
    "x = m n' passes of n' = n_eff (z/q)^2 tasks, n_eff and q as for wilson_t: when every task's value is 0 or 1, "
    "simply the number of passes and the number of tasks"
)
_RANGE = "Needs a known range, as 0 to 1 for passes; without one there is no interval and a why."
_SPREAD = "No interval when all task values agree, and a why: it would have no width."

INTERVALS: Final[Mapping[str, IntervalCard]] = {
    "wilson": IntervalCard(
        one_line="Wilson's score interval: every rate that the observed one would not contradict.",
        formula="(m + z^2/2n +- z sqrt(m(1-m)/n + z^2/4n^2)) / (1 + z^2/n), n the number of tasks",
        source="Wilson 1927, Probable inference, the law of succession, and statistical inference, JASA 22",
        use="Values of 0 and 1: it is the default there. Asked for by name, it is the default's closed "
        "form, which is called wilson_t when values lie between 0 and 1.",
        none="From exactly 0: 0 of 30 gives 0 to 0.1135.",
        full="To exactly 1: 30 of 30 gives 0.8865 to 1.",
        mind=_RANGE,
        coverage=f"{_GRID}, the default covers 95.9 % on average and 85.0 % at worst with 30 tasks or more, 96.9 % and "
        "84.5 % with fewer; on a fresh grid 95.7 % and 85.3 %, 96.7 % and 85.7 %. At its worst it expects 0.16 passes "
        "on all tasks together; clopper-pearson covers 98.8 % there.",
    ),
    "wilson_t": IntervalCard(
        one_line="Wilson's interval with an effective number of tasks and a t quantile: the default on a known range.",
        formula="wilson with n = n_eff = (m(1-m) + se^2 + 1/4U) / (se^2 + d/4U^2) and t(nu), nu = (U-1)/(1 - U/n_eff), "
        "for z; U the effective number of tasks or clusters, d = 1 without clusters",
        source="Wilson 1927 for the form; the effective number of tasks is ours, chosen by simulation",
        use="Task values between 0 and 1, clusters, weights: what the default is called there. It becomes wilson as "
        "the values approach 0 and 1.",
        none="From exactly 0, as wide as if each task had been sampled once: 16 of 16 failed on 30 tasks is 0 of 30, "
        "not 0 of 480.",
        full="To exactly 1, likewise.",
        mind="Values that agree on few tasks still get about +-1/T; ask for t if the range is not to count.",
        coverage=f"{_GRID}, 95.9 % on average and 85.0 % at worst with 30 tasks or more; on real-valued rewards 96.7 % "
        "and 93.8 %; with 20 clusters or more 97.0 % and 92.8 %. On a fresh grid, which none of its constants was "
        "tuned on: 95.7 and 85.3 %, 96.1 and 89.0 %, 95.5 and 90.6 %.",
        on_request=False,
    ),
    "t": IntervalCard(
        one_line="Student's interval: the mean, plus and minus a t quantile of standard errors.",
        formula="m +- t(U-1) se, se^2 = G/(G-1) sum_g e_g^2 over tasks or clusters, clipped where a range is known",
        source="Student 1908, The probable error of a mean, Biometrika 6; clusters: Miller 2024, arXiv:2411.00640",
        use="Rewards without a known range, where it is the default; many tasks and a mean far from the ends.",
        none=_SPREAD,
        full=_SPREAD,
        mind="Near 0 % and 100 % the rare failure that would widen it is not in the data.",
        coverage=f"{_GRID}, 83.9 % on average and 0 % at worst with 30 tasks or more. Unbounded rewards, 10, 100 and "
        "1000 tasks: exponential 90.0, 93.7, 94.8 %; log-normal 83.8, 91.5, 94.1 %.",
    ),
    "clopper-pearson": IntervalCard(
        one_line="The exact interval, also called exact: never covers less than it says, for values of 0 and 1.",
        formula=f"BetaInv(a/2; x, n'-x+1) to BetaInv(1-a/2; x+1, n'-x), a = 1 - confidence; {_COUNTS}",
        source="Clopper and Pearson 1934, The use of confidence or fiducial limits, Biometrika 26",
        use="When covering too seldom is worse than being wide: gates, safety, very few tasks, rates near 0 and 1.",
        none="From exactly 0: 0 of 30 gives 0 to 0.1157.",
        full="To exactly 1: 30 of 30 gives 0.8843 to 1.",
        mind=_RANGE,
        coverage=f"{_GRID}, 97.1 % on average and 93.8 % at worst with 30 tasks or more, 99.4 % and 95.8 % with fewer; "
        "task values of 0 and 1 alone cannot take it below 95 %. Away from the ends 1.06 times as wide as if the true "
        "standard error were known.",
    ),
    "jeffreys": IntervalCard(
        one_line="The central posterior interval of a rate under Jeffreys' prior, Beta(1/2, 1/2).",
        formula=f"BetaInv(a/2; x+1/2, n'-x+1/2) to BetaInv(1-a/2; x+1/2, n'-x+1/2), a = 1 - confidence; {_COUNTS}",
        source="Brown, Cai and DasGupta 2001, Interval estimation for a binomial proportion, Statistical Science 16",
        use="A Bayesian reading with little prior; shorter than clopper-pearson.",
        none="The lower end is set to 0, as its source does: 0 of 30 gives 0 to 0.0797.",
        full="The upper end is set to 1: 30 of 30 gives 0.9203 to 1.",
        mind=f"{_RANGE} An end that would leave out the value itself is moved to it.",
    ),
    "beta": IntervalCard(
        one_line="The central posterior interval of a rate under a uniform prior, Beta(1, 1).",
        formula=f"BetaInv(a/2; x+1, n'-x+1) to BetaInv(1-a/2; x+1, n'-x+1), a = 1 - confidence; {_COUNTS}",
        source="Bowyer, Aitchison and Ivanova 2025, Don't use the CLT in LLM evals, arXiv:2503.01747",
        use="A Bayesian reading on few tasks, when every rate was as likely as any other beforehand.",
        none="Leaves out 0, which the prior holds impossible: 0 of 30 gives 0.0008 to 0.1122.",
        full="Leaves out 1: 30 of 30 gives 0.8878 to 0.9992.",
        mind=f"{_RANGE} It is an interval around the posterior, not around the value shown beside it.",
    ),
    "bootstrap": IntervalCard(
        one_line="The percentile bootstrap: the middle of the same number on tasks drawn again.",
        formula="the a/2 and 1-a/2 quantiles of 10,000 draws of all tasks, or all clusters, with replacement, "
        "a = 1 - confidence; stderr is the standard deviation of the draws",
        source="Efron 1979, Bootstrap methods: another look at the jackknife, Annals of Statistics 7",
        use="Many tasks and no known range; the only way for a metric that nobody can look into, where at most 1,000 "
        "draws are made.",
        none=_SPREAD,
        full=_SPREAD,
        mind="The same seed gives the same ends. What is rare is seldom among few tasks, and never drawn from them.",
        coverage=f"{_GRID}, 86.3 % on average and 0 % at worst with 30 tasks or more, 58.6 % on average with fewer.",
    ),
    "bca": IntervalCard(
        one_line="The bootstrap, its levels moved for bias and skewness.",
        formula="quantiles at Phi(b + (b + z)/(1 - s(b + z))) for z = -+z(a/2): b from the share of draws below the "
        "value, s = sum d^3 / (6 (sum d^2)^1.5) from leaving each task out once",
        source="Efron 1987, Better bootstrap confidence intervals, JASA 82",
        use="Skewed values without a known range, such as costs and times, on many tasks.",
        none=_SPREAD,
        full=_SPREAD,
        mind="No interval, and a why, where the correction leaves the draws.",
        coverage=f"{_GRID}, 87.3 % on average and 0 % at worst with 30 tasks or more, 60.1 % on average with fewer.",
    ),
    "woodruff": IntervalCard(
        one_line="The interval of a percentile: every value whose share below it the data would not tell from q.",
        formula="the percentiles at q -+ z sqrt(q (1-q) / n_eff), n_eff and the quantile z those of wilson_t for the "
        "share of rollouts at or below the q-th percentile, a pooled rate whose units are the tasks or clusters",
        source="Woodruff 1952, Confidence intervals for medians and other position measures, JASA 47",
        use="What median, percentile and the latencies carry.",
        none="The 0th percentile has none: the extremes of a sample say little about those of its source.",
        full="Nor has the 100th.",
        mind="No interval where a level leaves the data (20 tasks cannot bound the 90th percentile), nor where all "
        "values between them are equal. No standard error is given.",
        on_request=False,
    ),
    "beta_mixture": IntervalCard(
        one_line="The confidence sequence of a run: valid at every look, so that one may watch it, and stop by it.",
        formula="every m with ln B(1+S, 1+t-S) - f(m) < ln(1/a), S the sum of the first t task values in the planned "
        "order, a = 1 - confidence. Tasks like these: f = S ln m + (t-S) ln(1-m). The number this run of N tasks will "
        "end with, K = N m: f = lnG(K+1) - lnG(K-S+1) + lnG(N-K+1) - lnG(N-K-t+S+1) - lnG(N+1) + lnG(N-t+1), "
        "lnG the log of the gamma function",
        source="Robbins 1970, Statistical methods related to the law of the iterated logarithm, Annals of Mathematical "
        "Statistics 41; tasks without replacement: Waudby-Smith and Ramdas 2020, Confidence sequences for sampling "
        "without replacement, NeurIPS 33",
        use="What the progress of a run shows (the number it will end with), what --until looks at, and what a run "
        "reports that --until stopped (tasks like these). A run that ends as planned reports the default.",
        none="From exactly 0: 0 of 20, 100 planned, gives 0 to 0.2348.",
        full="To exactly 1: 30 of 30, 164 planned, gives 0.8248 to 1.",
        one_task="Defined, and wide: 0.025 to 1 after one pass.",
        mind="Only tasks that settled in the planned, random order count, each when its last sample has. It is 1.5 to "
        "3 times as wide as the default, which is made for one look: read at every look, that one misses in a quarter "
        "of all runs, and in nearly half of those of 1,000 tasks.",
        coverage="At 95 %, looking after every task, it misses somewhere on the way in 0.7 % of simulated runs on "
        "average and 3.9 % at worst (the run's number), 0.8 % and 3.4 % (tasks like these).",
    ),
    "mover": IntervalCard(
        one_line="The interval of a mean over datasets, recovered from the intervals of the datasets.",
        formula="value - sqrt(sum (w_i (v_i - low_i))^2) and value + sqrt(sum (w_i (high_i - v_i))^2), weights w_i",
        source="Zou and Donner 2008, Confidence limits about effect measures, Statistics in Medicine 27",
        use="What the macro and micro means of a suite carry.",
        none="As wide as the datasets' own intervals say, never without width.",
        full="Likewise.",
        one_task="No interval when one of the datasets has none; why names it.",
        on_request=False,
    ),
    "posterior": IntervalCard(
        one_line="The central interval of a posterior over these very tasks, sampled again.",
        formula="quantiles of the beta distribution that has the posterior's mean and variance",
        source="Hariri et al. 2026, Don't pass@k: a Bayesian framework, arXiv:2510.04265",
        use="What bayes_mean and bayes_pass@k carry. It says nothing of other tasks; mean_reward and pass@k do.",
        none="Above 0, which the prior holds impossible.",
        full="Below 1, likewise.",
        one_task="Defined: the samples of one task say something about that task.",
        on_request=False,
    ),
}
"""Name of a method, as it stands in a result -> its card."""
