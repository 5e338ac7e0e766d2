"""Cards of what speaks of samples, tasks and pilots: extrapolation, plans, missing rollouts, sample counts, items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from calipers.stats.cards.card import MethodCard

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
