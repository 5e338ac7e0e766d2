import subprocess
import sys

import pytest
from waiting import PATIENCE

from calipers.cards import METRIC_CARDS, card_for
from calipers.errors import InputError, UnknownName
from calipers.names import METRICS
from scripts.docs import metric_section

EVERY = sorted(METRIC_CARDS)


def test_every_metric_has_a_card_and_every_card_a_metric():
    assert list(METRIC_CARDS) == list(METRICS.entries)


@pytest.mark.parametrize("name", EVERY)
def test_no_text_is_missing(name):
    card = METRIC_CARDS[name]
    texts = [card.short, card.one_line, *(text for _, text in card.parts()), *card.edges, *card.others.values()]
    assert all(text == text.strip() and text for text in texts)
    assert card.one_line.endswith(".")
    assert not card.short.endswith(".")
    labels = [label for label, _ in card.parts() if label != "unit"]
    assert labels == ["estimates", "formula", "source", "no data", "missing", "one sample", "interval"]


@pytest.mark.parametrize("name", EVERY)
def test_only_a_family_has_a_k(name):
    card = METRIC_CARDS[name]
    assert ("{k}" in card.formula or "{k}" in card.one_line) == ("{k}" in name)


@pytest.mark.parametrize("name", EVERY)
def test_a_card_says_what_its_metric_does(name):
    """Whether there is an interval, and which parameters there are, stands in the metric too."""
    card, metric = METRIC_CARDS[name], METRICS.load(name)
    assert card.interval.startswith("None is computed") == bool(metric.no_interval)
    told = " ".join([card.formula, *card.edges])
    assert all(f"{key}=" in told for key in metric.params if key != "k")
    assert ("NaN" in told) <= ("reward" in metric.reads)


@pytest.mark.parametrize(
    ("asked", "entry", "k"),
    [
        ("pass@3", "pass@{k}", 3),
        ("pass@{k}", "pass@{k}", None),
        ("pass@3(threshold=0.5)", "pass@{k}", 3),
        ("mean_reward", "mean_reward", None),
        (" percentile (column=f1, q=5)", "percentile", None),
        ("all_of_first_12", "all_of_first_{k}", 12),
    ],
)
def test_the_card_of_a_name(asked, entry, k):
    assert card_for(asked) == (METRIC_CARDS[entry], k)


def test_names_without_a_card():
    with pytest.raises(UnknownName, match=r"did you mean 'pass@\{k\}'"):
        card_for("pas@3")
    with pytest.raises(InputError, match="k is 0"):
        card_for("pass@0")


@pytest.mark.parametrize("name", EVERY)
def test_text_and_markdown_hold_the_same(name):
    card = METRIC_CARDS[name]
    text, page = " ".join(card.to_text().split()), metric_section(card)
    for label, said in card.parts():
        assert said in text
        assert f"- **{label}**: " in page
    assert page.startswith("## `")
    assert all(line.count("`") % 2 == 0 for line in page.splitlines())


def test_cards_load_no_arithmetic():
    program = "import sys, calipers.cards; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout == "False\n"
