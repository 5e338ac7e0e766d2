"""The grammar of a requirement, and the messages on texts that cannot be parsed."""

import pytest

from calipers.analyses.compare import metric_key
from calipers.analyses.gate.requirement import Gaps, gaps_allowed, parse
from calipers.errors import InputError


@pytest.mark.parametrize(
    ("text", "metric", "end", "delta", "by", "cut", "op", "number"),
    [
        ("pass@1 >= 0.6", "pass@1", None, False, None, None, ">=", 0.6),
        ("pass^3>0", "pass^3", None, False, None, None, ">", 0.0),
        ("lower(pass@1) < 1e-3", "pass@1", "lower", False, None, None, "<", 0.001),
        (" upper( mean(column=f1) ) <= .5 ", "mean(column=f1)", "upper", False, None, None, "<=", 0.5),
        ("delta(mean_reward) == -0", "mean_reward", None, True, None, None, "==", 0.0),
        ("lower(delta(pass_rate)) >= -0.02", "pass_rate", "lower", True, None, None, ">=", -0.02),
        ("pass@2[level=hard] > 1", "pass@2", None, False, "level", "hard", ">", 1.0),
        # a slice's value is any text, and a metric's own brackets are its parameters
        ("upper(mean(column=f1)[a.b=x >= 3]) > 1", "mean(column=f1)", "upper", False, "a.b", "x >= 3", ">", 1.0),
        ("percentile(column=latency_s, q=95) < 9", "percentile(column=latency_s, q=95)", None, False, None, None,
         "<", 9.0),
    ],
)  # fmt: skip
def test_what_is_read(text, metric, end, delta, by, cut, op, number):
    found = parse(text)
    assert (found.metric, found.end, found.delta, found.by, found.slice) == (metric, end, delta, by, cut)
    assert (found.op, found.number) == (op, number)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pass@1", "cannot be read; expected EXPR OP NUMBER"),
        ("", "cannot be read"),
        (">= 3", "cannot be read"),
        ("pass@1 >=", "cannot be read"),
        ("mean(column=f1)", "cannot be read"),  # its = is no operator
        ("a[b=3]", "cannot be read"),
        ("pass@1 = 0.5", "no operator '='; did you mean '=='?"),
        ("pass@1 => 0.5", "no operator '=>'; did you mean '>='?"),
        ("pass@1 <> 0.5", "no operator '<>'; expected one of"),
        ("pass@1 >= high", "'high' is not a finite number"),
        ("pass@1 >= nan", "'nan' is not a finite number"),
        ("pass@1 >= 60%", "'60%' is not a finite number; expected a number such as 0.6, shares from 0 to 1"),
        ("lowr(pass@1) >= 1", "no function named 'lowr'; did you mean 'lower'?"),
        ("lower(upper(x)) >= 1", "has no meaning"),
        ("delta(lower(x)) >= 1", "expected lower(delta(METRIC))"),
        ("lower() >= 1", "is not a metric"),
        ("x[level] >= 1", "is not a metric, or"),
        ("pass_rate[task] >= 1", "is not a metric, or"),
        ("lower(worst(x)) >= 1", "expected worst(lower(delta(METRIC)))"),
        ("worst(worst(x)) >= 1", "has no meaning"),
        ("worst(delta(lower(x))) >= 1", "has no meaning"),
        ("lower(missing) <= 1", "lower(missing) has no meaning; expected missing, the share of planned rollouts"),
        ("worst(missing) <= 1", "has no meaning"),
        ("worst(pass_rate[level]) >= 1", "[level] is not a slice; expected worst(METRIC[task])"),
        ("worst(mean_reward[task]) >= 1", "does not count passes; expected worst(pass_rate[task]), or pass@1"),
        ("worst(pass_rate[task]) <= 1", "the worst task has the lowest rate, but <= asks for less; expected >= or >"),
        ("delta(x[level=*]) >= 0", "a difference needs one slice"),
    ],
)
def test_what_cannot_be_read(text, said):
    with pytest.raises(InputError) as caught:
        parse(text)
    assert said.removesuffix(", or") in str(caught.value)


@pytest.mark.parametrize(
    ("op", "below", "same", "above"),
    [("<", 1, 0, 0), ("<=", 1, 1, 0), (">", 0, 0, 1), (">=", 0, 1, 1), ("==", 0, 1, 0)],
)
def test_when_it_is_met(op, below, same, above):
    found = parse(f"x {op} 0.5")
    assert [found.met(value) for value in (0.4, 0.5, 0.6)] == [bool(below), bool(same), bool(above)]


def test_spaces_and_order_do_not_make_another_metric():
    assert metric_key("percentile(column=a, q=95)") == metric_key("percentile(q=95.0,column=a)")
    assert metric_key("mean(column=a)") != metric_key("mean(column=b)")


@pytest.mark.parametrize(
    ("text", "found"), [("0", Gaps(0.0)), (7, Gaps(7.0)), ("2%", Gaps(0.02, True)), ("0.5 %", Gaps(0.005, True))]
)
def test_how_many_gaps(text, found):
    assert gaps_allowed(text, "x") == found


@pytest.mark.parametrize("text", ["-1", "some", "0.5", "101%", True, "nan", "inf", ""])
def test_gaps_that_are_no_number(text):
    with pytest.raises(InputError, match="expected a number of rollouts such as 5, or a share such as 2%"):
        gaps_allowed(text, "--max-gaps")


def test_a_share_is_of_what_was_planned():
    assert Gaps(0.02, True).allow(2, 100)
    assert not Gaps(0.02, True).allow(3, 100)
    assert not Gaps(0.0).allow(1, 100)
    # 0.29 * 100 is 28.999999999999996, and 29 of 100 are 29 %
    assert all(gaps_allowed(f"{n}%", "x").allow(n, 100) for n in range(101))
    assert not any(gaps_allowed(f"{n}%", "x").allow(n + 1, 100) for n in range(101))


@pytest.mark.parametrize(
    ("text", "worst", "worst_task", "every", "missing", "end", "delta"),
    [
        ("worst(pass@1) >= 0.6", True, False, False, False, None, False),
        ("worst(lower(pass@1)) >= 0.6", True, False, False, False, "lower", False),
        ("worst( delta(pass@1) ) >= 0", True, False, False, False, None, True),
        ("worst(lower(delta(pass@1))) >= -0.02", True, False, False, False, "lower", True),
        ("worst(pass@1[level=hard]) >= 0.6", True, False, False, False, None, False),
        ("missing <= 0.05", False, False, False, True, None, False),
        ("missing[level=hard] <= 0.05", False, False, False, True, None, False),
        ("pass_rate[task=*] >= 0.8", False, False, True, False, None, False),
        ("worst(pass_rate[task=*]) >= 0.8", True, False, True, False, None, False),
        ("worst(pass_rate(threshold=0.5)[ task ]) >= 0.8", False, True, False, False, None, False),
    ],
)
def test_what_is_asked_of_missing_rollouts_and_of_every_task(text, worst, worst_task, every, missing, end, delta):
    found = parse(text)
    assert (found.worst, found.worst_task, found.every, found.missing) == (worst, worst_task, every, missing)
    assert (found.end, found.delta) == (end, delta)
