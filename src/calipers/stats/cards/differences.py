"""Cards of the tests of two runs: is there a difference, and is it smaller than a margin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from calipers.stats.cards.card import MethodCard

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
