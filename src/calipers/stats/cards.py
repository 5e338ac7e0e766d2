"""Cards: what each interval, test, adjustment and estimator is, in plain words, as data; no arithmetic is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from calipers.errors import UnknownName

ONE_TASK = "No interval: one task, or one cluster, says nothing about others."


@dataclass(frozen=True, slots=True)
class IntervalCard:
    """What a reader should know of an interval before believing it."""

    one_line: str
    formula: str
    source: str
    use: str  # when to use it
    none: str  # at 0 %
    full: str  # at 100 %
    one_task: str = ONE_TASK
    mind: str = ""
    coverage: str = ""  # only what was measured
    on_request: bool = True  # whether --interval takes the name

    def parts(self) -> list[tuple[str, str]]:
        """The labelled texts in the order they are shown."""
        labelled = [
            ("formula", self.formula),
            ("source", self.source),
            ("when", self.use),
            ("at 0 %", self.none),
            ("at 100 %", self.full),
            ("one task", self.one_task),
            ("mind", self.mind),
            ("coverage", self.coverage),
            ("on request", "" if self.on_request else "no name of --interval: it comes by itself"),
        ]
        return [(label, text) for label, text in labelled if text]


@dataclass(frozen=True, slots=True)
class MethodCard:
    """What a reader should know of a test, an adjustment or an estimator before believing it."""

    one_line: str
    answers: str  # the question
    formula: str
    source: str
    use: str  # when to use it, and when it comes by itself
    limit: str  # what it cannot do
    measured: str = ""  # only what was simulated or enumerated
    option: str = ""  # how to ask for it

    def parts(self) -> list[tuple[str, str]]:
        """The labelled texts in the order they are shown."""
        labelled = [
            ("answers", self.answers),
            ("formula", self.formula),
            ("when", self.use),
            ("measured", self.measured),
            ("limit", self.limit),
            ("source", self.source),
            ("option", self.option),
        ]
        return [(label, text) for label, text in labelled if text]


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


_LEVELS = "How often it sees a difference that is not there, nominally 5 %"

DIFFERENCES: Final[Mapping[str, MethodCard]] = {
    "floored_t": MethodCard(
        one_line="The default test of two runs: a paired t test whose standard error cannot become too small.",
        answers="Do the two runs differ on tasks like these? Its interval says by how much; the two agree.",
        formula="D = sum c_g over tasks or clusters, se^2 = G/(G-1) sum (c_g - W_g D)^2 + (max |c_g| / 2)^2, t = D/se "
        "with max(1, U - 1) degrees of freedom; the interval is D +- t se. No pair differs: p = 1, and the interval "
        "holds every share of differing pairs that would leave none in sight.",
        use="Every mean of task values and every pooled rate, with clusters or without: what compare and gate use "
        "unless told otherwise.",
        measured=f"{_LEVELS}, on average / at worst: fair worlds, where both runs draw from one law, 1.7 / 5.4 % at 10 "
        "tasks, 3.9 / 5.3 % at 100; 50 clusters 4.4 / 5.0 %. Skewed worlds, where one run is steady and the other "
        "nearly all or nothing: 14.8 / 64.4 % at 10 tasks, 10.0 / 39.5 % at 30, 6.5 / 14.6 % at 100, 5.1 / 5.6 % at "
        "1,000. On a fresh grid: fair 3.4 / 5.7 %, milder skewed worlds 5.2 / 19.4 %.",
        limit="It cannot know of rare large losses that it has not seen: on few tasks against an all-or-nothing run, "
        "use --test strict. The half in its formula was chosen by simulation. A margin needs more: see tango and "
        "margin_score.",
        source="Student 1908, The probable error of a mean, Biometrika 6; pairs and clusters: Miller 2024, "
        "arXiv:2411.00640; the floor is ours, chosen by simulation",
        option="--test default",
    ),
    "strict": MethodCard(
        one_line="The default interval of means on [-1, 1], asked about differences.",
        answers="Do the two runs differ, even if one is steady and the other all or nothing?",
        formula="wilson_t on (d + 1)/2 for differences d on [-1, 1]; rejects when 0 lies outside the interval",
        use="Few tasks, and a steady run against one that passes some tasks always and others never; whenever one more "
        "task lost outright would undo the verdict.",
        measured=f"{_LEVELS}, at worst: fair 5.1 %, skewed 5.3 %; where the other run passes a task always or never "
        "7.2 % (100 tasks of mean 0.98, rewards of the first run nearly constant).",
        limit="It sees little that is finer than one task: in fair worlds it rejects 0.1 % at 10 tasks and 1.4 % at "
        "100 on average, so it finds fewer true differences. It needs a known range. It is no test of a margin: "
        "gates with a margin passed a worse run in up to 13.4 % in place of 2.5 %.",
        source="Wilson 1927, JASA 22, for the form; the effective number of tasks is ours, chosen by simulation",
        option="--test strict",
    ),
    "sign_flip": MethodCard(
        one_line="The sign-flip permutation test: how often random signs bring a difference this large.",
        answers="Could the differences as well have had the other signs?",
        formula="p = share of sign patterns with |sum e_g c_g| >= |sum c_g|, e_g = -1 or 1; all patterns up to 20 "
        "units that differ, else (hits + 1)/(draws + 1) of 10,000 seeded ones",
        use="When no distribution is to be assumed, and under no difference each task's difference is as likely to be "
        "positive as negative.",
        limit="Equal means alone do not make the differences symmetric: against an all-or-nothing run they are not, "
        "and it promises nothing there. The interval beside its p is that of the floored t, so the two may disagree "
        "near the limit. With five units or fewer p cannot reach 5 %.",
        source="Fisher 1935, The Design of Experiments; (hits + 1)/(draws + 1): Phipson and Smyth 2010, SAGMB 9",
        option="--test sign-flip",
    ),
    "mcnemar": MethodCard(
        one_line="McNemar's exact test: of the tasks that only one run passes, how many are the first run's?",
        answers="Does one run pass more tasks than the other, one pass or fail a task?",
        formula="p = min(1, 2 P(X <= min(b, c))), X of b + c fair coins, b and c the tasks that only one run passes",
        use="One pass or fail a task, no clusters, and a level that must be kept exactly.",
        measured=f"{_LEVELS}, at worst: fair 4.5 %, skewed 4.5 %, all or nothing 4.7 %; at 10 tasks at most 0.9 %.",
        limit="Refused for anything but one pass or fail a task. It rejects less often than it might; mid_p less so. "
        "The interval beside its p is that of the floored t, so the two may disagree near the limit.",
        source="McNemar 1947, Note on the sampling error of the difference between correlated proportions, "
        "Psychometrika 12",
        option="--test mcnemar",
    ),
    "mid_p": MethodCard(
        one_line="McNemar's test with half the chance of the table seen taken off at each side.",
        answers="The question of mcnemar, with more power.",
        formula="p = 2 P(X <= min(b, c)) - P(X = min(b, c)), at most 1",
        use="One pass or fail a task, no clusters, when mcnemar's caution costs too much.",
        measured=f"{_LEVELS}, at worst: fair 5.1 %, skewed 5.0 %, all or nothing 5.2 %.",
        limit="Its level is not proven, only near 5 %. The interval beside its p is that of the floored t, so the two "
        "may disagree near the limit.",
        source="Lancaster 1961, Significance tests in discrete distributions, JASA 56; Fagerland, Lydersen and Laake "
        "2013, BMC Medical Research Methodology 13",
        option="--test mid-p",
    ),
    "paired_bootstrap": MethodCard(
        one_line="The difference again on tasks drawn with replacement, the same draw for both runs.",
        answers="Do the runs differ in a number that is no mean of task values: a median, F1, BLEU, cost per solved?",
        formula="10,000 seeded draws of all tasks or clusters; the interval reaches to the quantiles Phi(-+ "
        "sqrt(n/(n-1)) t(n-1)), p is read the same way round and is at least 2^(1-n)",
        use="What compare uses by itself for every metric that is no mean and no pooled rate.",
        limit="What is rare is seldom among few tasks and never drawn from them. Five units or fewer have no interval "
        "at 95 %. Smallest, largest and sum have none at all.",
        source="Efron 1979, Annals of Statistics 7; expanded percentiles: Hesterberg 2015, The American Statistician "
        "69",
        option="--test bootstrap (of a single number, --interval bootstrap: see bootstrap)",
    ),
    "equivalence": MethodCard(
        one_line="Two one-sided tests: shown to be smaller than a margin in both directions.",
        answers="Is the difference too small to matter? Not significant does not answer that.",
        formula="the larger of p(true difference <= -m) and p(true difference >= m), each by tango or margin_score",
        use="compare --margin M, with an M chosen before looking.",
        limit="Few tasks cannot show it: two equal runs pass only from about 2.71 (1 - m)/m tasks on. Each claim "
        "stands at its own 5 %, not adjusted for others.",
        source="Schuirmann 1987, J. Pharmacokinetics and Biopharmaceutics 15",
        option="compare --margin M",
    ),
    "non_inferiority": MethodCard(
        one_line="One one-sided test: worse by less than a margin.",
        answers="Is the new run no worse than the old one by m or more?",
        formula="p(true difference <= -m) at half of 1 - confidence, by tango or margin_score; better implies it",
        use="gate --require 'lower(delta(X)) >= -m'.",
        limit="Two equal runs pass only from about 3.84 (1 - m)/m tasks on: 73 for m = 0.05, 381 for 0.01.",
        source="Tango 1998, Statistics in Medicine 17; see tango and margin_score",
        option="gate --require 'lower(delta(mean_reward)) >= -0.02'",
    ),
    "tango": MethodCard(
        one_line="Tango's score for a margin, with an exact p: the largest over every share of tasks gained.",
        answers="Is the new run no worse than m, from b tasks fixed and c broken of T?",
        formula="Z = (b - c + T m)/sqrt(T (2q - m(1+m))), q the larger root of 2T q^2 + B q + c m (1+m) = 0, B = -b "
        "- c - (2T - b + c) m; p = max over pi of P(Z(b', c') >= Z), (b', c') trinomial with chances pi and pi + m. "
        "Above 2,000 tasks the plain score.",
        use="By itself for a margin, where every task's difference is -1, 0 or 1, tasks count alike and there are no "
        "clusters.",
        measured="Enumerated over 20 to 1,000 tasks and margins of 0.01 to 0.1: a run exactly at the margin, with up "
        "to 10 % of the tasks fixed, passes in at most 2.474 % (gate, 2.5 % allowed) and 4.951 % (each side of "
        "equivalence, 5 % allowed). Over all shares of fixes it is 2.76 and 5.27 %, as whoever is better is no worse. "
        "Breaking one more task never turns a fail into a pass.",
        limit="With few pairs that differ it passes less often than a plain interval did, whose level was wrong: up to "
        "3 points less power with 30 differing pairs, 3 to 7 with 10 to 20, 30 with two.",
        source="Tango 1998, Equivalence test and confidence interval for the difference in proportions for the "
        "paired-sample design, Statistics in Medicine 17",
    ),
    "margin_score": MethodCard(
        one_line="For a margin on graded rewards: the floored t, and a score with the variance at the margin, both.",
        answers="Is the new run no worse than m, for graded rewards, several samples, clusters or pooled rates?",
        formula="passes when D - t se_r >= -m (floored_t) and (D + m)/s_0 >= z, s_0^2 = sum W_g^2 (x_g - D)^2 + max(0, "
        "V_0 - V)/U, x_g the mean difference of a unit, V = sum W_g x_g^2 - D^2, V_0 the variance of the likeliest law "
        "with mean -m on values from -1",
        use="By itself for a margin wherever tango does not apply.",
        measured="At a nominal 2.5 %, worst over 15 worlds, 10,000 replicates a cell: 2.8 % (the interval of the "
        "difference: up to 19.3 %); at 5 %: 5.9 %. With no true difference it loses little power once the number of "
        "units times m is 8 or more.",
        limit="It holds in the long run, not exactly. Below 4/m units nothing passes without gains: close agreement on "
        "few tasks cannot rule out a loss that few tasks cannot show. Without a known range only the floored t is "
        "left, and nothing protects against losses not yet seen.",
        source="Tango 1998, Statistics in Medicine 17, carried to graded values by the empirical likelihood of Owen "
        "1988, Biometrika 75",
    ),
    "betting": MethodCard(
        one_line="A paired confidence sequence by betting: its verdict may be read after every batch of tasks.",
        answers="Do the runs differ, if I keep adding tasks and look every time?",
        formula="E(mu) = mean over six sizes delta and both directions of prod (1 +- lambda_t (d_t - mu)), lambda_t = "
        "delta/sqrt(v_t) cut at 0.98/(1 +- mu), v_t = (1 + sum over earlier (d_i - mu)^2)/(t + 3); a difference is "
        "claimed when E(0) reaches 1/alpha, the interval holds every mu with E(mu) < 1/alpha",
        use="compare --anytime: when tasks are added until the answer is clear.",
        measured="False claims over 50 looks at 20 to 1,000 tasks, nominally 5 % (10,000 runs in each of 126 worlds): "
        "at most 3.6 %, the floored t at every look up to 73.1 %. At the size where one fixed test has a power of "
        "about 80 % it has 45.6 to 55.6 %, and it reaches 80 % with 1.56 to 1.76 times the tasks; with finely graded "
        "rewards (sd below 0.2) 17.5 to 27.7 %, and up to 1.85 times.",
        limit="Needs a known range, and tasks in an order that does not depend on results. One fixed look at the end "
        "is more powerful.",
        source="Waudby-Smith and Ramdas 2024, Estimating means of bounded random variables by betting, JRSS B 86; "
        "level by Ville 1939",
        option="compare --anytime",
    ),
}
"""Tests of a difference, and of a difference and a margin."""


FAMILIES: Final[Mapping[str, MethodCard]] = {
    "holm": MethodCard(
        one_line="Bonferroni step by step: adjusted p for the chance of any false claim.",
        answers="Which of m differences hold, if one false claim among all is wrong in at most 5 %?",
        formula="the smallest p times m, the next times m - 1, ..., never decreasing, at most 1",
        use="Several tests of which no false one may slip through; whatever their dependence.",
        limit="It has no simple intervals: an interval beside it stands by itself.",
        source="Holm 1979, A simple sequentially rejective multiple test procedure, Scandinavian J. of Statistics 6",
        option="--adjust holm",
    ),
    "bh": MethodCard(
        one_line="Benjamini and Hochberg: of all that is claimed, the expected share of false claims is kept.",
        answers="Which of many differences are worth a second look, if 5 % of those may be false?",
        formula="the i-th smallest p times m/i, and never more than what follows",
        use="Many tests, to find candidates.",
        limit="For independent or positively dependent tests. A single claim may be false more often than in 5 %.",
        source="Benjamini and Hochberg 1995, Controlling the false discovery rate, JRSS B 57",
        option="--adjust bh",
    ),
    "by": MethodCard(
        one_line="Benjamini and Yekutieli: bh under any dependence.",
        answers="The question of bh, whatever the dependence of the tests.",
        formula="bh times 1 + 1/2 + ... + 1/m",
        use="Many tests whose dependence is unknown.",
        limit="Much less powerful than bh.",
        source="Benjamini and Yekutieli 2001, Annals of Statistics 29",
    ),
    "bonferroni": MethodCard(
        one_line="Each p times the number of tests.",
        answers="The question of holm, in one step.",
        formula="min(1, m p)",
        use="Where a plain rule is wanted that everybody knows.",
        limit="Never more powerful than holm or sidak.",
        source="Dunn 1961, Multiple comparisons among means, JASA 56",
    ),
    "sidak": MethodCard(
        one_line="Sidak's adjustment in one step: p and interval of each line agree.",
        answers="Which slices and further metrics differ, if any false claim among all S is wrong in at most 5 %?",
        formula="adjusted p = 1 - (1 - p)^S; intervals at confidence (1 - alpha)^(1/S). S counts the lines below the "
        "primary question",
        use="Slices and further metrics of compare, which are decided only when the primary question is (gatekeeping).",
        measured="With the primary question before it, 10,000 replicates: a false claim on any line of the page in "
        "5.2 % (no difference, 5 slices of 40 tasks) and 4.7 % (10 of 50), and in 1.5 % or less where some slices "
        "differ. Holm over all lines finds at most 2.1 points more of them.",
        limit="Exact for independent tests, as of disjoint slices; for overlapping ones it holds for normal means.",
        source="Sidak 1967, Rectangular confidence regions for the means of multivariate normal distributions, JASA 62",
        option="--adjust sidak, the default",
    ),
    "none": MethodCard(
        one_line="No adjustment: each p stands by itself. As the interval of a signature: there is none.",
        answers="What does this one test say, if it had been the only one?",
        formula="p as it is",
        use="When every question was asked for itself, or all must hold at once, as the rules of a gate.",
        limit="Of twenty tests of nothing one succeeds at 5 %.",
        source="none is needed",
        option="--adjust none",
    ),
    "gatekeeping": MethodCard(
        one_line="The first metric on all tasks is the primary question; the rest is decided only when it is.",
        answers="How can one look at slices without paying for it in the main result?",
        formula="the primary question at full alpha; below it sidak; undecided primary: the other lines are hints",
        use="compare with several metrics or --by. --primary names another primary question.",
        measured="10,000 replicates, 5 slices of 40 tasks, all better by 0.1: the primary difference is found in 74.5 "
        "% (49.4 % when all lines were adjusted together).",
        limit="A change in one slice only is found less often: 7.8 % in place of 28.7 % (one of 10 slices of 50 tasks "
        "better by 0.2). Whoever asks about a slice first names it as the primary question.",
        source="Westfall and Krishen 2001, J. Statistical Planning and Inference 99",
        option="compare --primary 'mean_reward[difficulty=hard]'",
    ),
    "rank_sets": MethodCard(
        one_line="Rank confidence sets: for every run the ranks that are not ruled out, all at once.",
        answers="Which places could each run really have?",
        formula="all pairs tested together: |t_jk| of the floored t against the 95 % point of the largest |t| over "
        "pairs under random signs, step down; ranks from 1 + runs shown better to M - runs shown worse",
        use="The table of ranks of compare with three runs or more.",
        measured="All sets right at once, 95 % asked for (4,000 replicates a cell; 3, 10 and 40 runs, 100 and 500 "
        "tasks): 95.1 to 96.2 % among equal runs, 96.0 to 100.0 % among unequal ones.",
        limit="Where many runs are close the sets are wide; that is what the data say.",
        source="Mogstad, Romano, Shaikh and Wilhelm 2024, Inference for ranks with applications to mobility across "
        "neighbourhoods and academic achievement across countries, Review of Economic Studies 91",
    ),
    "winner": MethodCard(
        one_line="The interval of the run that was picked because it looked best.",
        answers="What is the best of M runs worth, once the luck of being picked is taken off?",
        formula="from X_w - q s_w to X_w - bias + 1.96 s_w; S drawn from N(0, G), G the covariance of the M means; q "
        "the 97.5 % point of max S_j/s_j, bias the mean of S at the largest X + S; value X_w - bias. Where the range "
        "is known the lower end is at most that of the default interval with q in place of 1.96",
        use="The best of several runs or checkpoints on the same tasks.",
        measured="Coverage at 95 % (4,000 replicates a cell; best of 3 and of 10 runs, 100 and 500 tasks): 96.2 to "
        "97.9 % among runs around 0.5, equal or with gaps of 0.01, and 98.1 to 100.0 % among equal runs of mean 0.95; "
        "the plain interval 80.0 to 93.3 and 28.0 to 83.9 %.",
        limit="Every candidate that was looked at must be among the M. Among equal runs about a third of the optimism "
        "stays in the value.",
        source="Zrnic and Fithian 2024, Locally simultaneous inference, Annals of Statistics 52, and Andrews, Kitagawa "
        "and McCloskey 2024, Inference on winners, Quarterly J. of Economics 139, for the question; this combination "
        "was chosen by simulation",
    ),
    "optimism": MethodCard(
        one_line="By how much the best of M runs would look too good if all were alike.",
        answers="How much of the winner's lead is the luck of being picked, at most?",
        formula="the mean over draws of the tasks of the largest deviation among the M runs from their own means",
        use="The line under the ranks of compare.",
        limit="It supposes that all runs are alike; where one is clearly best it is too much. See winner.",
        source="Efron 2011, Tweedie's formula and selection bias, JASA 106, for the problem",
    ),
}
"""Adjustments, ranks, and the best of many."""


SAMPLES: Final[Mapping[str, MethodCard]] = {
    "beta_binomial": MethodCard(
        one_line="pass@k beyond the samples: chances from a beta law with a share of tasks never solved.",
        answers="What would pass@k be with more samples than there are, if chances follow such a law?",
        formula="counts of n: f(0) = zeta + (1 - zeta) BB(0), f(c) = (1 - zeta) BB(c; n, a, b), fitted by maximum "
        "likelihood; pass@k = (1 - zeta)(1 - B(a, b+k)/B(a, b)). Band: the hull of 200 bootstrap draws of tasks and of "
        "all parameters with a log likelihood within 1.92 of the largest",
        use="curve --to K, with 4 samples or more of 30 tasks or more.",
        measured="Coverage at 95 % (4,000 replicates a cell, from 4 to 16 and 8 to 64 samples, 100 and 300 tasks): "
        "92.9 to 96.2 % in five beta worlds, bootstrap alone 87.1 to 94.5 %; pass^k at least 90.3 %.",
        limit="No point without the law. Two kinds of tasks, half at 0.05 and half at 0.9, are no such law: with 8 "
        "samples they are refused, with 4 and 100 tasks in 27.6 % only, and the band then covers 35.4 %. Refused "
        "above 16 times the samples, without any pass or any failure, and where the fit has p < 0.01.",
        source="Griffiths 1973, Maximum likelihood estimation for the beta-binomial distribution, Biometrics 29; "
        "likelihood set: Wilks 1938",
        option="curve --to 64",
    ),
    "noncentral_t": MethodCard(
        one_line="The power of the floored t before the run, and the tasks that a power takes.",
        answers="How often would a difference this large be shown on so many tasks and samples?",
        formula="P(|t| > t(1 - alpha/2; U - 1)), t noncentral with D/se, se^2 = (w^2 + s_1^2/K + s_2^2/K)/T and the "
        "floor",
        use="plan, for every design.",
        measured="From 33 to 4,645 tasks the power found is within 1.1 points of that promised (40,000 replicates).",
        limit="It is as good as the variances it is given; a pilot knows them within pilot_range.",
        source="Miller 2024, arXiv:2411.00640, section 5; Owen 1968, Technometrics 10",
    ),
    "pilot_range": MethodCard(
        one_line="The range of tasks needed that a pilot allows: the hull of two intervals of its variance.",
        answers="How many tasks will it take, and how well does this pilot know that?",
        formula="V(k) = mean of psi_t = (d_t - D)^2 T/(T-1) + (1/k - 1/K) s_t; the hull of V +- t sd(psi)/sqrt(T) "
        "and of the chi-squared interval of var(d) joined with that of s by the recovery of variances; the tasks "
        "needed follow from both ends",
        use="plan with a pilot, per row of samples.",
        measured="Covers the true need in at least 93.0 % of 4,000 simulated pilots a cell (30 to 200 tasks, 2 or 4 "
        "samples, four worlds), and in at least 96.8 % with clusters; where nearly all tasks agree and few are broken, "
        "in 77.8 % at 30 tasks of 2 samples and in 90.8 % or more from 60 tasks on.",
        limit="For more samples than the pilot had, a small pilot often cannot tell: with 30 tasks and 2 samples the "
        "lower end of V(16) is 0 in 64 to 89 %. It says so.",
        source="Zou and Donner 2008, Statistics in Medicine 27, for the recovery of variances",
    ),
    "bounds": MethodCard(
        one_line="Worst-case bounds: the number with every missing rollout at one end of the range, and at the other.",
        answers="What could the missing rollouts make of this number?",
        formula="the metric on the planned n_t samples with the missing ones all failed and all passed; of a "
        "difference, the new run's at the bottom and the old run's at the top, and the reverse. Undefined tasks (n_t "
        "< k) are filled up to k the same way",
        use="Beside every value with missing rollouts, under the verdict of compare, and as worst(X) in gate.",
        measured="Equal runs of which 20 or 50 % of B's failures are lost, 200 tasks, 10,000 replicates: 'better' on "
        "what was seen 15.2 and 74.3 %, still better with all missing filled as failures 2.6 and 2.5 %.",
        limit="They hold whatever the missing rollouts are, so they are wide where many are missing. Sampling error "
        "comes on top: worst(X) is the end of the interval on the filled data. Tasks left out by --until are not "
        "missing.",
        source="Manski 1989, Anatomy of the selection problem, J. of Human Resources 24",
        option="gate --require 'worst(mean_reward) >= 0.5'",
    ),
    "tipping_point": MethodCard(
        one_line="How many of the missing rollouts may fail before the verdict falls.",
        answers="Is B better even if its missing rollouts failed, and if not all, how many?",
        formula="the largest x such that the verdict holds with 0 to x of B's missing rollouts failed, those first "
        "that cost the most, the rest passed; A's missing rollouts at the top of the range",
        use="Under a verdict of compare when rollouts are missing.",
        measured="Against every placement in 180 random small cases of four metrics: right in all.",
        limit="Where the placements are too many to try all of them it is that of the costliest; below 20 tasks the "
        "page then says about so many.",
        source="Yan, Lee and Li 2009, Missing data handling methods in medical device clinical trials, J. "
        "Biopharmaceutical Statistics 19",
    ),
    "retries": MethodCard(
        one_line="The warning that tasks were sampled until their first pass.",
        answers="Do the sample counts depend on the results by retries?",
        formula="no task has more than one pass, every task with fewer samples than the most has exactly one, its "
        "last; at least 5 such tasks and 5 with two samples or more",
        use="score, when counts differ. The right number then is any_of_first_k: it knows the outcome of the first k "
        "tries of every task. mean_reward and pass@1 are the first try's mean.",
        measured="False warnings, of both rules together, at most 0.7 % (10,000 runs a cell); retries up to 8 found in "
        "100 % for chances Beta(1,2), (.3,.7), (2,2) from 30 tasks on. any_of_first_k then covers 94.1 to 94.8 %.",
        limit="Where nearly every task passes at once few are tried twice, and it stays silent: Beta(10,.5) 1 % at 30 "
        "tasks, 96 % at 200. Silence is no proof.",
        source="chosen by simulation; stopping by results: Wald 1947, Sequential Analysis",
    ),
    "uneven_samples": MethodCard(
        one_line="The warning that tasks with more samples have other values: a score test.",
        answers="Do the sample counts depend on the results in some other way, as when hard tasks lose samples?",
        formula="z = sum x e/sqrt(sum (x e)^2), x_t = n_t - mean n, e_t = m_t - mean m; warns at a two-sided p below "
        "0.0005, from 20 tasks on",
        use="score, when counts differ.",
        measured="False warnings, of both rules together, at most 0.7 % (10,000 runs a cell). Samples lost by half the "
        "chance to fail are found in 2 to 22 % at 30 tasks, 34 to 91 % at 60, 100 % at 200, for chances Beta(1,2), "
        "(.3,.7), (2,2).",
        limit="Silence is no proof: on few tasks it finds little. Whenever counts differ, pass@k is not called "
        "unbiased.",
        source="Rao 1948, Proceedings of the Cambridge Philosophical Society 44, for score tests",
    ),
    "item_rest": MethodCard(
        one_line="The discrimination of a task: its correlation over runs with the mean of all other tasks.",
        answers="Do better runs pass this task? Where worse ones do, its target may be wrong.",
        formula="Pearson's r over runs of the task's value and the run's mean over its other tasks; p one-sided of a "
        "negative r by t with runs - 2 degrees of freedom, at least 1 over the ways to arrange the passes",
        use="items, with three runs or more.",
        limit="Few runs cannot make p small. One in twenty of the tasks without any discrimination is flagged by "
        "chance.",
        source="Lord and Novick 1968, Statistical Theories of Mental Test Scores",
    ),
    "two_parameter": MethodCard(
        one_line="The two-parameter logistic model: what one try at a task tells about runs of an ability.",
        answers="Which tasks to keep, when fewer are to tell good runs apart?",
        formula="P = 1/(1 + exp(-a (ability - b))), ability the logit of a run's mean; the most likely curve, a "
        "priori a around 1 (sd 1) and the logit around the mean ability (sd 2); information a^2 P (1 - P) at the "
        "best run",
        use="items --sort information, with five runs or more.",
        limit="It chooses for runs like the best: to rank runs of every kind, discrimination chooses better. Judge the "
        "runs that the tasks were chosen by on the whole benchmark.",
        source="Birnbaum 1968, in Lord and Novick, Statistical Theories of Mental Test Scores",
    ),
    "lm_eval_stderr": MethodCard(
        one_line="lm-evaluation-harness' own standard error, as it prints it.",
        answers="What would lm-evaluation-harness write beside this number?",
        formula="a mean: the standard deviation with n - 1 over sqrt(n), over documents; other numbers: the standard "
        "deviation over 100,000 draws of documents, its generator and seeds",
        use="The column of its table, in runs of its tasks; the interval beside it is ours.",
        limit="Documents are its units: it knows no clusters, and 0 where all documents agree.",
        source="EleutherAI lm-evaluation-harness, lm_eval/api/metrics.py",
    ),
}
"""Estimators and warnings about samples, tasks and pilots."""


_RANDOM = "It holds if the labelled rollouts were drawn at random, not picked."

JUDGES: Final[Mapping[str, MethodCard]] = {
    "ppi++": MethodCard(
        one_line="PPI++: the labels, and the judge's other scores as far as they are worth it.",
        answers="What is the score, when a judge saw all rollouts and people labelled some?",
        formula="l mean(f) + mean(y - l f), variance l^2 Var(f)/N + Var(y - l f)/n, l = Cov(y, f)/((1 + n/N) "
        "Var(f)); y labels, f the judge's scores, n tasks with labels, N without; the interval is the default rule "
        "with n units",
        use="judge-check: the answer.",
        measured="Coverage at 95 % (4,000 replicates a cell): 92.9 to 95.8 % with 20 labelled tasks or more, 93.4 to "
        "97.4 % with 8 to 15.",
        limit=f"{_RANDOM} In the long run never worse than the labels alone; with few labels it may be.",
        source="Angelopoulos, Duchi and Zrnic 2023, PPI++: efficient prediction-powered inference, arXiv:2311.01453",
        option="judge-check RUN --labels FILE",
    ),
    "ppi": MethodCard(
        one_line="Plain PPI: the judge's mean plus his mean error on the labelled rollouts.",
        answers="The question of ppi++, with the judge's word taken in full.",
        formula="ppi++ with l = 1",
        use="judge-check, for comparison.",
        limit=f"{_RANDOM} A poor judge makes it worse than the labels alone.",
        source="Angelopoulos et al. 2023, Prediction-powered inference, Science 382",
    ),
    "labels": MethodCard(
        one_line="The labels alone: what people say of the rollouts they labelled.",
        answers="What is the score without the judge?",
        formula="ppi++ with l = 0: the mean of the labels over tasks, with the default interval",
        use="judge-check, for comparison.",
        limit=f"{_RANDOM} Few labels make it wide.",
        source="see wilson_t",
    ),
    "rogan_gladen": MethodCard(
        one_line="Rogan and Gladen's share of passes: the judge's, put right by his sensitivity and specificity.",
        answers="What share passes, if the judge errs elsewhere as he does on the labelled rollouts?",
        formula="(q + specificity - 1)/(sensitivity + specificity - 1), q the judge's share of passes; error by the "
        "delta method, over tasks by a jackknife",
        use="judge-check, for labels and judgements of 0 and 1.",
        limit=f"{_RANDOM} None where all labels are alike, or where the judge tells nothing (the two add up to 1).",
        source="Rogan and Gladen 1978, Estimating prevalence from the results of a screening test, American J. of "
        "Epidemiology 107",
    ),
    "judge": MethodCard(
        one_line="The judge alone: his mean over all rollouts, not corrected.",
        answers="What does the judge say, right or wrong?",
        formula="the mean over tasks of the judge's scores, with the default interval",
        use="judge-check, for comparison; it is what score reports.",
        limit="Its interval knows nothing of the judge's bias.",
        source="see wilson_t",
    ),
    "bias": MethodCard(
        one_line="The judge's bias: judgement less label on the labelled rollouts.",
        answers="Does the judge rate too high or too low, and by how much?",
        formula="the mean over tasks of f - y, with the default interval on [-1, 1]",
        use="judge-check, in the sentence at the top.",
        limit=_RANDOM,
        source="see wilson_t",
    ),
    "krippendorff": MethodCard(
        one_line="Krippendorff's alpha: agreement among raters beyond chance; 1 is perfect, 0 is chance.",
        answers="Do raters and judge agree, more than shuffled ratings would?",
        formula="1 - D_o/D_e: disagreement within rollouts over that of all ratings shuffled; nominal (equal or not) "
        "for 0 and 1, else interval (squared distance)",
        use="judge-check, among raters and judge and among the raters alone. From 0.8 on called reliable, from 0.667 "
        "on tentative, as its author does.",
        limit="None without a rollout that two have rated, or when all ratings are the same. It has no interval here.",
        source="Krippendorff 2004, Content Analysis, 2nd edition, chapter 11",
    ),
}
"""Scores put right by labels, and agreement."""


DEFAULT: Final = "default"
ALIASES: Final[Mapping[str, str]] = {"exact": "clopper-pearson"}
METHODS: Final[Mapping[str, MethodCard]] = {**DIFFERENCES, **FAMILIES, **SAMPLES, **JUDGES}
"""Name of a test, an adjustment or an estimator, as it stands in a result -> its card."""
CARDS: Final[Mapping[str, IntervalCard | MethodCard]] = {**INTERVALS, **METHODS}
EXPLAINED: Final[Mapping[str, str]] = {
    **ALIASES,
    DEFAULT: "wilson_t",
    "sequence": "beta_mixture",
    "confidence_sequence": "beta_mixture",
    "paired_t": "floored_t",
    "permutation": "sign_flip",
    "tost": "equivalence",
    "no_worse": "non_inferiority",
    "anytime": "betting",
    "p_holm": "holm",
    "benjamini_hochberg": "bh",
    "p_bh": "bh",
    "benjamini_yekutieli": "by",
    "p_sidak": "sidak",
    "primary": "gatekeeping",
    "rank_set": "rank_sets",
    "max_t_bias": "winner",
    "worst": "bounds",
    "worst_case": "bounds",
    "power": "noncentral_t",
    "zero_inflated_beta_binomial": "beta_binomial",
    "score_test": "uneven_samples",
    "ppi_plus_plus": "ppi++",
    "ppipp": "ppi++",
    "krippendorffs_alpha": "krippendorff",
    "alpha": "krippendorff",
    "discrimination": "item_rest",
    "information": "two_parameter",
}
"""Other words -> the card that answers them."""


def method_named(name: str) -> str | None:
    """The card that a name means, - and _ and capitals aside; None where there is none.

    >>> method_named("mid-p"), method_named("PPI++"), method_named("clopper_pearson"), method_named("mean_reward")
    ('mid_p', 'ppi++', 'clopper-pearson', None)
    """
    plain = _plain(name)
    by_name = {_plain(other): card for other, card in EXPLAINED.items()}
    return {**by_name, **{_plain(card): card for card in CARDS}}.get(plain)


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_").replace("'", "")


def canonical(name: str) -> str:
    """The method that ``--interval`` means by a name; UnknownName where there is none.

    >>> canonical("exact"), canonical("default")
    ('clopper-pearson', 'default')
    """
    target = ALIASES.get(name, name)
    if target != DEFAULT and not (target in INTERVALS and INTERVALS[target].on_request):
        raise UnknownName.of("interval", name, asked_names())
    return target


def asked_names() -> list[str]:
    """Every name that ``--interval`` takes."""
    return [DEFAULT, *(name for name, card in INTERVALS.items() if card.on_request), *ALIASES]
