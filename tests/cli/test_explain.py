import json

import pytest
from cli.running import lines, run

from calipers import glossary
from calipers.cards import INTERVALS, METHODS, METRIC_CARDS, method_named
from calipers.names import METRICS

NOTHING = "no metric, interval, test, verifier, filter, model, outcome, dialect, format or other word named"


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
        ("wilson", "wilson", "Values of 0 and 1"),
        ("exact", "clopper-pearson", "at 0 %       From exactly 0: 0 of 30 gives 0 to 0.1157."),
        ("default", "wilson_t", "with an effective number of tasks"),
        ("mid-p", "mid_p", "option       --test mid-p"),
        ("mid_p", "mid_p", "limit        Its level is not proven"),
        ("PPI++", "ppi++", "arXiv:2311.01453"),
        ("p_holm", "holm", "source       Holm 1979"),
        ("refused", "refused", "contributes  0, unless a verifier gave a reward"),
        ("judge_failed", "judge_failed", "contributes  nothing, it is missing"),
        ("evsys", "evsys", "pass@3       any_of_first_3"),
        ("native", "native", "calipers list metrics"),
        ("json_schema", "json_schema", "with equals"),  # the docstring, without its backquotes
        ("test_sh", "test_sh", "note         an answer can forge its reward"),
        ("llm_judge", "llm_judge", "note         it calls models, which costs money"),
        ("last_number", "last_number", "The last number"),
        ("parquet", "parquet", "a row for each rollout"),
        ("nemo_gym", "nemo_gym", "by default"),  # a dialect and a format: the dialect
        ("gap", "gap", "see also     missing, bounds"),
        ("gaps", "gap", "excludes missing rollouts"),
        ("missing", "missing", "also an outcome\nmissing\nThe rollout has no reward"),
        ("95 % interval", "interval", "A confidence interval of the value."),
        ("± stderr", "stderr", "The standard error of the value"),
        ("B - A", "difference", "The second run's value minus the first run's"),
        ("accuracy", "accuracy", "see also     pass_rate, mean_reward, pass@k, lm_eval"),
        ("acc_norm", "accuracy", "acc_norm are mean_reward over its rewards"),
        ("Undefined", "undefined", "has too few samples for it"),
        ("not run", "not_run", "contributes  nothing, it is missing"),
        ("p (Holm)", "holm", "option       --adjust holm"),
    ],
)
def test_a_word(capsys, name, first, said):
    text = explained(capsys, name)
    assert text.splitlines()[0] == first
    assert said in text


def test_a_verifier_that_can_be_trusted_has_no_warning(capsys):
    assert "\nnote" not in explained(capsys, "python_tests")


@pytest.mark.parametrize("name", [entry.replace("{k}", "2") for entry in METRIC_CARDS])
def test_every_metric_has_its_card(capsys, name):
    text = explained(capsys, name)
    assert "{k}" not in text
    labels = [label for label, _ in METRIC_CARDS[METRICS.match(name)[0]].parts()]
    assert {"estimates", "formula", "source", "interval"} <= {*labels}
    assert all(f"\n{label} " in text for label in labels)
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("name", INTERVALS)
def test_every_interval_has_its_card(capsys, name):
    text = explained(capsys, name)
    assert text.startswith(f"{name}\n{INTERVALS[name].one_line}\n")
    labels = [label for label, _ in INTERVALS[name].parts()]
    assert {"formula", "source", "at 0 %", "at 100 %", "one task"} <= {*labels}
    assert all(f"\n{label} " in text for label in labels)
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("name", METHODS)
def test_every_test_adjustment_and_estimator_has_its_card(capsys, name):
    text = explained(capsys, name)
    assert text.startswith(f"{name}\n{METHODS[name].one_line}\n")
    labels = [label for label, _ in METHODS[name].parts()]
    assert {"formula", "limit", "source"} <= {*labels}
    assert all(f"\n{label} " in text for label in labels)
    assert max(map(len, text.splitlines())) <= 100


ROWS = [
    {"task": f"t{task}", "sample": sample, "reward": reward, "latency_s": 1.0 + task, "level": "ab"[task % 2]}
    for task in range(12)
    for sample in range(4)
    for reward in [1.0 if (task * 7 + sample * 5) % 12 < 6 else 0.0]
]
FLIPPED = [{**row, "reward": 1.0 if row["task"] in ("t1", "t4", "t6") else row["reward"]} for row in ROWS]
ONE_EACH = [row for row in ROWS if row["sample"] == 0]
BOTH_SETS = [{**row, "dataset": name} for name in ("x", "y") for row in ROWS]
LABELS = [f"t{task},{sample},{(task + sample) % 2}" for task in range(10) for sample in range(2)]


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    third = [{**row, "reward": row["reward"] / 2} for row in FLIPPED]
    made = {"a": ROWS, "b": FLIPPED, "c": third, "one": ONE_EACH, "sets": BOTH_SETS}
    for name, rows in made.items():
        lines(tmp_path, *rows, name=f"{name}.jsonl")
    lines(tmp_path, *({**row, "reward": 1 - row["reward"]} for row in ONE_EACH), name="other.jsonl")
    (tmp_path / "labels.csv").write_text("\n".join(["task,sample,label", *LABELS]) + "\n")


@pytest.mark.parametrize(
    ("arguments", "among"),
    [
        ("score a.jsonl --metric mean_reward --metric pass@2 --metric bayes_mean", {"wilson_t", "posterior"}),
        ("score one.jsonl --metric mean(column=latency_s) --metric latency_p50", {"t", "woodruff"}),
        ("score one.jsonl", {"wilson"}),
        ("score sets.jsonl", {"mover"}),
        *((f"score a.jsonl --interval {name}", {name}) for name in ("clopper-pearson", "jeffreys", "beta", "bca")),
        ("score a.jsonl --interval beta_mixture", {"beta_mixture"}),
        ("compare a.jsonl b.jsonl --by level --metric mean_reward --metric pass@2", {"floored_t"}),
        ("compare a.jsonl b.jsonl c.jsonl --adjust bh --margin 0.2", {"floored_t", "bh", "margin_score"}),
        ("compare one.jsonl other.jsonl --margin 0.2", {"sidak", "tango"}),
        ("compare a.jsonl b.jsonl --test strict --adjust none", {"strict", "none"}),
        ("compare a.jsonl b.jsonl --test sign-flip", {"sign_flip"}),
        ("compare a.jsonl b.jsonl --metric latency_p50", {"paired_bootstrap"}),
        *((f"compare one.jsonl other.jsonl --test {test}", {test.replace("-", "_")}) for test in ("mcnemar", "mid-p")),
        ("gate b.jsonl --baseline a.jsonl --require lower(delta(mean_reward))>=-0.9", set()),
        ("curve a.jsonl --to 8", set()),
        ("items a.jsonl b.jsonl c.jsonl", set()),
        ("judge-check a.jsonl --labels labels.csv", {"ppi++", "ppi", "labels", "rogan_gladen", "judge", "bias"}),
        ("plan a.jsonl b.jsonl --detect 0.1", set()),
    ],
)
def test_no_method_that_is_printed_lacks_a_card(capsys, files, arguments, among):
    assert run([*arguments.split(), "--format", "json"]) in (0, 1, 3)
    found = set(methods_in(json.loads(capsys.readouterr().out)))
    assert among <= found
    assert {name for name in found if method_named(name) is None} == set()


def methods_in(document):
    """Every method, test and adjustment that a document names, those of its signatures too."""
    if isinstance(document, list):
        for item in document:
            yield from methods_in(item)
    if isinstance(document, dict):
        for key, value in document.items():
            if isinstance(value, str) and key.endswith(("method", "test", "adjust", "interval")):
                yield value
            elif key == "signature":
                parts = (part.partition(":") for part in value.split("|"))
                yield from (name for kind, _, name in parts if kind in ("interval", "test"))
            else:
                yield from methods_in(value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pass@3", "In evsys, pass@3 is Calipers' any_of_first_3(short=judged).\n\nany_of_first_3\n"),
        ("avg", "In evsys, avg is Calipers' mean_reward.\n\nmean_reward\n"),
        ("pass_rate", "In evsys, pass_rate is Calipers' pass_rate.\n\npass_rate\n"),
    ],
)
def test_a_word_of_a_dialect(capsys, name, said):
    assert explained(capsys, name, "--dialect", "evsys").startswith(said)


@pytest.mark.parametrize("name", glossary.OUTCOMES)
def test_every_outcome(capsys, name):
    text = f"{name}\n{glossary.OUTCOMES[name].one_line}\n"
    found = explained(capsys, name)
    assert found.startswith(text) or f"\nalso an outcome\n{text}" in found  # some are other words of a page, too


@pytest.mark.parametrize("name", glossary.TERMS)
def test_every_other_word_of_a_page(capsys, name):
    text = explained(capsys, name)
    assert text.startswith(f"{name}\n")
    assert max(map(len, text.splitlines())) <= 100
    for other in glossary.TERMS[name].see:  # what it points to can be explained as well
        assert explained(capsys, other)


@pytest.mark.parametrize("name", glossary.ALSO)
def test_every_other_form_of_a_word(capsys, name):
    assert name not in glossary.TERMS
    assert explained(capsys, name)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pas@3"], f"{NOTHING} 'pas@3'; did you mean 'pass@{{k}}'"),
        (["wilsn"], f"{NOTHING} 'wilsn'; did you mean 'wilson'"),
        (["sign-flop"], f"{NOTHING} 'sign-flop'; did you mean 'sign_flip'"),
        (["tangoo"], f"{NOTHING} 'tangoo'; did you mean 'tango'"),
        (["pass@0"], "metric 'pass@0': k is 0; expected a positive integer"),
        (["refusd"], f"{NOTHING} 'refusd'; did you mean 'refused'"),
        (["ledgr"], f"{NOTHING} 'ledgr'; did you mean 'ledger'"),
        (["accurcy"], f"{NOTHING} 'accurcy'; did you mean 'accuracy'"),
        (["zzzz"], f"{NOTHING} 'zzzz'; calipers list WHAT shows all names"),  # not a hundred names
        (["pass@5", "--dialect", "evsys"], "no evsys metric named 'pass@5'; it is a native name: remove --dialect"),
        (["pass@3", "--dialect", "evsyz"], "no dialect named 'evsyz'; did you mean 'evsys'?"),
    ],
)
def test_a_word_nobody_knows(capsys, arguments, said):
    assert run(["explain", *arguments]) == 2
    assert capsys.readouterr().err.startswith(said)
