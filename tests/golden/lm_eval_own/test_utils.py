"""Windows of long texts, delimiters, the mean and standard error of a group, values on the command line."""

from __future__ import annotations

import pytest
from golden.lm_eval_own.ported import ported

from calipers.clients.huggingface.score import windows
from calipers.errors import InputError
from calipers.running.settings import gen_kwargs
from calipers.systems.lm_eval.aggregations import stderr
from calipers.systems.lm_eval.task_scores import aggregate_group
from calipers.systems.lm_eval.tasks.loaded import joined


def run(first, last):
    return list(range(first, last + 1))


@ported(
    "test_utils.py",
    "count, longest, expected",
    {
        "test_get_rolling_token_windows_v1": [
            (
                34,
                10,
                [
                    ([-100, *run(0, 8)], run(0, 9)),
                    (run(9, 18), run(10, 19)),
                    (run(19, 28), run(20, 29)),
                    (run(23, 32), run(30, 33)),
                ],
            )
        ],
        "test_get_rolling_token_windows_v5": [
            (30, 10, [([-100, *run(0, 8)], run(0, 9)), (run(9, 18), run(10, 19)), (run(19, 28), run(20, 29))])
        ],
        "test_get_rolling_token_windows_v6": [
            (9, 2, [([-100, 0], [0, 1]), ([1, 2], [2, 3]), ([3, 4], [4, 5]), ([5, 6], [6, 7]), ([6, 7], [8])])
        ],
    },
)
def test_windows_of_a_long_text(count, longest, expected):
    found = list(windows(range(count), -100, longest))
    assert [(list(span.read), list(span.scored)) for span in found] == expected
    assert sum(len(span.scored) for span in found) == count


@ported(
    "test_utils.py",
    "read, scored, context",
    {
        "test_make_disjoint_window": [
            ([1, 2, 3, 4, 5], [2, 3, 4, 5, 6], [1]),
            ([1, 2, 3, 4, 5], [4, 5, 6], [1, 2, 3]),
            ([1, 2, 3, 4, 5], [6], [1, 2, 3, 4, 5]),
        ]
    },
)
def test_what_is_read_and_not_scored_is_the_context(read, scored, context):
    """Of the second of two windows, the first of which is full."""
    _, last = windows(run(scored[0] - len(read), scored[-1]), 0, len(read))
    assert (list(last.read), list(last.scored), list(last.context)) == (read, scored, context)


@ported(
    "test_utils.py",
    "values, sizes, weighted, expected",
    {
        "test_aggregate_mean": [
            ([0.3, 0.2, 0.4], [20, 40, 100], False, 0.3),
            ([0.3, 0.2, 0.4], [20, 40, 100], True, 0.3375),
        ]
    },
)
def test_the_mean_of_a_group(values, sizes, weighted, expected):
    rows = {str(place): {"sample_len": sizes[place], "acc,none": value} for place, value in enumerate(values)}
    found = aggregate_group("g", list(rows), rows, [{"metric": "acc", "weight_by_size": weighted}])
    assert found["acc,none"] == pytest.approx(expected, rel=1e-12)


@ported(
    "test_utils.py",
    "right_and_wrong, close",
    {"test_aggregate_stderrs": [([(40, 60), (30, 30), (20, 60)], 1e-3), ([(35, 65), (20, 20)], 1e-3)]},
)
def test_the_standard_error_of_a_group_is_that_of_all_documents(right_and_wrong, close):
    samples = [[1.0] * right + [0.0] * wrong for right, wrong in right_and_wrong]
    rows = {
        str(place): {"sample_len": len(held), "acc,none": 0.5, "acc_stderr,none": stderr("mean", held)}
        for place, held in enumerate(samples)
    }
    found = aggregate_group("g", list(rows), rows, [{"metric": "acc"}])
    together = stderr("mean", [value for held in samples for value in held])
    assert found["acc_stderr,none"] == pytest.approx(together, abs=close)


NEEDED = "TestRequiresDelimiter::test_"
MAYBE = "TestMaybeDelimit::test_"
DELIMITED = {
    f"{NEEDED}no_whitespace_requires_delimiter": [("hello", "world", "|", "hello|world")],
    f"{NEEDED}prefix_ends_with_space": [("hello ", "world", "|", "hello world")],
    f"{NEEDED}suffix_starts_with_space": [("hello", " world", "|", "hello world")],
    f"{NEEDED}both_have_whitespace": [("hello ", " world", "|", "hello  world")],
    f"{NEEDED}prefix_ends_with_newline": [("hello\n", "world", "|", "hello\nworld")],
    f"{NEEDED}suffix_starts_with_tab": [("hello", "\tworld", "|", "hello\tworld")],
    f"{MAYBE}both_present_no_whitespace": [("hello", "world", " ", "hello world")],
    f"{MAYBE}both_present_prefix_has_space": [("hello ", "world", " ", "hello world")],
    f"{MAYBE}both_present_suffix_has_space": [("hello", " world", " ", "hello world")],
    f"{MAYBE}custom_delimiter": [("hello", "world", "-", "hello-world")],
    f"{MAYBE}prefix_is_none": [(None, "world", " ", "world")],
    f"{MAYBE}prefix_is_empty": [("", "world", " ", "world")],
    f"{MAYBE}suffix_is_none": [("hello", None, " ", "hello")],
    f"{MAYBE}suffix_is_empty": [("hello", "", " ", "hello")],
    f"{MAYBE}both_none": [(None, None, " ", "")],
    f"{MAYBE}both_empty": [("", "", " ", "")],
    f"{MAYBE}newline_delimiter": [("line1", "line2", "\n", "line1\nline2")],
    f"{MAYBE}prefix_ends_with_newline_no_extra_delimiter": [("line1\n", "line2", " ", "line1\nline2")],
}


@ported("test_utils.py", "left, right, delimiter, expected", DELIMITED)
def test_two_texts_are_parted_once(left, right, delimiter, expected):
    assert joined(left, right, delimiter) == expected


READ = "TestHandleArgString::test_"
VALUES = {
    f"{READ}bool_true": [("true", True), ("True", True), ("TRUE", True)],
    f"{READ}bool_false": [("false", False), ("False", False)],
    f"{READ}none": [("None", None), ("none", None)],
    f"{READ}positive_int": [("42", 42)],
    f"{READ}negative_int": [("-1", -1)],
    f"{READ}float": [("3.14", 3.14)],
    f"{READ}negative_float": [("-0.5", -0.5)],
    f"{READ}scientific_notation": [("1e-5", 1e-5)],
    f"{READ}plain_string": [("hello", "hello")],
    f"{READ}explicit_quoted_string_preserves_numeric": [('"123123"', "123123")],
    f"{READ}explicit_single_quoted_string": [("'true'", "true")],
    f"{READ}empty_string": [("", "")],
    f"{READ}whitespace_stripped": [("  42  ", 42)],
}


@ported("test_utils.py", "text, expected", VALUES)
def test_a_value_of_gen_kwargs(text, expected):
    found = gen_kwargs(f"key={text}")["key"]
    assert (type(found), found) == (type(expected), expected)


PARSED = "TestSimpleParseArgsString::test_"


@ported(
    "test_utils.py",
    "text, expected",
    {
        f"{PARSED}basic_parsing": [("pretrained=gpt2,revision=main", {"pretrained": "gpt2", "revision": "main"})],
        f"{PARSED}numeric_revision_stays_int_by_default": [
            ("pretrained=gpt2,revision=123123", {"pretrained": "gpt2", "revision": 123123})
        ],
        f"{PARSED}quoted_revision_stays_string": [
            ('pretrained=gpt2,revision="123123"', {"pretrained": "gpt2", "revision": "123123"})
        ],
        f"{PARSED}bool_and_float_coercion": [
            ("trust_remote_code=true,temperature=0.7", {"trust_remote_code": True, "temperature": 0.7})
        ],
    },
)
def test_pairs_of_gen_kwargs(text, expected):
    assert gen_kwargs(text) == expected


MERGED = "TestMergeDictAction::test_"


@ported(
    "test_cli_subcommands.py",
    "text, expected",
    {
        f"{MERGED}comma_separated_key_value": [("key1=val1,key2=val2", {"key1": "val1", "key2": "val2"})],
        f"{MERGED}json_dict_input": [('{"key1": "val1", "key2": 42}', {"key1": "val1", "key2": 42})],
        f"{MERGED}json_nested_dict": [('{"outer": {"inner": "value"}}', {"outer": {"inner": "value"}})],
        f"{MERGED}type_coercion": [("num=42,flag=true,pi=3.14", {"num": 42, "flag": True, "pi": 3.14})],
        f"{MERGED}key_overwrite": [("key=first,key=second", {"key": "second"})],
        "TestCLIUtils::test_try_parse_json_with_json_string": [
            ('{"key": "value", "num": 42}', {"key": "value", "num": 42})
        ],
    },
)
def test_settings_on_the_command_line(text, expected):
    assert gen_kwargs(text) == expected


@ported(
    "test_cli_subcommands.py", "text", {"TestCLIUtils::test_try_parse_json_with_invalid_json": [('{key: "value"}',)]}
)
def test_what_begins_like_json_and_is_none_is_refused(text):
    with pytest.raises(InputError, match="--gen-kwargs: is not a JSON object"):
        gen_kwargs(text)
