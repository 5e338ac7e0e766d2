import pytest
from compat.packages import put

from calipers.compat import activate
from calipers.names import METRICS
from calipers.systems.evsys.lent import (
    METRIC_REGISTRY,
    Registry,
    get_metric,
    list_metrics,
    register_metric,
    schema_for,
)
from calipers.systems.evsys.metrics import PassRate

SIX = ["avg", "mean_reward", "pass@1", "pass@3", "pass^3", "pass_rate"]

DECORATED = """
from evsys_sdk.registry import register_metric
@register_metric("{key}")
class Brought:
    def compute(self, task_rewards):
        return 0.25
"""


def make(name=None, **own):
    return type("Plugin", (), {"compute": lambda self, task_rewards: 0.0, **own, **({"name": name} if name else {})})


def test_a_clean_install_has_six_metrics():
    assert list_metrics() == SIX
    activate()
    from evsys_sdk.registry import list_metrics as lent

    assert lent() == SIX


def test_get_gives_the_class():
    assert get_metric("avg")().compute([[1], [0]]) == 0.5
    assert issubclass(get_metric("avg"), get_metric("mean_reward"))


def test_an_unknown_name_lists_those_there_are():
    with pytest.raises(KeyError) as caught:
        get_metric("pass@5")
    said = "No metric registered under 'pass@5'. Available: avg, mean_reward, pass@1, pass@3, pass^3, pass_rate"
    assert caught.value.args == (said,)
    with pytest.raises(KeyError, match=r"Available: \(none\)"):
        Registry("metric").get("x")


def test_a_key_belongs_to_the_first_class():
    other = make()
    with pytest.raises(ValueError, match="metric 'avg' already registered") as caught:
        register_metric("avg")(other)
    assert str(caught.value).endswith(f"(existing=calipers.systems.evsys.metrics.Avg, new={__name__}.Plugin)")
    register_metric("mine")(other)
    assert register_metric("mine")(other) is other  # registering the same class again is allowed
    with pytest.raises(ValueError, match="already registered"):
        register_metric("mine")(make())


def test_a_metric_has_no_parameters():
    assert schema_for("metric", "avg") == {"type": "object", "properties": {}}
    with pytest.raises(KeyError):
        schema_for("verifier", "avg")
    with pytest.raises(KeyError):
        schema_for("metric", "pass@5")


def test_parameters_are_those_of_the_config():
    think = schema_for("verifier", "format_only")["properties"]["has_think_reward"]
    assert think == {"type": "number", "default": 0.5}
    assert list(schema_for("inference_client", "mock")["properties"]) == ["template"]
    with pytest.raises(
        KeyError, match=r"No registry of kind 'backend'\. Available: inference_client, metric, verifier"
    ):
        schema_for("backend", "mock")

    class Config:
        @staticmethod
        def model_json_schema():
            return {"title": "of pydantic"}

    register_metric("with_config")(type("WithConfig", (), {"Config": Config}))
    assert schema_for("metric", "with_config") == {"title": "of pydantic"}


def test_a_registry_of_ones_own_lists_its_names():
    registry = Registry("colour")
    registry.register("red")(type("Red", (), {}))
    assert registry.list() == registry.names() == ["red"]


@pytest.mark.parametrize(
    ("given", "own", "key"),
    [
        ("given", None, "given"),
        ("given", "own", "given"),
        (None, "own", "own"),
        ("", "own", "own"),
        ("f1 (macro) @^", None, "f1 (macro) @^"),  # any string is a name
    ],
)
def test_the_key_is_the_name_given_or_the_class_has(given, own, key):
    plugin = make(own)
    assert register_metric(given)(plugin) is plugin
    assert get_metric(key) is plugin
    assert plugin.name == key
    assert METRICS.plugin(key) is plugin


@pytest.mark.parametrize("given", [None, ""])
def test_a_class_needs_a_key(given):
    with pytest.raises(ValueError, match="Plugin has no `name` and was registered without one"):
        register_metric(given)(make())


def test_one_class_may_have_two_keys():
    plugin = make("own")
    register_metric("first")(plugin)
    register_metric("second")(plugin)
    assert get_metric("first") is get_metric("second") is plugin
    assert plugin.name == "second"


def test_a_class_that_cannot_be_written_to_is_registered_as_it_is():
    class Sealed(type):
        def __setattr__(cls, name, value):
            raise AttributeError(name)

    plugin = Sealed("Plugin", (), {"name": "own"})
    register_metric("given")(plugin)
    assert (get_metric("given"), plugin.name) == (plugin, "own")


def test_nothing_is_checked_when_it_is_registered():
    register_metric("empty")(type("Empty", (), {}))
    assert "empty" in list_metrics()


def test_without_parentheses_nothing_is_registered():
    @register_metric
    class Plugin:
        name = "lost"

    assert not isinstance(Plugin, type)
    assert list_metrics() == SIX


def test_a_registry_of_ones_own():
    registry = Registry("metric")
    first, second = make(), make()
    registry.register("b")(first)
    registry.register("a")(second)
    assert registry.items() == [("a", second), ("b", first)]
    assert registry.has("a")
    registry.unregister("a")
    registry.unregister("a")
    assert not registry.has("a")
    assert list_metrics() == SIX


def test_what_is_unregistered_is_unknown_everywhere():
    register_metric("mine")(make())
    assert METRICS.plugin("mine") is not None
    METRIC_REGISTRY.unregister("mine")
    assert METRICS.plugin("mine") is None
    assert not METRIC_REGISTRY.has("mine")


def test_a_name_that_another_plugin_took_is_taken():
    METRICS.add("mine", "somebody's metric")
    with pytest.raises(ValueError, match=r"metric 'mine' already registered \(existing=\"somebody's metric\", new="):
        register_metric("mine")(make())


def test_installed_packages_are_asked(tmp_path, monkeypatch):
    put(tmp_path, "brings-one", DECORATED.format(key="one"), {"evsys_sdk.metrics": {"another": "brings_one:Brought"}})
    monkeypatch.syspath_prepend(tmp_path)
    assert get_metric("one")().compute([]) == 0.25
    assert list_metrics() == sorted([*SIX, "one"])  # under the decorator's key; the entry point's name is not used


def test_a_broken_package_is_a_warning_in_a_list_and_a_reason_for_its_name(tmp_path, monkeypatch):
    put(tmp_path, "brings-one", "raise RuntimeError('no')", {"evsys_sdk.metrics": {"one": "brings_one:Brought"}})
    monkeypatch.syspath_prepend(tmp_path)
    said = r"metric 'one' of package brings-one \(brings_one:Brought\) cannot be loaded: RuntimeError: no"
    with pytest.warns(UserWarning, match=said):
        assert list_metrics() == SIX
    with pytest.raises(KeyError, match=said):
        get_metric("one")


def test_a_metric_is_whatever_has_both_attributes():
    activate()
    from evsys_sdk.protocols import Metric

    class Named:
        name = "named"

    class Odd(Named):
        compute = 0  # only the existence of the attribute is checked

    assert isinstance(PassRate(), Metric)
    assert isinstance(Odd(), Metric)
    assert not isinstance(Named(), Metric)
    with pytest.raises(TypeError):
        issubclass(PassRate, Metric)
