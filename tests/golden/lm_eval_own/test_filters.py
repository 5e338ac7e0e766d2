"""Filters, and functions in their place."""

from __future__ import annotations

from golden.lm_eval_own.ported import ported

from calipers.systems.lm_eval.pipelines import filtered, pipeline


class Louder:
    """A filter of one's own."""

    def apply(self, resps, docs):
        return [[text.upper() for text in each] for each in resps]


@ported(
    "test_filters.py",
    "settings, response, doc, expected",
    {
        "test_multi_choice_regex_all_empty_capture_groups_falls_back_to_choice_text": [
            (
                {
                    "function": "multi_choice_regex",
                    "regex_pattern": "()()",
                    "ignore_case": True,
                    "ignore_punctuation": True,
                },
                "alpha",
                {"choices": ["alpha", "beta"]},
                "(A)",
            )
        ],
        "test_multi_choice_regex_all_empty_capture_groups_falls_back_to_bare_letter": [
            (
                {"function": "multi_choice_regex", "regex_pattern": "()()"},
                ": B",
                {"choices": ["alpha", "beta"]},
                "(B)",
            )
        ],
        "test_format_span_normalizes_label_only": [
            (
                {"function": "format_span"},
                "ORGANIZATION: Shell Company $ LOCATION: Country Club $ PERSON: George",
                {},
                "org: shell company $ loc: country club $ per: george",
            )
        ],
    },
)
def test_one_response(settings, response, doc, expected):
    assert filtered(pipeline({"name": "one", "filter": [settings]}), [[response]], [doc]).values == [[expected]]


@ported(
    "test_registry.py", "function, expected", {"TestFilterRegistry::test_get_filter_callable": [(Louder, [["AB"]])]}
)
def test_a_filter_of_ones_own_is_used_as_it_is(function, expected):
    assert filtered(pipeline({"name": "one", "filter": [{"function": function}]}), [["ab"]], [{}]).values == expected
