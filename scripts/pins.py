"""Write the hashes of every pinned package into files of pins, for pip's hash mode.

    python scripts/pins.py constraints.txt --python 3.11 3.12 3.13

A wheel of plain Python has one hash. One that was compiled has one for each interpreter, processor and C
library or system, so pip is asked which it would take on each of them; where it looks is pip's own setting, and no
file of ours names it. Hashes that a file has by now are dropped: all are asked for anew. Run it with an
interpreter that the packages are for: pip compares them with its own, too.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

PYTHONS = ("3.11", "3.12", "3.13")
PROCESSORS = ("x86_64", "aarch64")
LIBRARIES = (28, 39)  # glibc 2.N of an old machine and of a new one: of several wheels pip takes the newest that fits
MACS = ("macosx_12_0_arm64", "macosx_15_0_arm64", "macosx_14_0_x86_64")  # pip takes wheels for older ones, too
ANY = "-none-any.whl"
Pins = dict[str, str]  # name -> version
Hashes = dict[str, set[str]]  # name -> hashes


def main() -> None:
    """Rewrite each file."""
    parser = argparse.ArgumentParser(description="Write the hashes of every pinned package into files of pins.")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--python", nargs="+", default=list(PYTHONS))
    asked = parser.parse_args()
    for file in asked.files:
        lines = file.read_text().splitlines()
        head = [line for line in lines if line.startswith("#")]
        pins: Pins = {found[1]: found[2] for line in lines if (found := re.match(r"([\w.-]+)==([^\s;\\]+)", line))}
        file.write_text(page(head, pins, hashes(pins, asked.python)))


def hashes(pins: Mapping[str, str], pythons: Sequence[str]) -> Hashes:
    """The hashes of all wheels that pip would take on any of these interpreters."""
    found: Hashes = {}
    compiled = {**pins}
    linux = [_linux(processor, library) for processor in PROCESSORS for library in LIBRARIES]
    for python in pythons:
        for platforms in [*linux, *([mac] for mac in MACS)]:
            for name, (wheel, digest) in chosen(compiled, python, platforms).items():
                found.setdefault(name, set()).add(digest)
                if wheel.endswith(ANY):
                    compiled.pop(name, None)  # the same everywhere
    if missing := sorted(set(pins) - set(found)):
        sys.exit(f"no wheel of {', '.join(missing)}; expected one of each")
    return found


def _linux(processor: str, library: int) -> list[str]:
    """The platforms of wheels that a machine with glibc 2.N takes, the newest first."""
    older = [f"manylinux_2_{minor}" for minor in range(library, 4, -1)]
    old = ["manylinux2014", *(["manylinux2010", "manylinux1"] if processor == "x86_64" else [])]
    return [f"{one}_{processor}" for one in (*older, *old)]


def chosen(pins: Mapping[str, str], python: str, platforms: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Name -> the wheel that pip would take on such a machine, and its hash."""
    with tempfile.TemporaryDirectory() as scratch:
        asked, report = Path(scratch, "asked.txt"), Path(scratch, "report.json")
        asked.write_text("".join(f"{name}=={version}\n" for name, version in pins.items()))
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-qq", "install", "--dry-run"]
        command += ["--ignore-installed", "--no-deps", "--only-binary=:all:", "--target", scratch]
        command += ["--implementation", "cp", "--python-version", python]
        command += [word for one in platforms for word in ("--platform", one)]
        subprocess.run([*command, "--report", str(report), "-r", str(asked)], check=True)
        found = json.loads(report.read_text())["install"]
    named = {_plain(name): name for name in pins}
    return {
        named[_plain(one["metadata"]["name"])]: (
            one["download_info"]["url"].rpartition("/")[2],
            one["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for one in found
    }


def page(head: Iterable[str], pins: Mapping[str, str], found: Mapping[str, set[str]]) -> str:
    """The file: its comments, then each pin with its hashes.

    >>> page(["# why"], {"a": "1"}, {"a": {"ff", "00"}})
    '# why\\na==1 \\\\\\n    --hash=sha256:00 \\\\\\n    --hash=sha256:ff\\n'
    """
    lines = [*head]
    for name, version in pins.items():
        lines.append(" \\\n    ".join([f"{name}=={version}", *(f"--hash=sha256:{one}" for one in sorted(found[name]))]))
    return "\n".join(lines) + "\n"


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main()
