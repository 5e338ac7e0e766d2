"""Plainer words for texts inside a document that its digest covers: reasons (`why`) and methods (`method`).

The document keeps its text, so that old and new digests agree. A page shows the text from these tables.
"""

from __future__ import annotations

import re
from typing import Final

WHY: Final = (
    # the result of one run
    (
        r"the values are too large for their (spread|sum) to be a number",
        r"the values are so large that their \1 overflows",
    ),
    (r"undefined for these values", "it cannot be computed from these values"),
    (r"one (task|cluster) says nothing about others", r"at least two \1s are needed"),
    (r"no spread and no known range", "all task values are equal, and the range of rewards is not known"),
    (r"narrower than the rounding of its mean", "narrower than floating-point precision"),
    (r"say little about the extremes of its source", "say little about the extremes of the population"),
    (
        r"too few tasks: the percentile may lie beyond all that was seen",
        "with so few tasks the true percentile may lie outside the observed values",
    ),
    (r"too many (rewards|values) to draw (\d+) times", r"too many \1 to resample \2 times"),
    (r"the draws agree at this confidence", "all bootstrap draws agree at this confidence level"),
    (r"needs tasks that count alike, and no clusters", "needs tasks of equal weight and no clusters"),
    (r"all (.+?) agree, and (\S+) has no width without spread", r"all \1 are equal, so \2 has no width"),
    (r"a sum describes these rollouts; it estimates nothing beyond them", "a sum describes these rollouts only"),
    (
        r"no interval is computed for a ratio of totals that may divide by no pass",
        "no interval: it is a ratio of totals, and the number of tasks with a pass may be 0",
    ),
    # a run that was stopped because of its results
    (r"(a|the) run was stopped by what it showed", r"\1 run was stopped by its own results"),
    (r", and a confidence sequence needs values of a known range", ", and a confidence sequence needs a known range"),
    (r"no confidence sequence is known for", "there is no confidence sequence for"),
    (r"a confidence sequence of clusters is not known", "there is no confidence sequence for clusters"),
    (r"ranks over a fixed number of tasks do not hold then", "ranks need a fixed number of tasks"),
    (
        r", and a test for a fixed number of tasks does not hold then; compare --anytime does",
        ", so a test for a fixed number of tasks is not valid; compare --anytime is",
    ),
    # the difference of two runs, and ranks
    (r"range, as 0 to 1 for passes", "range, such as 0 to 1 for passes"),
    (r"a bet must never lose more than there is", "the range limits each bet"),
    (
        r"no mean of task values, so that no sequence of tasks shows it",
        "the metric is not a mean of task values, so there is no anytime test for it",
    ),
    (
        r"sample counts differ, and weigh earlier tasks anew with every later one; pass@1 is a mean over tasks",
        "sample counts differ, so every later task changes the weights of earlier tasks; pass@1 is a mean over tasks",
    ),
    (r"samples are too many to draw them (\d+) times", r"samples are too many to resample \1 times"),
    (
        r"(no interval at \S+ %) from (.+), which may all point one way by chance",
        r"\1: by chance \2 may all point the same way",
    ),
    (r"(\d+) are too few to draw ranks from", r"\1 tasks or clusters are too few for ranks"),
    (r"by chance all may point one way", "by chance all may point the same way"),
    (r"every draw gives the same difference", "every bootstrap draw gives the same difference"),
    (r"(\d+) common tasks or clusters; ranks take two or more", r"ranks need two common tasks or clusters, not \1"),
    (
        r"(\d+) common tasks or clusters; a winner takes two or more",
        r"a winner needs two common tasks or clusters, not \1",
    ),
    (
        r"second run: its plan, when its tasks started, or their first rows",
        "second run (by its plan, its start times, or its first rows)",
    ),
    # a curve beyond the samples
    (
        r"(no task has a (pass|failure)): nothing says how rare (passes|failures) are",
        r"\1, so the rate of \3 cannot be estimated",
    ),
    (r"to fit a law of chances", "to fit a distribution of pass probabilities"),
    (
        r"do not look like a beta law with a share never solved",
        "do not fit a beta distribution with a share of tasks that are never solved",
    ),
    (
        r"if chances follow a beta law with a share never solved",
        "assuming that pass probabilities follow a beta distribution and that a share of tasks is never solved",
    ),
)
"""A regular expression for the text in a document, and the text that a page shows in its place."""

METHOD: Final = {
    "floored_t": "paired t test (floored_t)",
    "strict": "strict paired test",
    "sign_flip": "sign-flip test (sign_flip)",
    "mcnemar": "McNemar's exact test (mcnemar)",
    "mid_p": "McNemar's mid-p test (mid_p)",
    "paired_bootstrap": "paired bootstrap",
    "betting": "anytime test (betting)",
    "max_t_bias": "method max_t_bias",
}
"""A method in a document -> its name on a page; the name in brackets is the one that ``calipers explain`` accepts."""


def plain_why(why: str) -> str:
    """A reason in plainer words; the reason itself if no pattern matches.

    >>> plain_why("one task says nothing about others")
    'at least two tasks are needed'
    """
    for pattern, words in WHY:
        why = re.sub(pattern, words, why)
    return why


def plain_method(method: str) -> str:
    """A method in plainer words, with its name.

    >>> plain_method("betting")
    'anytime test (betting)'
    """
    return METHOD.get(method, method)
