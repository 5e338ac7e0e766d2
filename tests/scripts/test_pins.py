import hashlib
import importlib.util
import os
import re
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from forks import Forks
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("script_pins", ROOT / "scripts" / "pins.py")
script = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(script)


def pins(file):
    """Name -> how many hashes it has; every line of the file is a comment or a pin with hashes."""
    text = re.sub(r"^#.*\n", "", (ROOT / file).read_text(), flags=re.MULTILINE).replace("\\\n", "")
    found = {}
    for line in text.splitlines():
        pin = re.fullmatch(r"([\w.-]+)==[\w.+!]+((?:\s+--hash=sha256:[0-9a-f]{64})+)", line.rstrip())
        assert pin, line
        found[canonicalize_name(pin[1])] = len(pin[2].split())
    return found


FILES = ["constraints.txt", *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("constraints/*"))]


@pytest.mark.parametrize("file", FILES)
def test_every_pin_carries_hashes_and_no_file_says_where_packages_are(file):
    assert all(pins(file).values())
    assert "://" not in (ROOT / file).read_text()


def test_the_files_of_pins_are_these_and_a_source_archive_carries_them():
    assert {file: len(pins(file)) > 50 for file in FILES} == {
        "constraints.txt": True,
        "constraints/browser.txt": False,
        "constraints/cuda.txt": False,
        "constraints/exports.txt": True,
        "constraints/harbor.txt": True,
        "constraints/hf.txt": False,
        "constraints/lm-eval.txt": True,
        "constraints/lm-eval-source.txt": False,
        "constraints/ray.txt": False,
        "constraints/site.txt": False,
        "constraints/stores.txt": True,
        "constraints/torch-cpu.txt": False,
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    included = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert {"constraints.txt", "constraints"} <= set(included)


def test_what_is_built_from_source_is_named_and_each_has_one_archive():
    named = re.search(r"^FROM_SOURCE := ([\w,-]+)", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)[1]
    assert pins("constraints/lm-eval-source.txt") == dict.fromkeys(named.split(","), 1)


def test_pip_installs_in_hash_mode_alone():
    """But for Calipers itself, and for the throwaway environment in which versions are chosen."""
    installs = [
        line
        for line in (ROOT / "Makefile").read_text().splitlines()
        if "pip install" in line or "(PIP) install" in line
    ]
    strict = [line for line in installs if "install --require-hashes --no-deps --only-binary=:all: " in line]
    assert [line.split()[0] for line in strict] == ["HASHED", "BUILT"]
    ours, resolving = (line for line in installs if line not in strict)
    assert ours == "OURS := $(PIP) install --no-deps --no-build-isolation -e ."
    assert resolving.strip().startswith('"$$scratch/bin/python" $(PIP) install ')


def test_what_is_installed_without_resolving_agrees_on_versions():
    """One environment takes the pins of several files; two versions of a package would undo each other."""
    together = (
        ("constraints.txt", "constraints/hf.txt"),
        ("constraints.txt", "constraints/browser.txt"),
        ("constraints/lm-eval.txt", "constraints/lm-eval-source.txt"),
    )
    assert script.read(ROOT / "constraints/torch-cpu.txt")[1] == {
        "torch": script.read(ROOT / "constraints/hf.txt")[1]["torch"] + "+cpu"
    }
    for files in together:
        versions = {}
        for file in (*files, "constraints/cuda.txt"):
            for name, version in script.read(ROOT / file)[1].items():
                assert versions.setdefault(canonicalize_name(name), version) == version


def test_all_that_a_development_install_asks_for_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras, wanted = project["project"]["optional-dependencies"], [*project["project"]["dependencies"]]
    wanted += project["build-system"]["requires"] + ["editables", *extras["dev"]]
    for asked in wanted:
        need = Requirement(asked)
        inner = [one for extra in need.extras for one in extras[extra]] if need.name == "calipers" else [asked]
        missing = {canonicalize_name(Requirement(one).name) for one in inner} - set(pins("constraints.txt"))
        assert not missing


def test_a_compiled_package_has_a_hash_for_every_interpreter():
    """Three interpreters, two processors, Linux and macOS: one wheel for each."""
    found = pins("constraints.txt")
    assert all(found[name] >= 12 for name in ("numpy", "aiohttp", "zstandard"))
    assert found["click"] == 1


def wheel(folder, name, tag, version="1.0"):
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        inside = f"{name}-{version}.dist-info"
        archive.writestr(f"{inside}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{inside}/WHEEL", f"Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: {tag}\n")
        archive.writestr(f"{inside}/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def archive(folder, name):
    path = folder / f"{name}-1.0.tar.gz"
    with tarfile.open(path, "w:gz"):
        pass
    return hashlib.sha256(path.read_bytes()).hexdigest()


PIP = "pip._internal.cli.main"
FORKS = Forks(PIP, "pip._internal.commands.index")


def forked(*arguments):
    code, printed, errors = FORKS.run(arguments, Path.cwd(), dict(os.environ), module=PIP)
    return code, printed.decode(), errors.decode()


def test_pip_starts_in_a_process_of_its_own():
    """Which the other tests fork."""
    started, ended = script.pip("--version"), forked("--version")
    assert started == ended
    assert (started[0], started[1].split()[0], started[2]) == (0, "pip", "")


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A folder of packages, so that nobody else is asked; pip is forked, as most of its time is that of its start."""
    monkeypatch.setattr(script, "pip", forked)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for variable in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(variable, raising=False)
    folder = tmp_path / "shelf"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_hashes_are_those_of_every_wheel_that_pip_could_take(shelf):
    plain = wheel(shelf, "plain", "py3-none-any")
    tags = (
        "cp311-cp311-manylinux_2_17_x86_64",
        "cp311-cp311-manylinux_2_34_x86_64",
        "cp311-cp311-manylinux2014_aarch64",
        "cp311-cp311-macosx_11_0_arm64",
        "cp311-cp311-macosx_10_13_x86_64",
    )
    built = {wheel(shelf, "built", tag) for tag in tags}
    for other in ("cp311-cp311-win_amd64", "cp311-cp311-manylinux_2_5_x86_64", "py3-none-any", "cp312-cp312-any"):
        wheel(shelf, "built", other)
    wheel(shelf, "built", "cp311-cp311-manylinux_2_17_x86_64", "2.0")
    archive(shelf, "built")
    assert script.wheels({"Plain": "1.0", "built": "1.0"}, script.machines(["3.11"])) == {
        "Plain": {plain},
        "built": built,
    }


def test_a_build_with_a_label_is_a_version_of_its_own(shelf):
    """Given both hashes pip would take the one whose hash its index names, and so never 1.0+cpu from a folder."""
    tag = "cp312-cp312-manylinux_2_28_x86_64"
    for version, digest in [(version, wheel(shelf, "torch", tag, version)) for version in ("1.0", "1.0+cpu")]:
        assert script.wheels({"torch": version}, script.machines(["3.12"])) == {"torch": {digest}}


def test_a_machine_that_a_package_has_no_wheel_for_is_named(shelf, capsys):
    wheel(shelf, "built", "cp312-cp312-manylinux_2_28_x86_64")
    script.wheels({"built": "1.0"}, script.machines(["3.12"], macs=False))
    assert capsys.readouterr().out == (
        "built 1.0 has no wheel for 2 of 4 kinds of machine: "
        "Python 3.12 on aarch64 with glibc 2.28, Python 3.12 on aarch64 with glibc 2.39\n"
    )


def test_source_archives_are_for_what_has_no_wheel(shelf):
    source = archive(shelf, "old")
    assert script.sources({"old": "1.0"}) == {"old": {source}}
    with pytest.raises(SystemExit, match=r"no wheel of old 1\.0; expected one, and pip finds old-1\.0\.tar\.gz"):
        script.wheels({"old": "1.0"}, script.machines(["3.12"]))
    wheel(shelf, "old", "py3-none-any")
    with pytest.raises(SystemExit, match=r"expected one source archive of old 1\.0 and no wheel"):
        script.sources({"old": "1.0"})
    with pytest.raises(SystemExit, match=r"pip finds no file of old 2\.0"):
        script.sources({"old": "2.0"})


def test_a_higher_build_number_wins_as_it_does_with_pip():
    tags = script.machines(["3.11"], macs=False)["Python 3.11 on x86_64 with glibc 2.28"]
    wheels = ["a-1.0-py3-none-any.whl", "a-1.0-2-py3-none-any.whl", "a-1.0-10-py3-none-any.whl"]
    assert script.chosen(wheels, tags) == "a-1.0-10-py3-none-any.whl"


def test_a_file_written_twice_is_the_same_and_says_so(shelf, tmp_path, monkeypatch, capsys):
    digest = wheel(shelf, "torch", "py3-none-any", "1.0+cpu")
    file = tmp_path / "pins.txt"
    file.write_text(f"# why\ntorch==1.0+cpu \\\n    --hash=sha256:{'0' * 64}\n")

    def run(*options):
        monkeypatch.setattr(sys, "argv", ["pins.py", str(file), "--python", "3.11", *options])
        script.main()
        return capsys.readouterr().out.splitlines()

    looking, same = f"{file}: looking for the hashes of 1 packages", f"{file}: 1 pins, 1 hash, as before"
    changed = [f"{file}: torch 1.0+cpu: 1 hash more", f"{file}: torch 1.0+cpu: 1 hash gone", f"{file}: 1 pins, 1 hash"]
    assert run() == [looking, *changed]
    written = file.read_text()
    assert written == script.page(["# why"], {"torch": "1.0+cpu"}, {"torch": {digest}})
    assert run() == [looking, same]
    assert file.read_text() == written
    # Not every machine has it: there the file may be left alone, and nothing else is asked of it.
    (shelf / "torch-1.0+cpu-py3-none-any.whl").unlink()
    with pytest.raises(SystemExit, match=r"pip finds no file of torch 1\.0\+cpu"):
        run()
    capsys.readouterr()
    assert run("--if-there")[-1].endswith("pip finds no file of torch 1.0+cpu; the file is unchanged")
    assert file.read_text() == written


def test_new_pins_are_named_with_what_they_were():
    before, had = {"a": "1", "b": "1"}, {"a": {"0"}, "b": {"1"}}
    assert script.changes(before, had, {"a": "2", "c": "1"}, {"a": {"2"}, "c": {"3"}}) == [
        "a 2: was 1",
        "b 1: not needed any more",
        "c 1: new",
        "2 pins, 2 hashes",
    ]


def test_a_page_of_pins():
    found = {"a": {"ff", "00"}, "B-c": {"11"}, "b": {"22"}}
    assert script.page(["# why"], {"b": "2", "B-c": "3", "a": "1"}, found) == (
        "# why\na==1 \\\n    --hash=sha256:00 \\\n    --hash=sha256:ff\n"
        "B-c==3 \\\n    --hash=sha256:11\nb==2 \\\n    --hash=sha256:22\n"
    )
