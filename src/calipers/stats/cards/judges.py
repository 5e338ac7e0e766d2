"""Cards of what judge-check reports: scores put right by labels, and agreement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from calipers.stats.cards.card import MethodCard

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
