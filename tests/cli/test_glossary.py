"""The glossary is written by hand, so that it is cheap to load; these tests compare it with the code."""

import pytest

from calipers import glossary
from calipers.names import CLIENTS, DIALECTS, FORMATS
from calipers.rollouts.record import FIRST_GAP, OUTCOMES, STOPPED_EARLY


def test_every_outcome_in_its_order():
    assert tuple(glossary.OUTCOMES) == OUTCOMES


def test_which_outcomes_leave_a_gap():
    gaps = [word for word, outcome in glossary.OUTCOMES.items() if "it is missing" in outcome.contributes]
    assert gaps == list(OUTCOMES[FIRST_GAP:STOPPED_EARLY])


def test_every_format():
    assert tuple(glossary.FORMATS) == tuple(FORMATS.entries)


def test_every_kind_of_model():
    assert glossary.MODELS.keys() == CLIENTS.entries.keys()


def test_every_dialect():
    assert glossary.DIALECTS.keys() == DIALECTS.entries.keys()


@pytest.mark.parametrize(("name", "card"), glossary.DIALECTS.items())
def test_a_dialect_as_it_is(name, card):
    dialect = DIALECTS.load(name)
    assert card.words == dialect.metrics
    assert card.default == dialect.default
    assert card.gaps.startswith({"gap": "excluded from the estimate", "zero": "count as 0"}[dialect.missing])
    assert card.nothing == ("no value, with the reason" if dialect.undefined is None else str(dialect.undefined))
    assert dialect.label(True) in card.slices
