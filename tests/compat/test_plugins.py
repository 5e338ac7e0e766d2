import sys
from pathlib import Path

import pytest
from compat.packages import put

import calipers
from calipers.compat import load_plugin
from calipers.errors import InputError, PluginError
from calipers.names import METRICS
from calipers.systems.evsys.lent import list_metrics
from calipers.verifiers.user_code import find_verifier as find

WORST_TASK = Path(__file__).parent / "fixtures" / "worst_task.py"

OURS = """
from calipers.metrics import mean
from calipers.metrics import task_mean
from calipers.metrics.rewards import MEAN_REWARD  # for its own use
import calipers

ALIAS = {name} = calipers.Metric("{metric}", reduce=task_mean, aggregate=mean)
"""

DECORATED = """
from evsys_sdk.registry import register_metric

@register_metric("{key}")
class Plugin:
    def compute(self, task_rewards):
        return {value}
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """Writes a plugin and returns the name it has in its folder."""
    monkeypatch.chdir(tmp_path)

    def write(code, name="plugin.py"):
        Path(name).write_bytes(code if isinstance(code, bytes) else code.encode())
        return name

    return write


@pytest.mark.parametrize("dialect", [None, "evsys"])
def test_the_metric_of_the_page(dialect):
    assert load_plugin(str(WORST_TASK)) == ["worst_task"]
    found = calipers.score([*[[1, 0], [1, 1]] * 3, []], ["mean_reward", "worst_task"], dialect=dialect)
    assert (found["mean_reward"].value, found["worst_task"].value) == (0.75, 0.5)
    assert found["worst_task"].interval is None
    assert "as for the extremes of a sample" in found["worst_task"].why


def test_the_same_file_twice_is_the_same_file_once(plugin):
    name = plugin(WORST_TASK.read_bytes())
    assert load_plugin(name) == load_plugin(name) == load_plugin(str(Path(name).resolve())) == ["worst_task"]
    first = METRICS.plugin("worst_task")
    assert load_plugin(f"./{name}") == ["worst_task"]
    assert METRICS.plugin("worst_task") is first


def test_a_file_that_was_edited_replaces_its_metrics(plugin):
    load_plugin(plugin(DECORATED.format(key="mine", value=1)))
    load_plugin(plugin(DECORATED.format(key="mine", value=2)))
    assert calipers.score([[1]], "mine")["mine"].value == 2
    assert load_plugin(plugin(DECORATED.format(key="renamed", value=3))) == ["renamed"]
    assert METRICS.plugin("mine") is None
    assert "mine" not in list_metrics()


def test_a_file_that_only_imports_may_be_loaded_twice(plugin, monkeypatch):
    plugin(DECORATED.format(key="far", value=1), "brings_far.py")
    monkeypatch.syspath_prepend(Path.cwd())
    name = plugin("import brings_far")
    assert load_plugin(name) == load_plugin(name) == ["far"]


def test_two_files_may_not_bring_one_name(plugin):
    load_plugin(plugin(DECORATED.format(key="mine", value=1), "one.py"))
    with pytest.raises(PluginError, match=r"^two.py:4: ValueError: metric 'mine' already registered \(existing="):
        load_plugin(plugin(DECORATED.format(key="mine", value=2), "two.py"))
    with pytest.raises(PluginError, match=r"^three.py: metric 'mine' is already taken"):
        load_plugin(plugin(OURS.format(name="MINE", metric="mine"), "three.py"))


def test_a_metric_of_ours(plugin):
    assert load_plugin(plugin(OURS.format(name="MINE", metric="mine"))) == ["mine"]
    found = calipers.score([[1, 0], [1]], ["mine", "mine(reward=reward)"])
    assert (found["mine"].value, found["mine"].method) == (0.75, "t")
    assert calipers.score([[1, 0], [1]], "mine", dialect="evsys")["mine"].value == 0.75


def test_a_family_of_ours(plugin):
    code = "import calipers\nfrom calipers.metrics.rewards import any_of_first_k, mean\n"
    load_plugin(
        plugin(code + "X = calipers.Metric('early@{k}', any_of_first_k, mean, params={'k': int, 'threshold': 1.0})")
    )
    found = calipers.score([[0, 0, 1], [0, 1, 0]], ["early@2", "early@3"])
    assert (found["early@2"].value, found["early@3"].value) == (0.5, 1.0)


@pytest.mark.parametrize("name", ["mean_reward", "pass@{k}", "pass@7"])
def test_a_built_in_name_is_not_free(plugin, name):
    with pytest.raises(InputError, match=r"plugin.py: metric .* is built in; rename the new metric"):
        load_plugin(plugin(OURS.format(name="MINE", metric=name)))
    assert METRICS.added == {}


def test_evsys_may_use_a_native_name(plugin):
    """Its names are its own: there pass@5 is free, here it is ours already."""
    assert load_plugin(plugin(DECORATED.format(key="pass@5", value=0.25))) == ["pass@5"]
    assert calipers.score([[1] * 5], "pass@5", dialect="evsys")["pass@5"].value == 0.25
    assert calipers.score([[1] * 5], "pass@5")["pass@5"].value == 1.0


@pytest.mark.parametrize(
    ("code", "error", "said"),
    [
        (
            "x = 1\n",
            InputError,
            "plugin.py: it adds no metric and no verifier; expected a function decorated with @calipers.metric",
        ),
        ("", InputError, "plugin.py: it adds no metric"),
        ("x = (\n", InputError, "plugin.py:1: it is not valid Python: '(' was never closed; expected a Python file"),
        ('\n{"task": "a"\n', InputError, "plugin.py:2: it is not valid Python"),
        (b"x = 1\0", InputError, "plugin.py: it is not valid Python|plugin.py:1: it is not valid Python"),
        (b"\xff\xfe", InputError, "plugin.py:1: it is not valid Python|plugin.py: it is not valid Python"),
        ("import math\n\nmath.nope\n", PluginError, "plugin.py:3: AttributeError: module 'math' has no"),
        ("def f():\n    return 1 / 0\n\nf()\n", PluginError, "plugin.py:2: ZeroDivisionError: division by zero"),
        ("import json\n\njson.loads('')\n", PluginError, "plugin.py:3: JSONDecodeError"),  # not json's line
        ("import no_such_module\n", PluginError, "plugin.py:1: ModuleNotFoundError: No module named 'no_such_module'"),
        ("from evsys_sdk import algorithms\n", PluginError, "plugin.py:1: ModuleNotFoundError: Calipers provides"),
        ("import sys\nsys.exit(3)\n", PluginError, "plugin.py:2: SystemExit: 3"),
        ("raise RuntimeError\n", PluginError, "plugin.py:1: RuntimeError"),
        (
            "from evsys_sdk.registry import register_metric\n@register_metric\nclass A:\n    name = 'a'\n",
            InputError,
            "plugin.py: it adds no metric and no verifier; .*parentheses",
        ),
    ],
)
def test_what_is_no_plugin(plugin, code, error, said):
    import re

    with pytest.raises(error) as caught:
        load_plugin(plugin(code))
    alternatives = [piece if ".*" in piece else re.escape(piece) for piece in said.split("|")]
    assert re.match("|".join(alternatives), str(caught.value)), str(caught.value)


def test_a_file_that_fails_leaves_nothing_and_may_be_mended(plugin):
    with pytest.raises(PluginError, match=r"plugin.py:8: "):
        load_plugin(plugin(DECORATED.format(key="mine", value=1) + "1 / 0"))
    assert METRICS.added == {}
    assert [name for name in sys.modules if name.startswith("calipers_plugin_")] == []
    assert load_plugin(plugin(DECORATED.format(key="mine", value=1))) == ["mine"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "no_such_file.py",
            ("no_such_file.py: No such file or directory; expected a Python file or an importable module"),
        ),
        ("folder/", "folder/: Is a directory; expected"),
        ("no_such_module", "'no_such_module': no such file or module; expected"),
        ("json.no_such_part", "'json.no_such_part': no such file or module; expected"),
        ("not a module", "'not a module': no such file or module; expected"),
        ("", "'': no such file or module; expected"),
        ("..", "'..': no such file or module; expected"),
        ("notes.txt", "notes.txt: it is not a Python file; expected a name that ends in .py"),
    ],
)
def test_what_is_no_file_and_no_module(plugin, name, said):
    Path("folder").mkdir()
    plugin("x = 1\n", "notes.txt")
    with pytest.raises(InputError) as caught:
        load_plugin(name)
    assert str(caught.value).startswith(said)


def test_a_module(plugin, monkeypatch):
    plugin(DECORATED.format(key="brought", value=0.5), "brings_module.py")
    monkeypatch.syspath_prepend(Path.cwd())
    assert load_plugin("brings_module") == load_plugin("brings_module") == ["brought"]
    assert calipers.score([[1]], "brought")["brought"].value == 0.5


def test_a_module_that_was_imported_before(plugin, monkeypatch):
    from calipers.compat import activate

    activate()
    plugin(DECORATED.format(key="brought", value=0.5), "brings_module.py")
    monkeypatch.syspath_prepend(Path.cwd())
    __import__("brings_module")
    assert load_plugin("brings_module") == ["brought"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("\nimport math\nmath.nope\n", "brings_module.py:3: AttributeError"),
        ("x = (\n", "brings_module.py:1: SyntaxError"),
        ("import brings_nothing\n", "brings_module.py:1: ModuleNotFoundError"),
    ],
)
def test_a_module_that_fails(plugin, monkeypatch, code, said):
    plugin(code, "brings_module.py")
    monkeypatch.syspath_prepend(Path.cwd())
    with pytest.raises(PluginError) as caught:
        load_plugin("brings_module")
    assert said in str(caught.value)


def test_a_plugin_may_use_what_dataclasses_need(plugin):
    code = "from __future__ import annotations\nimport dataclasses\n@dataclasses.dataclass\nclass D:\n    x: int = 0\n"
    assert load_plugin(plugin(code + DECORATED.format(key="mine", value="D().x"))) == ["mine"]


def test_a_plugin_does_not_inherit_our_future(plugin):
    code = "class D:\n    x: 1 + 1\n\nassert D.__annotations__ == {'x': 2}\n"
    assert load_plugin(plugin(code + DECORATED.format(key="mine", value=1))) == ["mine"]


def test_a_plugin_leaves_no_cache_beside_it(plugin):
    load_plugin(plugin(DECORATED.format(key="mine", value=1)))
    assert [path.name for path in Path.cwd().iterdir()] == ["plugin.py"]


def test_a_file_and_an_entry_point_of_the_same_metric(tmp_path, plugin, monkeypatch):
    """The file was named, so it counts; the package is not even loaded."""
    put(
        tmp_path,
        "brings-worst",
        WORST_TASK.read_text(),
        {"evsys_sdk.metrics": {"worst_task": "brings_worst:WorstTask"}},
    )
    monkeypatch.syspath_prepend(tmp_path)
    load_plugin(str(WORST_TASK))
    assert calipers.score([[1], [0.5]], "worst_task")["worst_task"].value == 0.5
    assert "brings_worst" not in sys.modules


OWN = """
from calipers import metric, verifier

@verifier
def mentions_{n}(task, completion):
    return task.target in completion

@metric("lowest_{n}")
def lowest(rewards):
    return min(map(min, rewards)) + {more}
"""


def test_plain_functions_under_our_own_decorators(plugin):
    name = plugin(OWN.format(n=1, more=0))
    assert load_plugin(name) == ["lowest_1"]
    assert calipers.score([[1, 0], [1, 1]], "lowest_1")["lowest_1"].value == 0.0
    assert find("mentions_1").name == "mentions_1"


def test_a_plugin_that_was_edited_replaces_its_functions(plugin):
    load_plugin(plugin(OWN.format(n=2, more=0)))
    load_plugin(plugin(OWN.format(n=2, more=5)))
    assert calipers.score([[1, 0], [1, 1]], "lowest_2")["lowest_2"].value == 5.0
