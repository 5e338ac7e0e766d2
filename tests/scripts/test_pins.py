import hashlib
import importlib.util
import re
import tomllib
import zipfile
from pathlib import Path

import pytest
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


@pytest.mark.parametrize("file", ["constraints.txt", "constraints-harbor.txt"])
def test_every_pin_carries_hashes(file):
    assert len(pins(file)) > 50


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


def wheel(folder, name, tag):
    path = folder / f"{name}-1.0-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        inside = f"{name}-1.0.dist-info"
        archive.writestr(f"{inside}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{inside}/WHEEL", f"Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: {tag}\n")
        archive.writestr(f"{inside}/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_hashes_are_those_of_every_wheel_that_pip_could_take(tmp_path, monkeypatch):
    """Wheels in a folder, so that nobody else is asked."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for variable in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    plain = wheel(tmp_path, "plain", "py3-none-any")
    tags = (
        "cp311-cp311-manylinux_2_17_x86_64",
        "cp311-cp311-manylinux_2_34_x86_64",
        "cp311-cp311-manylinux2014_aarch64",
        "cp311-cp311-macosx_11_0_arm64",
        "cp311-cp311-macosx_10_13_x86_64",
    )
    built = {wheel(tmp_path, "built", tag) for tag in tags}
    wheel(tmp_path, "built", "cp311-cp311-win_amd64")
    assert script.hashes({"Plain": "1.0", "built": "1.0"}, ["3.11"]) == {"Plain": {plain}, "built": built}


def test_a_page_of_pins():
    assert script.page(["# why"], {"a": "1"}, {"a": {"ff", "00"}}) == (
        "# why\na==1 \\\n    --hash=sha256:00 \\\n    --hash=sha256:ff\n"
    )
