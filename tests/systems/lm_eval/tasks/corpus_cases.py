"""The cases of the corpus: the completions for each document of a task file, and the numbers computed by hand.

``GENERATED`` are run from file to number; ``LOADED`` need log-likelihoods, so their requests are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Generated:
    """A generation task: the completions of each document, one per repeat, and the expected row of the results."""

    file: str
    says: list[str | list[str]]
    numbers: dict[str, float]  # metric,pipeline -> its number, and no other
    outcomes: dict[str, int] | None = None  # of the ledger; None: all scored
    prompt: str | None = None  # of the first document
    code: int = 0  # the command ends with


@dataclass(frozen=True)
class Loaded:
    """A log-likelihood task: the expected requests of its first document, its metrics and their aggregations."""

    file: str
    requests: list[tuple[Any, ...]]
    metrics: dict[str, str]


GENERATED = [
    # without a filter nothing is stripped: " 14" is no "14"
    Generated("defaults", ["5", " 14", "16", "none"], {"exact_match,none": 1 / 2}, prompt="Q: 2 + 3\nA:"),
    Generated(
        "take_first",
        [["5", *"x" * 9], ["14", *"x" * 9], ["x", *["16"] * 9], ["x", *["42"] * 9]],
        {"exact_match,first": 1 / 2},
    ),
    # the pattern takes the full stop of "14." along; 16 has no marker
    Generated(
        "regex",
        ["so #### 5", "#### 14.", "16", "#### 42"],
        {"exact_match,strict-match": 1 / 2},
        outcomes={"scored": 3, "unparsed": 1},
    ),
    Generated("remove_whitespace", [" 5\n", "14 .", "\t16", "4 2"], {"exact_match,trimmed": 1 / 2}),
    # in turn: the pattern, the text of a choice, a letter after a colon, nothing
    Generated(
        "multi_choice_regex",
        ["It is (C).", "GREEN, maybe", "answer: A", "no idea"],
        {"exact_match,flexible-extract": 3 / 4},
        outcomes={"scored": 3, "unparsed": 1},
    ),
    # a dot does not match a line's end, so "\n42" has no first line to find
    Generated(
        "regex_twice",
        [" 5 Q: 1 + 1", "14", "sixteen", "\n42"],
        {"exact_match,get_response": 1 / 2},
        outcomes={"scored": 3, "unparsed": 1},
    ),
    # strict: documents 0 and 3; flexible takes the last number, with its full stop where there is one
    Generated(
        "pipelines_two",
        ["The answer is 5.", "14", "7 + 9 is 16", "The answer is 42. Yes, 42"],
        {"exact_match,strict-match": 2 / 4, "exact_match,flexible-extract": 3 / 4},
        outcomes={"scored": 2, "unparsed": 2},
    ),
    # the fallback votes: two "no" beat one 42 among three
    Generated(
        "pipelines_three",
        [
            ["5", "6", "6", *["5"] * 7],
            ["x", "14", "14", *["13"] * 7],
            ["16"] * 10,
            ["no", "no", "42", *["41"] * 3, *["42"] * 4],
        ],
        {"exact_match,first": 2 / 4, "exact_match,maj@3": 2 / 4, "exact_match,maj@10": 3 / 4},
        outcomes={"scored": 37, "unparsed": 3},
    ),
    # 33 of 64; a tie goes to what was seen first; all; a minority
    Generated(
        "votes_of_64",
        [
            ["5"] * 33 + ["6"] * 31,
            ["13"] * 32 + ["14"] * 32,
            ["16"] * 64,
            ["42"] * 20 + ["41"] * 44,
        ],
        {"exact_match,maj@64": 2 / 4},
    ),
    # gold 1 0 1 0 1, found 1 0 0 1 0: TP 1, TN 1, FP 1, FN 2
    Generated(
        "mapped",
        ["True", "false", "FALSE", "true", "maybe"],
        {"f1,class": 2 / 5, "mcc,class": (1 * 1 - 1 * 2) / (2 * 3 * 2 * 3) ** 0.5},
        outcomes={"scored": 4, "unparsed": 1},
    ),
    # patterns first, in their order, then case, then ASCII punctuation; an accent is none
    Generated("ignoring", [" paris.", "Lima city\n", "washington dc", " Brasilia"], {"exact_match,none": 3 / 4}),
    Generated("ignoring_numbers", [" Paris1", "Lima", " Washington, D.C.0", " Brasília"], {"exact_match,none": 3 / 4}),
    # n-grams that match: 6 + 4 of 11, 5 + 2 of 9, 4 + 1 of 7, 3 + 0 of 5, and no brevity; one word of 11 replaced
    Generated(
        "translation",
        ["the cat sat on the mat", "the dog ran very away"],
        {"bleu,none": 100 * (10 / 11 * 7 / 9 * 5 / 7 * 3 / 5) ** 0.25, "ter,none": 100 / 11},
    ),
    # characters that match: 5 of 6, pairs 3 of 4, triples 1 of 2, on both sides; longer ones there are not
    Generated("characters", ["abc", "abc"], {"chrf,none": 100 * (5 / 6 + 3 / 4 + 1 / 2) / 3}),
    # 3 entities are found, all right, of 4
    Generated(
        "format_span", ["Person: Anna\nLocation: Rome", "Company: Acme $ Date: none"], {"f1,flexible-extract": 6 / 7}
    ),
    # NOUN of (NOUN, VERB), then ADJ NOUN of (ADJ, NOUN, VERB)
    Generated(
        "regex_pos",
        ["[('Dogs', 'NOUN'), ('bark', 'NOUN')]", "[('Big', 'ADJ'), ('dogs', 'NOUN')]"],
        {"acc,flexible-extract": 3 / 5},
    ),
    Generated("filter_class", ["1, 2, 5", "14!", "none", "42 is not 41"], {"exact_match,last-number": 2 / 4}),
    # 2, 0, 4 and 1 of 4 are right: 1 - C(n - c, k) / C(n, k)
    Generated(
        "filter_function",
        [["5", "5", "x", "x"], ["x"] * 4, ["16"] * 4, ["x", "x", "x", "42"]],
        {
            "pass@1,built": (2 / 4 + 0 + 1 + 1 / 4) / 4,
            "pass@2,built": ((1 - 1 / 6) + 0 + 1 + (1 - 3 / 6)) / 4,
        },
    ),
    Generated("metric_function", ["5", "15", "17", "42"], {"digits_right,none": (1 + 1 / 2 + 1 / 2 + 1) / 4}),
    # the number is lm-eval's; our ledger has a document without one, and says so: incomplete
    Generated(
        "nanmean",
        ["7", "14", "many", "40"],
        {"distance,none": (2 + 0 + 2) / 3},
        outcomes={"scored": 3, "verifier_failed": 1},
        code=3,
    ),
    Generated("median", ["6", "14", "19", "40"], {"distance,none": 2}),  # of 0 1 2 3 the upper middle
    # a key that metric_list does not name is averaged all the same
    Generated(
        "process_results",
        ["5", "014", "16", "x"],
        {"acc,none": 2 / 4, "length,none": (1 + 3 + 2 + 1) / 4, "extra,none": 2.0},
    ),
    # gold C B A C, said C B C C: F1 of C is 4/5, of B 1, of A 0
    Generated(
        "f1_functions",
        ["C", "B", "C", "C"],
        {"weighted_f1,none": (2 * 4 / 5 + 1 + 0) / 4, "micro_f1,none": 3 / 4, "subjects,none": 1.0},
    ),
    # the document about the sea is left out
    Generated(
        "hooks",
        ["blue", "green", "blue"],
        {"exact_match,none": 2 / 3},
        prompt="The colour of a clear sky? (red, green, blue)",
    ),
    Generated(
        "shown_examples",
        ["5", "14", "16", "42"],
        {"exact_match,none": 1.0},
        prompt="Example: 1 + 1 = 2\n\nExample: 3 + 3 = 6\n\nQ: 2 + 3\nA:",
    ),
    Generated("custom_dataset", ["8", "10", "13"], {"exact_match,none": 2 / 3}, prompt="Twice 4?"),
    Generated("csv", ["cold", "small", "up"], {"exact_match,none": 2 / 3}, prompt="1. The opposite of hot is"),
    Generated("target_int", ["blue", "green", "blue", "blue"], {"exact_match,none": 3 / 4}),
    # C is right, "b" is no letter of the pattern, A for C is wrong; exact_match takes the share over the list
    Generated(
        "acc_of_pairs",
        ["C", "b", "A!", "C."],
        {"acc,letter": 3 / 4, "f1,letter": 3 / 4, "exact_match,letter": 3 / 4},
        outcomes={"scored": 3, "unparsed": 1},
    ),
    Generated("member_small", ["#### 2", "#### 5"], {"exact_match,strict-match": 1 / 2}),
    Generated("member_large", ["#### 5", "#### 14", "#### 16", "#### 4"], {"exact_match,strict-match": 3 / 4}),
]

GROUPS = {  # group -> its own row; 2 documents at 1/2 and 4 at 3/4, as the members above
    "group_weighted": {"exact_match,strict-match": (2 / 2 + 4 * 3 / 4) / 6},
    "group_plain": {"exact_match,strict-match": (1 / 2 + 3 / 4) / 2},
    "group_unset": {"exact_match,strict-match": (2 / 2 + 4 * 3 / 4) / 6},
    "group_rowless": {},
}

SKY = "Q: The colour of a clear sky?\nA:"
COLOURS = [(SKY, " red"), (SKY, " green"), (SKY, " blue")]
LOADED = [
    Loaded("choice_static", COLOURS, {"acc": "mean", "acc_norm": "mean", "f1": "weighted_f1_score"}),
    Loaded("choice_jinja", COLOURS, {"acc": "mean", "acc_norm": "mean"}),
    Loaded(
        "choice_column",
        COLOURS,
        {"acc": "mean", "acc_bytes": "mean", "brier_score": "brier_score"},
    ),
    Loaded(
        "choice_two",
        [("Water is wet. True?", " no"), ("Water is wet. True?", " yes")],
        {"f1": "f1", "mcc": "matthews_corrcoef"},
    ),
    Loaded(
        "choice_contexts",
        [(f"The colour of a clear sky? {colour}", " and nothing else.") for colour in ("red", "green", "blue")],
        {"acc": "mean"},
    ),
    Loaded("likelihood", [("One two", " three.")], {"perplexity": "perplexity", "acc": "mean"}),
    Loaded(
        "rolling",
        [("One two three.",)],
        {
            "word_perplexity": "weighted_perplexity",
            "byte_perplexity": "weighted_perplexity",
            "bits_per_byte": "bits_per_byte",
        },
    ),
]

ELSEWHERE = {  # files that other tests look at, and what is said of them here
    "group_choices": "a group of tasks of log-likelihoods",
    "hub": "a dataset of the hub",
    "python_class": "a task written as a Python class",
    "evaluated": "a metric of the library evaluate",
}
