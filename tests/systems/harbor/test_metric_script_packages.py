"""The packages that scripts declare are installed before they run; from the test's own wheels, without a network."""

from __future__ import annotations

import base64
import hashlib
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest
from systems.harbor.metric_page import put

from calipers.isolate.launch import NAMES, attempt
from calipers.systems.harbor.metric_script import ScriptError, cache, find_uv, run_script

DECLARED = "# /// script\n# dependencies = ['{}']\n# ///\n"
MODULE = "def worth(rewards):\n    return sum(reward['reward'] for reward in rewards) * 10\n"


@pytest.fixture(autouse=True)
def apart(tmp_path, monkeypatch):
    """A cache and a package index for this test only, without the developer's settings."""
    if find_uv() is None:
        pytest.skip("uv is not installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
    (tmp_path / "wheels").mkdir()


def wheel(folder: Path, name: str = "gauge", needs: str = "") -> None:
    """A handmade wheel with one module."""
    about = f"{name}-1.0.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n" + (f"Requires-Dist: {needs}\n" if needs else "")
    files = {
        f"{name}.py": MODULE,
        f"{about}/METADATA": metadata,
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    hashes = {path: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()) for path, text in files.items()}
    rows = [f"{path},sha256={hashes[path].decode().rstrip('=')},{len(text)}" for path, text in files.items()]
    with ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        archive.writestr(f"{about}/RECORD", "\n".join([*rows, f"{about}/RECORD,,"]) + "\n")


def script(folder: Path, needs: str = "gauge>=1") -> Path:
    path = put(folder, "import gauge\nleave({'worth': gauge.worth(map(json.loads, open(source)))})\n")
    path.write_text(DECLARED.format(needs) + path.read_text())
    return path


@pytest.mark.parametrize("name", NAMES)
def test_a_declared_package_is_there(tmp_path, name):
    how = attempt(name)
    if isinstance(how, str):
        pytest.skip(how)
    wheel(tmp_path / "wheels", needs="tape")
    wheel(tmp_path / "wheels", "tape")
    assert run_script(script(tmp_path), [{"reward": 2.0}], mechanism=how) == {"worth": 20.0}


def test_it_is_installed_once_and_then_needs_neither_index_nor_uv(tmp_path, monkeypatch):
    wheel(tmp_path / "wheels")
    run_script(script(tmp_path), [])
    (tmp_path / "wheels" / "gauge-1.0-py3-none-any.whl").unlink()
    without_uv(monkeypatch)
    assert run_script(script(tmp_path), [{"reward": 1.0}]) == {"worth": 10.0}
    assert len([*cache().iterdir()]) == 1  # and nothing half made


def test_without_uv_a_declaration_is_a_clear_line(tmp_path, monkeypatch):
    without_uv(monkeypatch)
    with pytest.raises(ScriptError) as failure:
        run_script(script(tmp_path), [])
    assert str(failure.value) == (
        "it declares gauge>=1, which need uv to install, and uv is not installed; pip install 'calipers[harbor]'"
    )


def test_without_uv_a_script_that_declares_nothing_runs(tmp_path, monkeypatch):
    without_uv(monkeypatch)
    path = put(tmp_path, "leave({'one': 1})")
    path.write_text("# /// script\n# dependencies = []\n# ///\n" + path.read_text())
    assert run_script(path, []) == {"one": 1}


def test_nothing_is_built(tmp_path):
    """A source archive runs code while it is built, so it is not installed."""
    built = tmp_path / "built"
    files = {
        "PKG-INFO": "Metadata-Version: 2.1\nName: gauge\nVersion: 1.0\n",
        "pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = 'builder'\nbackend-path = ['.']\n",
        "builder.py": f"open({str(built)!r}, 'w').close()\n",
    }
    with tarfile.open(tmp_path / "wheels" / "gauge-1.0.tar.gz", "w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"gauge-1.0/{name}")
            entry.size = len(text)
            archive.addfile(entry, BytesIO(text.encode()))
    with pytest.raises(ScriptError, match="its dependencies cannot be installed from wheels") as failure:
        run_script(script(tmp_path), [])
    assert failure.value.kind == "declaration"
    assert not built.exists()
    assert not any(path.is_dir() and path.name[0] != "." for path in cache().iterdir())


def test_settings_beside_the_script_are_not_obeyed(tmp_path, monkeypatch):
    """A dataset must not decide where packages come from."""
    wheel(tmp_path / "wheels")
    monkeypatch.delenv("UV_NO_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    dataset = tmp_path / "dataset"
    path = script(dataset)
    (dataset / "uv.toml").write_text("no-such-setting = true\n")  # over which uv would fail
    monkeypatch.chdir(dataset)
    assert run_script(path, [{"reward": 1.0}]) == {"worth": 10.0}


def without_uv(monkeypatch):
    monkeypatch.setitem(sys.modules, "uv", None)
    monkeypatch.setenv("PATH", "/nowhere")
