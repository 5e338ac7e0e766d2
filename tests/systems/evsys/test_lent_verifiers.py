import asyncio
import importlib

import msgspec
import pytest
from compat.packages import put

from calipers.clients import Completion
from calipers.compat import activate
from calipers.names import VERIFIERS
from calipers.systems.evsys.lent import (
    VERIFIER_REGISTRY,
    FormatOnly,
    FormatOnlyConfig,
    FormatOnlyVerifier,
    VerificationResult,
    Verifier,
    get_verifier,
    list_verifiers,
    register_verifier,
)
from calipers.tasks import Task
from calipers.verifiers.user_code import find_verifier

BOTH = "<think>t</think><answer>A</answer>"


@pytest.fixture(autouse=True)
def _nothing_registered(monkeypatch):
    monkeypatch.setattr(VERIFIERS, "added", {})
    monkeypatch.setattr(VERIFIERS, "_broken", {})
    monkeypatch.setattr(VERIFIER_REGISTRY, "_classes", dict(VERIFIER_REGISTRY._classes))


class Half:
    class Config(msgspec.Struct, forbid_unknown_fields=True):
        bonus: float = 0.0

    def __init__(self, config):
        self.config = config

    def verify(self, *, prompt, completion, target):
        return VerificationResult(0.5 + self.config.bonus, {"seen": True})


@pytest.mark.parametrize(
    ("completion", "reward", "think", "answer"),
    [(BOTH, 1.0, True, True), ("</think><think>", 0.5, True, False), ("bad", 0.0, False, False)],
)
def test_format_only(completion, reward, think, answer):
    result = FormatOnly().verify(prompt="2 + 2?", completion=completion, target={})
    assert result == VerificationResult(reward, {"has_think": think, "has_answer": answer})


def test_format_only_is_made_from_a_config_or_its_fields():
    for made in (FormatOnly(FormatOnly.Config(has_think_reward=0.1)), FormatOnly(has_think_reward=0.1)):
        assert made.verify(prompt="", completion=BOTH, target={}).reward == pytest.approx(0.6)
    with pytest.raises(TypeError, match="Unexpected keyword argument 'think'"):
        FormatOnly.Config(think=1)
    with pytest.raises(msgspec.ValidationError, match="unknown field `think`"):
        FormatOnly(think=1)


def test_the_class_is_called_as_in_evsys():
    verifier = FormatOnlyVerifier(has_think_reward=0.2)
    assert (type(verifier).__name__, verifier.has_think_reward, verifier.has_answer_reward) == (
        *("FormatOnlyVerifier", 0.2, 0.5),
    )
    assert (FormatOnly, FormatOnlyVerifier.Config) == (FormatOnlyVerifier, FormatOnlyConfig)
    verifier.has_answer_reward = 0.0
    assert verifier.verify(prompt="", completion=BOTH, target={}).reward == 0.2


def test_the_protocol():
    assert isinstance(FormatOnly(), Verifier)
    assert not isinstance(object(), Verifier)
    assert VerificationResult(1.0).info == {}


def test_the_registry():
    assert list_verifiers() == ["format_only"]
    assert get_verifier("format_only") is FormatOnly
    assert register_verifier("half")(Half) is Half
    assert (get_verifier("half"), Half.name) == (Half, "half")
    with pytest.raises(ValueError, match="verifier 'half' already registered"):
        register_verifier("half")(FormatOnly)
    with pytest.raises(KeyError, match=r"No verifier registered under 'x'\. Available: format_only, half"):
        get_verifier("x")


def test_a_registered_class_judges_runs():
    register_verifier("half")(Half)
    task = Task("t1", "2 + 2?", "half", None, {"bonus": 0.25})
    verdict = asyncio.run(find_verifier("half").verify(task, Completion("4")))
    assert (verdict.reward, verdict.fields) == (0.75, {"seen": 1.0})


DECORATED = """
from calipers.systems.evsys.lent import VerificationResult, register_verifier
@register_verifier("brought")
class Brought:
    def verify(self, *, prompt, completion, target):
        return VerificationResult(0.25)
"""


def test_installed_packages_are_asked(tmp_path, monkeypatch):
    """Under the decorator's name, whatever the entry point is called."""
    put(tmp_path, "brings-one", DECORATED, {"evsys_sdk.verifiers": {"another": "brings_one:Brought"}})
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(VERIFIERS._groups, "evsys_sdk.verifiers", "calipers.compat:borrowing")
    assert list_verifiers() == ["brought", "format_only"]
    assert get_verifier("brought").name == "brought"
    verdict = asyncio.run(find_verifier("brought").verify(Task("t1", "?", "brought"), Completion("4")))
    assert verdict.reward == 0.25


def test_all_that_is_lent_is_there():
    activate()
    verifiers = importlib.import_module("evsys_sdk.verifiers")
    assert verifiers.__all__ == sorted(verifiers.__all__)
    assert all(getattr(verifiers, name) for name in verifiers.__all__)
