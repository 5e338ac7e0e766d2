"""Cards of the metrics over all ways to draw k samples: votes and generalised passes."""

from __future__ import annotations

from calipers.metrics.cards.card import Card
from calipers.metrics.cards.rewards import (
    GAPS_AND_SHORT,
    NAN_FAILS,
    NOTHING,
    PASS,
    TOO_FEW,
    UNEVEN,
    WILSON,
    WILSON_OR_T,
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
