import sys

import pytest
from compat.packages import put

from calipers.errors import InputError, PluginError, UnknownName
from calipers.names import CLIENTS, DIALECTS, FILTERS, METRICS, VERIFIERS, Index, engine_of, load, match

DECORATED = """
from test_names_registry import register
class Brought:
    pass
register("{key}", Brought)
"""

WITHIN = """
from contextlib import contextmanager
entered = []
@contextmanager
def within():
    entered.append(1)
    yield
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder for installed packages, and an index that asks two groups of them."""
    index = Index(
        "metric",
        {"mean_reward": "math:pi", "pass@{k}": "math:e"},
        groups={"plain": "", "decorated": "test_names_registry:within"},
    )
    monkeypatch.syspath_prepend(tmp_path)
    registry = type(sys)("test_names_registry")
    exec(WITHIN, vars(registry))
    registry.register = index.add
    monkeypatch.setitem(sys.modules, "test_names_registry", registry)
    before = set(sys.modules)
    yield Site(tmp_path, index, registry)
    for name in set(sys.modules) - before:
        if name.startswith("brings_"):
            del sys.modules[name]


class Site:
    def __init__(self, path, index, registry):
        self.path, self.index, self.registry = path, index, registry

    def put(self, name, code, **groups):
        put(self.path, name, code, groups)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pass@3", ("pass@{k}", 3)),
        ("pass@0", ("pass@{k}", 0)),  # a family's business
        ("pass@1", ("pass@1", None)),  # an exact name wins
        ("x3y", ("x{k}y", 3)),
        ("pass@", None),
        ("pass@-1", None),
        ("pass@3.0", None),
        ("pass@٣", None),  # a digit, but not one of ours
        ("pass@{k}", None),
        ("pass@" + "9" * 5_000, None),  # too long to be a number
        ("Pass@3", None),
        ("", None),
    ],
)
def test_match(name, expected):
    assert match(name, ["pass@{k}", "pass@1", "x{k}y"]) == expected


@pytest.mark.parametrize("index", [CLIENTS, DIALECTS, FILTERS, METRICS, VERIFIERS])
def test_everything_named_is_there(index):
    for entry, target in index.entries.items():
        assert index.load(entry) is load(target)


def test_a_name_is_added_once():
    index = Index("metric", {})
    thing, other = object(), object()
    index.add("mine", thing)
    index.add("mine", thing)
    with pytest.raises(PluginError, match="metric 'mine' is already taken; rename one of the two"):
        index.add("mine", other)
    assert index.plugin("mine") is thing
    index.discard("mine")
    index.discard("mine")
    assert index.plugin("mine") is None


def test_names_are_sorted_and_loaded_by_nobody(site):
    site.put("brings-one", "raise RuntimeError", plain={"one": "brings_one:Brought"})
    site.index.add("added", object())
    assert site.index.plugins() == ["added", "one"]
    assert site.index.names() == ["added", "mean_reward", "one", "pass@{k}"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pas@3", "no metric named 'pas@3'; did you mean 'pass@{k}'?"),
        ("pass@{k}", "no metric named 'pass@{k}'; give it a number, as in 'pass@3'"),
        ("zzz", "no metric named 'zzz'; known: mean_reward, pass@{k}"),
    ],
)
def test_an_unknown_name_says_the_nearest(site, name, said):
    error = site.index.unknown(name)
    assert str(error) == said
    assert isinstance(error, UnknownName)


def test_a_package_is_asked_by_its_entry_point(site):
    site.put("brings-one", "class Brought: pass", plain={"one": "brings_one:Brought"})
    site.put("brings-two", "raise RuntimeError", plain={"two": "brings_two:Brought"})
    assert site.index.plugin("one") is sys.modules["brings_one"].Brought
    assert "brings_two" not in sys.modules
    assert site.registry.entered == []


def test_a_family_of_a_package(site):
    site.put("brings-one", "Brought = object()", plain={"best@{k}": "brings_one:Brought"})
    assert site.index.plugin("best@3") is site.index.plugin("best@12") is sys.modules["brings_one"].Brought
    assert site.index.plugin("best@") is None


def test_a_name_may_be_the_decorators(site):
    """The entry point is called otherwise, as EvSys allows."""
    site.put("brings-one", DECORATED.format(key="real"), decorated={"entry": "brings_one:Brought"})
    assert site.index.plugin("real") is sys.modules["brings_one"].Brought
    assert site.index.plugin("entry") is sys.modules["brings_one"].Brought  # what a list shows can be asked for
    assert site.registry.entered


def test_the_decorators_name_comes_before_another_packages_entry_point(site):
    site.put("brings-one", DECORATED.format(key="two"), decorated={"one": "brings_one:Brought"})
    site.put("brings-two", DECORATED.format(key="one"), decorated={"two": "brings_two:Brought"})
    assert site.index.plugin("one") is sys.modules["brings_two"].Brought
    assert site.index.plugin("two") is sys.modules["brings_one"].Brought


def test_a_class_without_a_decorator_has_its_entry_points_name(site):
    site.put("brings-one", "class Brought: pass", decorated={"one": "brings_one:Brought"})
    assert site.index.plugin("one") is sys.modules["brings_one"].Brought


@pytest.mark.parametrize("group", ["plain", "decorated"])
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise RuntimeError('no')", "RuntimeError: no"),
        ("import sys; sys.exit('bye')", "SystemExit: bye"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("", "AttributeError: module 'brings_one' has no attribute 'Brought'"),
    ],
)
def test_a_broken_package_fails_when_it_is_asked_for(site, group, code, said):
    site.put("brings-one", code, **{group: {"one": "brings_one:Brought"}})
    for _ in "twice":
        with pytest.raises(PluginError) as caught:
            site.index.plugin("one")
        assert str(caught.value) == f"metric 'one' of package brings-one (brings_one:Brought) cannot be loaded: {said}"


def test_a_broken_package_does_not_disturb_another(site):
    site.put("brings-bad", "raise RuntimeError('no')", decorated={"bad": "brings_bad:Brought"})
    site.put("brings-good", DECORATED.format(key="good"), decorated={"entry": "brings_good:Brought"})
    assert site.index.plugin("good") is sys.modules["brings_good"].Brought


def test_an_unknown_name_may_be_one_that_a_broken_package_has(site):
    site.put("brings-bad", "raise RuntimeError('no')", decorated={"bad": "brings_bad:Brought"})
    assert site.index.plugin("hidden") is None
    assert str(site.index.unknown("hidden")).endswith(
        " (metric 'bad' of package brings-bad (brings_bad:Brought) cannot be loaded: RuntimeError: no)"
    )
    (site.path / "brings_bad.py").write_text("class Brought: pass  # mended")
    assert site.index.plugin("hidden") is None
    assert "cannot be loaded" not in str(site.index.unknown("hidden"))


def test_two_packages_may_not_share_a_name(site):
    site.put("brings-one", "class Brought: pass", plain={"same": "brings_one:Brought"})
    site.put("brings-two", "class Brought: pass", decorated={"same": "brings_two:Brought"})
    said = r"'same' is added by brings-one \(brings_one:Brought\) and brings-two \(brings_two:Brought\); uninstall"
    with pytest.raises(PluginError, match=said):
        site.index.plugin("same")


def test_one_package_may_speak_in_both_groups(site):
    code = "class Ours: pass\nclass Theirs: pass"
    site.put("brings-one", code, plain={"same": "brings_one:Ours"}, decorated={"same": "brings_one:Theirs"})
    assert site.index.plugin("same") is sys.modules["brings_one"].Ours


def test_all_packages_whose_decorators_give_names(site):
    site.put("brings-bad", "raise RuntimeError('no')", decorated={"bad": "brings_bad:Brought"})
    site.put("brings-good", DECORATED.format(key="good"), decorated={"entry": "brings_good:Brought"})
    site.put("brings-plain", "raise RuntimeError('never')", plain={"plain": "brings_plain:Brought"})
    (error,) = site.index.load_packages()
    assert "package brings-bad" in str(error)
    assert list(site.index.added) == ["good"]


def test_this_process_is_an_engine_without_an_address():
    assert engine_of("--engine", "local") is None
    with pytest.raises(InputError, match=r"^--engine: local has no address; expected local, or ray=ADDRESS$"):
        engine_of("--engine", "local=x")
