import pytest

from calipers.cli import glossary, run
from calipers.metrics.cards import CARDS
from calipers.stats.cards import INTERVALS

NOTHING = "no metric, interval, verifier, filter, model, outcome, dialect or format named"


def explained(capsys, *arguments):
    assert run(["explain", *arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "first", "said"),
    [
        ("pass@3", "pass@3", "C(n_t, 3)"),
        ("pass@{k}", "pass@k", "C(n_t, k)"),
        ("pass^2", "pass^2", "arXiv:2406.12045"),
        ("mean_reward", "mean_reward", "arXiv:2411.00640"),
        ("percentile", "percentile", "type 7"),
        ("percentile(column=latency_s, q=95)", "percentile", "type 7"),
        ("wilson", "wilson", "when         Always for values of 0 and 1"),
        ("exact", "clopper-pearson", "at 0 %       From exactly 0: 0 of 30 gives 0 to 0.1157."),
        ("default", "wilson_t", "on request   no name of --interval: it comes by itself"),
        ("refused", "refused", "contributes  0, unless a verifier gave a reward"),
        ("judge_failed", "judge_failed", "contributes  a gap"),
        ("evsys", "evsys", "pass@3       any_of_first_3"),
        ("native", "native", "calipers list metrics"),
        ("json_schema", "json_schema", "with equals is the target too"),  # the docstring, without its marks
        ("test_sh", "test_sh", "mind         an answer may forge its reward"),
        ("llm_judge", "llm_judge", "mind         it asks models, which costs money"),
        ("last_number", "last_number", "without the commas between its thousands"),
        ("parquet", "parquet", "a row for each rollout"),
        ("nemo_gym", "nemo_gym", "by default"),  # a dialect and a format: the dialect
    ],
)
def test_a_word(capsys, name, first, said):
    text = explained(capsys, name)
    assert text.splitlines()[0] == first
    assert said in text


def test_a_verifier_that_can_be_trusted_has_no_warning(capsys):
    assert "mind" not in explained(capsys, "python_tests")


@pytest.mark.parametrize("name", [entry.replace("{k}", "2") for entry in CARDS])
def test_every_metric_has_its_card(capsys, name):
    text = explained(capsys, name)
    assert "{k}" not in text
    assert all(label in text for label in ("estimates", "formula", "source", "on nothing", "on gaps", "interval"))
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("name", INTERVALS)
def test_every_interval_has_its_card(capsys, name):
    text = explained(capsys, name)
    assert text.startswith(f"{name}\n{INTERVALS[name].one_line}\n")
    assert all(label in text for label in ("formula", "source", "when", "at 0 %", "at 100 %", "one task"))
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pass@3", "In evsys, pass@3 is our any_of_first_3(short=judged).\n\nany_of_first_3\n"),
        ("avg", "In evsys, avg is our mean_reward.\n\nmean_reward\n"),
        ("pass_rate", "In evsys, pass_rate is our own pass_rate.\n\npass_rate\n"),
    ],
)
def test_a_word_of_a_dialect(capsys, name, said):
    assert explained(capsys, name, "--dialect", "evsys").startswith(said)


@pytest.mark.parametrize("name", glossary.OUTCOMES)
def test_every_outcome(capsys, name):
    assert explained(capsys, name).startswith(f"{name}\n{glossary.OUTCOMES[name].one_line}\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pas@3"], f"{NOTHING} 'pas@3'; did you mean 'pass@{{k}}'"),
        (["wilsn"], f"{NOTHING} 'wilsn'; did you mean 'wilson'"),
        (["pass@0"], "metric 'pass@0': k is 0; expected a positive integer"),
        (["refusd"], f"{NOTHING} 'refusd'; did you mean 'refused'?"),
        (["zzzz"], f"{NOTHING} 'zzzz'; calipers list WHAT shows what there is"),  # not a hundred names
        (["pass@5", "--dialect", "evsys"], "no evsys metric named 'pass@5'; it is a native name: leave out --dialect"),
        (["pass@3", "--dialect", "evsyz"], "no dialect named 'evsyz'; did you mean 'evsys'?"),
    ],
)
def test_a_word_nobody_knows(capsys, arguments, said):
    assert run(["explain", *arguments]) == 2
    assert capsys.readouterr().err.startswith(said)
