"""Write the hashes of every pinned package into constraint files, for pip's hash mode.

    python scripts/pins.py constraints.txt --python 3.11 3.12 3.13

A pure Python wheel has one hash. A compiled package has one for each interpreter, processor and C library or
system. The script asks pip for the files of a package and chooses those that pip would install on each kind of machine.
It downloads, builds and runs nothing. pip's own settings determine the index, which no file of the repository names.
The hashes in a file are dropped and looked up again. ``--source`` uses source archives instead, for packages without
wheels; ``--if-there`` leaves a file unchanged if pip cannot find its packages.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

PYTHONS = ("3.11", "3.12", "3.13")
PROCESSORS = ("x86_64", "aarch64")
LIBRARIES = (28, 39)  # glibc 2.N of an old and of a new machine: of several wheels, pip installs the newest that fits
MACS = ((12, "arm64"), (15, "arm64"), (14, "x86_64"))  # pip also installs wheels for older versions
AT_ONCE = 8
PIN = re.compile(r"([\w.-]+)==([^\s;\\]+)")
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
# pip -vvv prints the address of every file in the index, also of files that do not fit this machine.
ADDRESS = re.compile(r"(?:https?|file)://\S+/([^/\s#,]+\.(?:whl|tar\.gz|zip))(?:#sha256=([0-9a-f]{64}))?")
Pins = dict[str, str]  # name -> version
Hashes = dict[str, set[str]]  # name -> hashes
Files = dict[str, str]  # file -> its hash
Machines = dict[str, list[Tag]]  # description of a machine -> the tags of wheels that it accepts, the best first


class NotThere(SystemExit):
    """pip finds no file of a package."""


def main() -> None:
    """Rewrite each file, and print the changes."""
    parser = argparse.ArgumentParser(description="Write the hashes of every pinned package into files of pins.")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--python", nargs="+", default=list(PYTHONS), help="interpreters to look for")
    parser.add_argument("--linux", action="store_true", help="the packages are for Linux only")
    parser.add_argument("--source", action="store_true", help="take source archives, for packages without wheels")
    parser.add_argument("--if-there", action="store_true", help="leave a file unchanged if its packages are not found")
    parser.add_argument("--pins", type=Path, help="take the names and versions from this file instead")
    asked = parser.parse_args()
    for file in asked.files:
        head, before, had = read(file)
        pins = read(asked.pins)[1] if asked.pins else before
        print(f"{file}: looking for the hashes of {len(pins)} packages", flush=True)
        try:
            found = sources(pins) if asked.source else wheels(pins, machines(asked.python, macs=not asked.linux))
        except NotThere as missing:
            if not asked.if_there:
                raise
            print(f"{file}: {missing}; the file is unchanged")
            continue
        file.write_text(page(head, pins, found))
        for line in changes(before, had, pins, found):
            print(f"{file}: {line}", flush=True)


def read(file: Path) -> tuple[list[str], Pins, Hashes]:
    """The comments, the pins and the hashes of a file."""
    lines = file.read_text().splitlines()
    pins: Pins = {}
    had: Hashes = {}
    name = ""
    for line in lines:
        if found := PIN.match(line):
            name = found[1]
            pins[name] = found[2]
            had[name] = set()
        if name:
            had[name] |= set(HASH.findall(line))
    return [line for line in lines if line.startswith("#")], pins, had


def machines(pythons: Sequence[str], *, macs: bool = True) -> Machines:
    """All kinds of machines that the pins are for."""
    linux = {
        f"{processor} with glibc 2.{library}": _linux(processor, library)
        for processor in PROCESSORS
        for library in LIBRARIES
    }
    apple = {f"macOS {major} on {processor}": [*mac_platforms((major, 0), processor)] for major, processor in MACS}
    tags_of: Machines = {}
    for python in pythons:
        major, minor = (int(part) for part in python.split("."))
        own = f"cp{major}{minor}"
        for machine, platforms in (linux | (apple if macs else {})).items():
            tags = [*cpython_tags((major, minor), [own], platforms), *compatible_tags((major, minor), own, platforms)]
            tags_of[f"Python {python} on {machine}"] = tags
    return tags_of


def _linux(processor: str, library: int) -> list[str]:
    """The platforms of wheels that a machine with glibc 2.N accepts, the newest first."""
    numbered = [f"manylinux_2_{minor}" for minor in range(library, 4, -1)]
    legacy = ["manylinux2014", *(["manylinux2010", "manylinux1"] if processor == "x86_64" else [])]
    return [f"{platform}_{processor}" for platform in (*numbered, *legacy)]


def wheels(pins: Mapping[str, str], kinds: Machines) -> Hashes:
    """The hashes of all wheels that pip would install on any of these machines."""
    hashes: Hashes = {}
    for name, files in listed(pins).items():
        fits = {machine: chosen(files, tags) for machine, tags in kinds.items()}
        taken = {file for file in fits.values() if file}
        if without := [machine for machine, file in fits.items() if not file]:
            kept = f"{len(without)} of {len(kinds)} kinds of machine"
            print(f"{name} {pins[name]} has no wheel for {kept}: {', '.join(without)}", flush=True)
        if not taken:
            sys.exit(f"no wheel of {name} {pins[name]}; expected one, and pip finds {', '.join(files) or 'no file'}")
        hashes[name] = {files[file] for file in taken}
    return hashes


def sources(pins: Mapping[str, str]) -> Hashes:
    """The hashes of the source archives."""
    hashes: Hashes = {}
    for name, files in listed(pins).items():
        hashes[name] = {digest for file, digest in files.items() if not file.endswith(".whl")}
        if len(hashes[name]) != 1 or len(files) != 1:
            sys.exit(f"expected one source archive of {name} {pins[name]} and no wheel; pip finds {', '.join(files)}")
    return hashes


def chosen(files: Iterable[str], tags: Sequence[Tag]) -> str | None:
    """The wheel that pip installs on a machine: by best tag, then by highest build number; None if none fits."""
    rank = {tag: place for place, tag in enumerate(tags)}
    fits: list[tuple[int, int, str, str]] = []
    for file in files:
        if not file.endswith(".whl"):
            continue
        _, _, build, own = parse_wheel_filename(file)
        if places := [rank[tag] for tag in own if tag in rank]:
            number, suffix = build or (-1, "")
            fits.append((-min(places), number, suffix, file))
    return max(fits)[-1] if fits else None


def listed(pins: Mapping[str, str]) -> dict[str, Files]:
    """Name -> all files of the pinned version that pip can find."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(pins, pool.map(_files, pins.keys(), pins.values()), strict=True))


def pip(*arguments: str) -> tuple[int, str, str]:
    """Run pip: its exit code, its output and its errors."""
    ended = subprocess.run([sys.executable, "-m", "pip", *arguments], capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout, ended.stderr


def _files(name: str, version: str) -> Files:
    # The exit code only says whether a version fits this interpreter, so it is not used.
    code, printed, errors = pip("--disable-pip-version-check", "-vvv", "index", "versions", "--pre", name)
    found: Files = {}
    for address in ADDRESS.finditer(printed):
        file = unquote(address[1])
        if _version(name, file) != Version(version):
            continue
        digest = address[2] or _digest(address[0])
        if found.setdefault(file, digest) != digest:
            sys.exit(f"pip finds two files {file} that are not the same; expected one")
    if not found:
        raise NotThere(f"{errors if code else ''}pip finds no file of {name} {version}")
    return found


def _version(name: str, file: str) -> Version | None:
    """The version of a file of this package; None for other files."""
    try:
        own, version = parse_wheel_filename(file)[:2] if file.endswith(".whl") else parse_sdist_filename(file)
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None
    return version if own == canonicalize_name(name) else None


def _digest(address: str) -> str:
    """The hash of a file in a local folder; an index has the hashes of its files."""
    parts = urlsplit(address)
    if parts.scheme != "file":
        sys.exit(f"pip is told no sha256 of {parts.path.rpartition('/')[2]}; expected one")
    with open(url2pathname(parts.path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def changes(before: Pins, had: Hashes, pins: Pins, found: Hashes) -> list[str]:
    """The changes of a file, a line for each package, and the total numbers of pins and hashes.

    >>> changes({"a": "1", "b": "1"}, {"a": {"0"}, "b": {"1"}}, {"a": "1", "c": "2"}, {"a": {"0", "2"}, "c": {"3"}})
    ['a 1: 1 hash more', 'b 1: not needed any more', 'c 2: new', '2 pins, 3 hashes']
    """
    lines = []
    for name in sorted({*before, *pins}, key=str.lower):
        if name not in pins:
            lines.append(f"{name} {before[name]}: not needed any more")
        elif name not in before:
            lines.append(f"{name} {pins[name]}: new")
        elif before[name] != pins[name]:
            lines.append(f"{name} {pins[name]}: was {before[name]}")
        else:
            for count, what in ((len(found[name] - had[name]), "more"), (len(had[name] - found[name]), "gone")):
                if count:
                    lines.append(f"{name} {pins[name]}: {_hashes(count)} {what}")
    same = "" if lines else ", as before"
    return [*lines, f"{len(pins)} pins, {_hashes(sum(map(len, found.values())))}{same}"]


def _hashes(count: int) -> str:
    return f"{count} hash" if count == 1 else f"{count} hashes"


def page(head: Iterable[str], pins: Mapping[str, str], found: Mapping[str, set[str]]) -> str:
    """The content of a file: its comments, then each pin with its hashes, sorted by name.

    >>> page(["# why"], {"b": "2", "a": "1"}, {"a": {"ff", "00"}, "b": {"11"}})
    '# why\\na==1 \\\\\\n    --hash=sha256:00 \\\\\\n    --hash=sha256:ff\\nb==2 \\\\\\n    --hash=sha256:11\\n'
    """
    lines = [*head]
    for name in sorted(pins, key=lambda name: f"{name}==".lower()):
        pin = f"{name}=={pins[name]}"
        lines.append(" \\\n    ".join([pin, *(f"--hash=sha256:{digest}" for digest in sorted(found[name]))]))
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
