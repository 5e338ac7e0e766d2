"""Cards of the posterior means."""

from __future__ import annotations

from calipers.metrics.cards.card import Card
from calipers.metrics.cards.rewards import GAPS, NAN_FAILS, NOTHING, PASS

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
