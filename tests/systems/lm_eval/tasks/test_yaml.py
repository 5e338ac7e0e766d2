import pytest

from calipers.errors import InputError
from calipers.systems.lm_eval.tasks import task_file
from calipers.systems.lm_eval.tasks.task_file import Function, read_task_file


def written(folder, **files):
    for name, text in files.items():
        (folder / name.replace("_yaml", ".yaml")).write_text(text)
    return folder / "t.yaml"


def test_a_function_is_a_name_and_runs_nothing(tmp_path):
    (tmp_path / "utils.py").write_text("raise SystemExit('run')")
    path = written(
        tmp_path, t_yaml="task: t\nprocess_docs: !function utils.f\nmetric_list:\n  - metric: !function a.b.g\n"
    )
    values = read_task_file(path).values
    assert values["process_docs"] == Function("utils", "f", tmp_path)
    assert values["metric_list"] == [{"metric": Function("a.b", "g", tmp_path)}]
    assert str(values["process_docs"]) == "!function utils.f"


def test_a_function_of_an_included_file_is_looked_for_beside_that_file(tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "base").write_text("process_docs: !function utils.f\n")
    path = written(tmp_path, t_yaml="include: shared/base\ntask: t\n")
    assert read_task_file(path).values["process_docs"].folder == tmp_path / "shared"


def test_a_key_is_placed_where_it_stands_also_in_an_included_file(tmp_path):
    path = written(tmp_path, base="a: 1\nb: 2\n", t_yaml="include: base\ntask: t\n\nb: 3\n")
    file = read_task_file(path)
    assert file.place("b") == f"{path}:4: b"
    assert file.place("a") == f"{tmp_path}/base:1: a"
    assert file.place("absent") == f"{path}: absent"


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1, 2\n", ":2: is no YAML ("),
        ("a: b: c\n", ":1: is no YAML (mapping values are not allowed in this context"),
        ("- a\n", ": is a list; expected a mapping"),
        ("a: !!python/object/apply:os.system [ls]\n", ":1: is no YAML (could not determine a constructor"),
        ("a: !other b\n", ":1: is no YAML (could not determine a constructor"),
        ("a: !function utils\n", ":1: is no YAML (!function 'utils'; expected module.name"),
        ("a: !function ../x.f\n", ":1: is no YAML (!function"),
        ("a: 2024-13-45\n", ": is no YAML (month must be in 1..12"),
        ("a: &x [*x]\n", ":1: *x holds itself; expected values that end"),
        (BOMB, ":8: its aliases stand for more than it may hold; expected a task file"),
        (BOMB.replace("[", "{<<: [").replace("]", "]}"), ""),  # the same through merge keys
        ("a: " + "[" * 100_000, ":1: more than 64 levels deep; expected a task file"),
        ("include: absent\n", ":1: include: no file"),
        ("include: {a: b}\n", ":1: include: is {'a': 'b'}; expected a path or a list of paths"),
        ("include: t.yaml\n", ":1: include: t.yaml is included twice"),
    ],
)
def test_what_is_no_task_file_is_refused_with_its_line(tmp_path, text, said):
    path = written(tmp_path, t_yaml=text)
    with pytest.raises(InputError) as caught:
        read_task_file(path)
    assert str(caught.value).startswith(f"{path}{said}")


def test_an_alias_within_reason_is_followed(tmp_path):
    path = written(tmp_path, t_yaml="a: &a {x: 1}\nb: {<<: *a, y: 2}\nc: *a\n")
    assert read_task_file(path).values == {"a": {"x": 1}, "b": {"x": 1, "y": 2}, "c": {"x": 1}}


def test_a_file_too_large_or_in_no_unicode_is_refused(tmp_path, monkeypatch):
    path = written(tmp_path, t_yaml="a: bbbb\n")
    monkeypatch.setattr(task_file, "LARGEST", 4)
    with pytest.raises(InputError, match=r"larger than 0 MiB"):
        read_task_file(path)
    monkeypatch.undo()
    path.write_bytes(b"a: \xff\n")
    with pytest.raises(InputError, match=r"byte 4 is not UTF-8"):
        read_task_file(path)


def test_a_cycle_through_another_file_names_both(tmp_path):
    path = written(tmp_path, t_yaml="include: b.yaml\ntask: t\n", b_yaml="include: t.yaml\n")
    with pytest.raises(InputError, match=r"b\.yaml:1: include: t\.yaml is included twice, also by .*t\.yaml"):
        read_task_file(path)
