import pytest

from calipers.errors import InputError
from calipers.systems.nemo_gym.serve.configuration import chosen_server, handed_on, read_configuration

SERVER = """
mine:
  resources_servers:
    judged:
      entrypoint: app.py
      domain: math
      judge_model_server: {type: responses_api_models, name: judge}
      limit: ${limits.most}
      label: "a ${limits.most} b"
      mode: ${oc.env:CALIPERS_TEST_MODE,strict}
      key: ${oc.select:my_key,${oc.select:other_key,null}}
limits: {most: 3}
"""
MODEL = """
judge:
  responses_api_models:
    openai_model: {entrypoint: app.py, openai_base_url: "${url}", openai_api_key: sk-1, openai_model: m}
"""


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Write files into the working folder."""
    monkeypatch.chdir(tmp_path)

    def write(**files):
        for name, text in files.items():
            (tmp_path / f"{name}.yaml").write_text(text)
        return [f"{name}.yaml" for name in files if name != "env"]

    return write


def test_what_is_filled_in(written, monkeypatch):
    monkeypatch.delenv("CALIPERS_TEST_MODE", raising=False)
    configuration = read_configuration(written(a=SERVER))
    server = configuration.server("mine", "resources_servers")
    settings = server.settings
    assert (settings["limit"], settings["label"], settings["mode"], settings["key"]) == (3, "a 3 b", "strict", None)
    assert (server.implementation, server.references) == ("judged", [("responses_api_models", "judge")])
    monkeypatch.setenv("CALIPERS_TEST_MODE", "7")
    assert configuration.server("mine", "resources_servers").settings["mode"] == 7


def test_later_files_win_and_env_yaml_wins_over_all(written):
    paths = written(a=SERVER, b="limits: {most: 5}\nother_key: k\n", env="other_key: e\n")
    settings = read_configuration(paths).server("mine", "resources_servers").settings
    assert (settings["limit"], settings["key"]) == (5, "e")


def test_files_may_list_others(written, tmp_path):
    (tmp_path / "more.yaml").write_text(SERVER)
    paths = written(a="config_paths: [more.yaml]\nlimits: {most: 9}\n")
    assert read_configuration(paths).server("mine", "resources_servers").settings["limit"] == 9


def test_inheriting(written):
    paths = written(
        a=SERVER
        + "copied:\n  _inherit_from: mine\n  resources_servers: {judged: {domain: code, _delete_key: 'limit'}}\n"
    )
    settings = read_configuration(paths).server("copied", "resources_servers").settings
    assert (settings["domain"], settings["mode"]) == ("code", "strict")


def test_inheriting_by_a_text(written):
    text = "copied: ${inherit_from:mine}\ntwice: ${copy:limits}\n"
    configuration = read_configuration(written(a=SERVER + text))
    assert configuration.server("copied", "resources_servers").settings["mode"] == "strict"
    assert configuration.values["twice"] == configuration.values["limits"]


def test_a_text_may_name_a_value_inside_which_then_has_moved(written):
    more = "source: {most: 4, rest: 1}\nm: {resources_servers: {a: {k: '${inherit_from:source.most}'}}}\n"
    configuration = read_configuration(written(a=more))
    assert configuration.server("m", "resources_servers").settings == {"k": 4}
    assert configuration.values["source"] == {"rest": 1}


@pytest.mark.parametrize("directive", ["'${inherit_from:source.most}'", "{_inherit_from: source}"])
def test_what_nobody_has_given_is_not_given_by_inheriting_it(written, directive):
    source = "source: {most: '???'}" if "most" in directive else "source: '???'"
    configuration = read_configuration(written(a=f"{source}\nm: {{resources_servers: {{a: {{k: {directive}}}}}}}\n"))
    with pytest.raises(InputError, match="m: no value for k"):
        configuration.server("m", "resources_servers")


@pytest.mark.parametrize("how", ["${inherit_from:generic}", "{_inherit_from: generic}"])
def test_a_server_that_another_inherits_from_is_not_asked_for_unless_it_is_named(written, tmp_path, how):
    (tmp_path / "resources_servers" / "a").mkdir(parents=True)
    (tmp_path / "resources_servers" / "a" / "app.py").write_text("A.run_webserver()\n")
    configuration = read_configuration(written(x=f"generic: {{resources_servers: {{a: {{k: 1}}}}}}\nmine: {how}\n"))
    assert chosen_server(configuration, None)[1].name == "mine"
    assert chosen_server(configuration, "generic")[1].name == "generic"


def test_a_key_that_is_a_number_is_no_server(written):
    configuration = read_configuration(written(a=SERVER + "7: {resources_servers: {math: {}}}\n"))
    assert configuration.servers("resources_servers") == ["mine"]


def test_a_reference_to_the_server_itself(written):
    configuration = read_configuration(written(a="m: {resources_servers: {math: {k: '${m}'}}}\n"))
    with pytest.raises(InputError, match=r"m\.resources_servers\.math refers to itself; expected a reference to"):
        configuration.server("m", "resources_servers")


def test_a_server_without_implementations_is_not_that_of_a_file(written):
    more = "empty: {resources_servers: }\nmine: {resources_servers: {math: {k: 1}}}\n"
    assert chosen_server(read_configuration(written(a=more)), "math/app.py:Math")[1].name == "mine"


@pytest.mark.parametrize(
    ("text", "value"),
    [("@b*c", "@b*c"), ("*a", "*a"), ("a: b: c", "a: b: c"), ("2024-13-45", "2024-13-45"), ("12", 12)],
)
def test_a_secret_of_the_environment_need_not_be_yaml(written, monkeypatch, text, value):
    monkeypatch.setenv("CALIPERS_TEST_KEY", text)
    more = "m: {resources_servers: {a: {k: '${oc.env:CALIPERS_TEST_KEY}'}}}"
    assert read_configuration(written(a=more)).server("m", "resources_servers").settings == {"k": value}


def test_keys_of_others_are_not_handed_on(written):
    configuration = read_configuration(written(a=SERVER, b=MODEL + "url: http://x/v1\n"))
    mine = configuration.server("mine", "resources_servers")
    handed = handed_on(mine, [configuration.server("judge", "responses_api_models")])
    assert "sk-1" not in handed
    assert "http://x/v1" in handed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", r"a.yaml:1: it is not valid YAML"),
        ("m: {day: 2024-13-45}", "a.yaml: it is not valid YAML: month must be in"),
        ("[" * 5000, "a.yaml: it is not valid YAML"),
        ("- 1", "a.yaml: it has no settings"),
        ("config_paths: x.yaml", "a.yaml: config_paths is 'x.yaml'; expected a list"),
        ("config_paths: [nope.yaml]", "nope.yaml: No such file"),
        (f"config_paths: [{'x' * 300}]", "File name too long"),
        ("x: 1", "a.yaml: no resources server in it; expected NAME"),
        ("m: {resources_servers: {a: {}, b: {}}}", r"m.resources_servers is not a server; expected one implementation"),
        ("m: {resources_servers: {a: }}", "m.resources_servers.a has no settings"),
        ("m: {resources_servers: {a: {k: '???', l: ['???']}}}", "m: no value for k, l.0"),
        (
            "m: {resources_servers: {a: {k: '${nope}'}}}",
            r"m.resources_servers.a.k is \$\{nope\}, which is not set",
        ),
        ("m: {resources_servers: {a: {k: '${what:x}'}}}", r"\$\{what:x\} cannot be read"),
        (
            "m: {resources_servers: {a: {k: '${oc.env:CALIPERS_TEST_NONE}'}}}",
            "the environment has no CALIPERS_TEST_NONE",
        ),
        ("k: '${k}'\nm: {resources_servers: {a: {k: '${k}'}}}", "refers to itself"),
        ("m: {_inherit_from: nope, resources_servers: {a: {}}}", "_inherit_from: nope is not there"),
        (
            "m: {resources_servers: {a: {k: '${inherit_from:x.y}'}}}",
            "_inherit_from: x.y is not there; expected the dot",
        ),
        ("a: '${inherit_from:b}'\nb: '${inherit_from:a}'\nm: {resources_servers: {a: {}}}", "inherits from itself"),
        ("m: {resources_servers: {a: {}}}", r"m: no file resources_servers/a/app.py"),
        ("m: {resources_servers: {a: {}}}\nn: {resources_servers: {b: {}}}", "it has the resources servers m, n"),
    ],
)
def test_what_is_wrong_is_said(written, text, said):
    with pytest.raises(InputError, match=said):
        chosen_server(read_configuration(written(a=text)), None)


def test_a_model_that_no_file_has(written):
    with pytest.raises(
        InputError, match=("no responses_api_models in it, but judge is referenced; add it with another --config")
    ):
        read_configuration(written(a=SERVER)).server("judge", "responses_api_models")


def test_a_name_is_chosen_or_the_nearest_is_said(written, tmp_path):
    for name in ("a", "b"):
        (tmp_path / "resources_servers" / name).mkdir(parents=True)
        (tmp_path / "resources_servers" / name / "app.py").write_text(f"{name.upper()}.run_webserver()\n")
    configuration = read_configuration(
        written(x="first: {resources_servers: {a: {}}}\nsecond: {resources_servers: {b: {}}}")
    )
    spec, server = chosen_server(configuration, "second")
    assert (spec.endswith("resources_servers/b/app.py:B"), server.name) == (True, "second")
    spec, server = chosen_server(configuration, "resources_servers/a/app.py:Other")
    assert (spec.endswith("resources_servers/a/app.py:Other"), server.name) == (True, "first")
    with pytest.raises(InputError, match="did you mean 'second'"):
        chosen_server(configuration, "secnd")


def test_links_in_a_circle_are_told(written, tmp_path):
    written()
    (tmp_path / "a.yaml").symlink_to("a.yaml")
    with pytest.raises(InputError, match="Too many levels of symbolic links"):
        read_configuration(["a.yaml"])
