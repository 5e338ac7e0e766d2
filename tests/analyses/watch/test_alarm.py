"""The grammar of alarms: what can be written, and what is refused by name."""

import pytest

from calipers.analyses.watch import KINDS, PRESETS, alarms_of, parse
from calipers.errors import InputError


@pytest.mark.parametrize(
    ("text", "kind", "what", "limit"),
    [
        ("drop(pass@1) > 0.02", "drop", "pass@1", 0.02),
        ("rise( entropy )>0", "rise", "entropy", 0),
        ("rate(truncated) > 0.05", "rate", "truncated", 0.05),
        ("mean(output_tokens) > 1200", "mean", "output_tokens", 1200),
        ("share(zero_variance) >= 0.8", "share", "zero_variance", 0.8),
    ],
)
def test_an_alarm_is_read(text, kind, what, limit):
    alarm = parse(text)
    assert (alarm.kind, alarm.what, alarm.limit) == (kind, what, limit)
    assert alarm.null


def test_what_an_alarm_may_name_beside_its_metric():
    assert parse("drop(pass@1, base=10) > 0").base == 10
    assert parse("mean(length) > 1.2 * base").times_base
    assert parse("diverge(reward, judge) > 0.02").other == "judge"
    one = parse("drop(pass@1[split=eval]) > 0.02")
    assert (one.key, one.value, one.what) == ("split", "eval", "pass@1")
    assert one.applies("eval", None)
    assert not one.applies("train", None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("drop(pass@1)", "cannot be read; expected FUNCTION(WHAT) > NUMBER"),
        ("drp(pass@1) > 0.02", "no alarm named 'drp'; did you mean 'drop'"),
        ("drop(pass@1) < 0.02", "no operator '<'"),
        ("drop(pass@1) > high", "'high' is not a finite number"),
        ("drop(pass@1) > inf", "is not a finite number"),
        ("drop(pass@1) > -0.1", "is below 0"),
        ("drop() > 0.02", "nothing is in the brackets"),
        ("drop(pass@1, best) > 0.02", "'best' has no meaning"),
        ("drop(pass@1, base=last) > 0.02", "base=last is no step"),
        ("drop(pass@1) > 1.2 * base", "only mean() is measured by a multiple of the base"),
        ("rate(truncate) > 0.05", "no outcome named 'truncate': did you mean 'truncated'"),
        ("rate(truncated) > 5", "5 is not a share"),
        ("share(variance) > 0.5", "no share of groups named 'variance'"),
        ("mean(length) > 0", "a mean above 0"),
        ("diverge(reward) > 0", "one column"),
        ("drop(pass@1[level=hard]) > 0", "[level=...] is no series"),
        ("drop(pass@1[]) > 0", "is not a metric"),
        ("rlx", "no preset named 'rlx'; did you mean 'rl'"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(text, message):
    with pytest.raises(InputError) as error:
        alarms_of([text])
    assert message.replace(": did", "; did") in str(error.value)
    assert str(error.value).startswith("--alarm: ")


def test_presets_are_alarms_and_an_alarm_of_ones_own_replaces_its_twin():
    for name in PRESETS:
        alarms = alarms_of([name])
        assert len(alarms) == len(PRESETS[name])
        assert all(alarm.preset and alarm.kind in KINDS for alarm in alarms)
    both = alarms_of(["eval", "drop(reward)>0.02"])
    assert len(both) == len(PRESETS["eval"])
    assert [alarm.preset for alarm in both if alarm.kind == "drop"] == [False]


def test_two_splits_of_one_metric_are_compared():
    alarm = parse("diverge(reward[split=train], pass@1[split=eval]) > 0.02")
    assert alarm.across
    assert (alarm.applies("eval", None), alarm.applies("train", None)) == (True, False)
    assert (alarm.trains("train", "math"), alarm.trains("eval", None)) == (True, False)
    assert alarm.null == "pass@1[split=eval] has gained at least half of what reward[split=train] has, less 0.02"


@pytest.mark.parametrize(
    "text",
    ["diverge(a[split=eval], b) > 0", "diverge(a, b[split=eval]) > 0", "diverge(a[split=eval],b[split=eval]) > 0"],
)
def test_two_columns_of_one_split_are_of_the_same_rollouts(text):
    alarm = parse(text)
    assert not alarm.across
    assert (alarm.key, alarm.value) == ("split", "eval")
