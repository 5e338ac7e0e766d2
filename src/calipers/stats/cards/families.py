"""Cards of what several questions at once cost: adjusted p, ranks, and the best of many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from calipers.stats.cards.card import MethodCard

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
