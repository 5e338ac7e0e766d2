"""Images without a container engine: a base made from packages, then one cached layer per build step.

A base is a folder that `mmdebstrap` fills from the mirror that this machine's apt is configured with. A step runs in a
container that has the result of the earlier steps as its root. What it writes is a layer, stored under a hash of
everything it was made from. Steps are untrusted programs: they have the rights, limits and network of a trial.

Only the standard library and relative imports are used: this file is copied for Harbor's interpreter.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import re
import secrets
import shlex
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

BASES_VERSION = "1"  # the version of bases: a new version builds them again
MAKER = "mmdebstrap"
FOLDER = "CALIPERS_IMAGES"
MIRRORS = "CALIPERS_MIRRORS"
FORBIDDEN = "none"
BASE_SECONDS = 1800.0
BUILD_SECONDS = 600.0  # Harbor's default
ANSWER_SECONDS = 20.0
RESERVE = 2 << 30  # bytes of the disk that must stay free
MOST_LINES, LAST_LINES, LONGEST = 40, 3, 400  # of the output of a failed step
OFFICIAL = (
    "",
    "library/",
    "docker.io/",
    "docker.io/library/",
    "public.ecr.aws/docker/library/",
    "mirror.gcr.io/library/",
)
BENCH = "ghcr.io/laude-institute/t-bench/"
"""The registry folder of images that add a terminal recorder to Ubuntu or Python."""
RECORDER = ("asciinema", "tmux")
TAGS = {
    "ubuntu": {"26.04": "resolute", "24.04": "noble", "22.04": "jammy", "20.04": "focal", "latest": "noble"},
    "debian": {"13": "trixie", "12": "bookworm", "11": "bullseye", "latest": "trixie", "stable": "trixie"},
}
KEYS = "/usr/share/keyrings/{}-archive-keyring.gpg"  # here and in the image
COMPONENTS = {"ubuntu": "main universe", "debian": "main"}
PYTHONS = {
    "ubuntu": {"focal": (3, 8), "jammy": (3, 10), "noble": (3, 12)},
    "debian": {"bullseye": (3, 9), "bookworm": (3, 11), "trixie": (3, 13)},
}
"""The Python of each suite, the oldest first; suites at the same position in both lists are of the same age."""
CERTIFICATES = "usr/local/share/ca-certificates"
FILES = {
    "usr/sbin/policy-rc.d": "#!/bin/sh\nexit 101\n",  # installed services are not started
    "etc/apt/apt.conf.d/docker-no-languages": 'Acquire::Languages "none";\n',
    "etc/apt/apt.conf.d/docker-clean": 'Dir::Cache::pkgcache ""; Dir::Cache::srcpkgcache "";\n',
    "etc/dpkg/dpkg.cfg.d/docker-excludes": "path-exclude=/usr/share/doc/*\npath-exclude=/usr/share/man/*\n",
}
"""Files that the images of these distributions have and their packages do not."""
PROGRAMS = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}


class ImageError(Exception):
    """The reason why there is no image, in one line."""


@dataclass(frozen=True, slots=True)
class BaseImage:
    """The packages of a suite that replace an image."""

    image: str
    vendor: str
    suite: str
    packages: tuple[str, ...] = ()
    python: str = ""
    differs: str = ""  # how it differs from the image

    @property
    def words(self) -> str:
        """The replacement of the image, in one line."""
        python = f", Python {self.python}" if self.python else ""
        why = f", {self.differs}" if self.differs else ""
        return f"{self.image}: built from packages ({self.vendor.capitalize()} {self.suite}{python}){why}"


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A file or folder next to the Dockerfile, and its target in the image."""

    source: str
    target: str
    owner: str = ""
    mode: str = ""


@dataclass(frozen=True, slots=True)
class BuildStep:
    """One instruction that changes files: a command, or files and a folder."""

    line: int
    text: str
    command: str = ""
    user: str | None = None
    workdir: str = "/"
    env: Mapping[str, str] = field(default_factory=dict)
    copies: Sequence[CopiedFile] = ()
    files: Mapping[str, str] = field(default_factory=dict)  # content from the Dockerfile itself, by target


@dataclass(frozen=True, slots=True)
class ImagePlan:
    """A base, the steps after it, and the folder that files are copied from."""

    base: BaseImage
    steps: Sequence[BuildStep]
    context: Path


@dataclass(frozen=True, slots=True)
class Builder:
    """The function that creates containers, and the exception it raises if the machine cannot run them."""

    make: Callable[..., Any]
    refused: type[Exception]


def base_image(image: str, vendors: Sequence[str] = ()) -> BaseImage | None:
    """The packages that replace an image if these vendors' packages are available; None if no packages can.

    >>> base_image("ubuntu:22.04", ["debian"]).words
    'ubuntu:22.04: built from packages (Debian bookworm), which is close to Ubuntu jammy'
    >>> base_image("python:3.11-slim-bookworm", ["debian"]).words
    'python:3.11-slim-bookworm: built from packages (Debian bookworm, Python 3.11)'
    >>> base_image("postgres:16", ["debian"])
    """
    folder, slash, rest = image.partition("@")[0].rpartition("/")
    name, _, tag = rest.partition(":")
    if folder + slash == BENCH:  # the names contain the version, the tags the date
        name, _, version = name.partition("-")
        return _base(image, name, version.replace("-", "."), vendors, RECORDER)
    return _base(image, name, tag or "latest", vendors) if folder + slash in OFFICIAL else None


def _base(image: str, name: str, tag: str, vendors: Sequence[str], more: tuple[str, ...] = ()) -> BaseImage | None:
    if name != "python" and name not in TAGS:
        return None
    vendors = vendors or list(mirrors()) or ["debian"]  # only now, because asking apt may take half a second
    if name == "python":
        return _python_base(image, tag, vendors, more)
    vendor = name if name in vendors else vendors[0]
    version = tag.removesuffix("-slim").partition("-")[0]
    suite = TAGS[name].get(version, version)
    if vendor == name:
        known = suite in PYTHONS[vendor] or suite in TAGS[name].values()
        return BaseImage(image, vendor, suite, more) if known else None
    theirs, ours = list(PYTHONS[name]), list(PYTHONS[vendor])
    near = ours[theirs.index(suite)] if suite in theirs else ours[-1]
    return BaseImage(image, vendor, near, more, differs=f"which is close to {name.capitalize()} {suite}")


def _python_base(image: str, tag: str, vendors: Sequence[str], more: tuple[str, ...]) -> BaseImage | None:
    """The Python of a suite: the wanted version, else the next available version."""
    match = re.match(r"3(?:\.(\d+))?(?:\.\d+)?(?:$|-)", "3" if tag.startswith(("latest", "slim")) else tag)
    if not match or re.search("alpine|windows", tag):
        return None
    known = sorted((python, vendor, suite) for vendor in vendors for suite, python in PYTHONS[vendor].items())
    wanted = (3, int(match[1])) if match[1] else known[-1][0]
    have, vendor, suite = next((entry for entry in known if entry[0] >= wanted), known[-1])
    packages = ["ca-certificates", "python3", "python3-pip", "python3-venv", *more]
    if "slim" not in tag and not more:
        packages += ["build-essential", "curl", "git", "python3-dev", "wget"]
    differs = "" if have == wanted else f"which replaces Python 3.{wanted[1]}"
    return BaseImage(image, vendor, suite, tuple(sorted(packages)), f"3.{have[1]}", differs)


def images_folder() -> Path | None:
    """The folder for images; None if the user allows no images."""
    named = os.environ.get(FOLDER, "")
    if named == FORBIDDEN:
        return None
    return Path(named or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "calipers", "images"))


@cache
def mirrors() -> dict[str, str]:
    """The mirrors by vendor: the mirror of this machine's apt, and those that the user names."""
    words = (word.strip().partition("=") for word in os.environ.get(MIRRORS, "").split(","))
    named = {vendor: address for vendor, _, address in words if vendor in TAGS and address}
    own = _own_mirror()
    return {**({own[0]: own[1]} if own else {}), **named}


def _own_mirror() -> tuple[str, str] | None:
    """The vendor of this machine's packages and apt's mirror for them; None if there is none."""
    try:
        text = Path("/etc/os-release").read_text()
        listing = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages"]
        lines = subprocess.run(listing, capture_output=True, text=True, timeout=ANSWER_SECONDS).stdout.splitlines()
    except (OSError, subprocess.TimeoutExpired):
        return None
    release = dict(line.replace('"', "").split("=", 1) for line in text.splitlines() if "=" in line)
    vendor, suite = release.get("ID", ""), release.get("VERSION_CODENAME")
    addresses = [line.partition(" ")[0] for line in lines if line.partition(" ")[2] == suite]
    return (vendor, addresses[0]) if vendor in TAGS and addresses else None


@cache
def answers(vendor: str, suite: str) -> bool:
    """Whether the mirror has a suite; apt's own downloader is used to find out."""
    address = mirrors().get(vendor, "").rstrip("/")
    helper = shutil.which("apt-helper", path="/usr/lib/apt:/usr/libexec/apt")
    if not address or helper is None:
        return False
    with tempfile.TemporaryDirectory(prefix="calipers-") as scratch:
        command = [helper, "-o", "Acquire::Retries=0", "download-file", f"{address}/dists/{suite}/Release"]
        try:
            process = subprocess.run([*command, f"{scratch}/file"], capture_output=True, timeout=ANSWER_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            return False
    return process.returncode == 0


def unbuildable(plan: ImagePlan) -> str | None:
    """Why a missing image cannot be built on this machine, or None; nothing is built to find out."""
    must = "its image must be built"
    folder = images_folder()
    if folder is None:
        return f"{must}, and {FOLDER} is {FORBIDDEN}"
    if os.geteuid():
        return f"{must}, and only root can do that"
    if not _lacks_packages(plan, folder):
        return None
    for word in filter(None, os.environ.get(MIRRORS, "").split(",")):
        vendor, _, address = word.strip().partition("=")
        if vendor not in TAGS or not address:
            return f"{must}, and {MIRRORS} contains {word.strip()!r}; expected debian=URL or ubuntu=URL"
    if shutil.which(MAKER) is None:
        return f"{must}, and {MAKER} is not installed"
    if plan.base.vendor not in mirrors():
        return f"{must}, and apt has no mirror of Debian's or Ubuntu's packages"
    if not Path(KEYS.format(plan.base.vendor)).is_file():
        return f"{must}, and the keys of {plan.base.vendor.capitalize()}'s packages are not installed"
    if not answers(plan.base.vendor, plan.base.suite):
        return f"{must}, and the package mirror does not have {plan.base.suite} or does not answer"
    return None


def failed_before(plan: ImagePlan) -> str | None:
    """Why the last build of an image failed; None if it did not."""
    folder = images_folder()
    if folder is None:
        return None
    for key, _ in _keys(plan):
        note = folder / "failed" / key
        if note.is_file():
            return note.read_text(errors="replace").strip()
        if not (folder / "layers" / key).is_dir():
            return None
    return None


def is_built(plan: ImagePlan) -> bool:
    """Whether the base and all layers of an image exist."""
    folder = images_folder()
    if folder is None or not (folder / "bases" / _base_key(plan.base)).is_dir():
        return False
    return all((folder / "layers" / key).is_dir() for key, _ in _keys(plan))


def _lacks_packages(plan: ImagePlan, folder: Path) -> bool:
    """Whether the parts that are not built yet need packages."""
    if not (folder / "bases" / _base_key(plan.base)).is_dir():
        return True
    missing = (group for key, group in _keys(plan) if not (folder / "layers" / key).is_dir())
    return any("apt" in step.command for group in missing for step in group)


def build(plan: ImagePlan, builder: Builder, seconds: float | None = None) -> list[Path]:
    """The folders of an image, the lowest first; missing layers are built. ImageError with the reason if that fails."""
    if reason := unbuildable(plan):
        raise ImageError(reason)
    folder = images_folder()
    if folder is None:  # `unbuildable` has already rejected this
        raise ImageError("no folder for images")
    for path in (folder, *(folder / name for name in ("bases", "layers", "failed", "locks"))):
        path.mkdir(0o700, parents=True, exist_ok=True)
    key = _base_key(plan.base)
    if key in _failed:
        raise ImageError(_failed[key])
    try:
        layers = [_cached(folder, "bases", key, lambda scratch: _bootstrap(plan.base, scratch))]
    except ImageError as error:
        _failed[key] = str(error)  # later callers do not wait for it again
        raise
    until = time.monotonic() + (seconds or BUILD_SECONDS)
    for key, group in _keys(plan):

        def make(scratch: Path, group: Sequence[BuildStep] = group) -> None:
            _execute(group, plan.context, builder, layers, scratch, until)

        note = folder / "failed" / key
        try:
            layers.append(_cached(folder, "layers", key, make))
        except ImageError as error:
            note.write_text(f"{error}\n")
            raise
        note.unlink(missing_ok=True)
    return layers


_failed: dict[str, str] = {}
"""The errors of bases that could not be built in this process, by key."""


def _cached(folder: Path, kind: str, key: str, make: Callable[[Path], None]) -> Path:
    """The folder of a key; if it does not exist, ``make`` builds it elsewhere, one process at a time."""
    target = folder / kind / key
    if target.is_dir():
        return target
    with _locked(folder / "locks" / key):
        if target.is_dir():
            return target
        _tidy(folder)
        scratch = folder / f"new-{os.getpid()}-{secrets.token_hex(4)}"
        for name in ("upper", "work"):
            (scratch / name).mkdir(parents=True)
        try:
            (scratch / "upper").chmod(0o755)
            make(scratch)
            os.rename(scratch / "upper", target)
        except OSError as error:
            raise ImageError(f"its image cannot be stored: {error}") from error
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return target


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _tidy(folder: Path) -> None:
    """Remove incomplete folders of processes that were killed."""
    for path in folder.glob("new-*"):
        if not Path("/proc", path.name.split("-")[1]).exists():
            shutil.rmtree(path, ignore_errors=True)


def _bootstrap(base: BaseImage, scratch: Path) -> None:
    """Make the root directory of a base."""
    address = mirrors()[base.vendor]
    root = scratch / "upper"
    ending_with_us = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
    command = [*ending_with_us, MAKER, "--mode=root", "--variant=minbase", "--format=directory"]
    command += [f"--dpkgopt={line}" for line in FILES["etc/dpkg/dpkg.cfg.d/docker-excludes"].splitlines()]
    command += [f"--include={','.join(('apt', *base.packages))}"]
    source = f"deb [signed-by={KEYS.format(base.vendor)}] {address} {base.suite} {COMPONENTS[base.vendor]}"
    try:
        process = subprocess.run(
            [*command, base.suite, str(root), source], capture_output=True, text=True, timeout=BASE_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise ImageError(f"{base.image}: {MAKER} took longer than {BASE_SECONDS:.0f} s") from None
    if process.returncode:
        raise ImageError(f"{base.image}: {MAKER} failed with exit code {process.returncode}: {_last(process.stderr)}")
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "usr/sbin/policy-rc.d").chmod(0o755)
    for number in range(1, 9):  # packages put links there even if there are no pages
        (root / f"usr/share/man/man{number}").mkdir(parents=True, exist_ok=True)
    if base.python:
        for mark in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
            mark.unlink()  # in Python's images, pip installs system-wide
        for name, program in (("python", "python3"), ("python3", "python3"), ("pip", "pip3"), ("pip3", "pip3")):
            (root / "usr/local/bin" / name).symlink_to(f"../../bin/{program}")
    own = sorted(Path("/", CERTIFICATES).glob("*.crt"))
    (root / CERTIFICATES).mkdir(parents=True, exist_ok=True)
    for path in own:
        shutil.copy(path, root / CERTIFICATES)
    if own and (root / "usr/sbin/update-ca-certificates").exists():
        subprocess.run(["chroot", str(root), "update-ca-certificates"], capture_output=True, env=PROGRAMS)
    root.chmod(0o755)


def _execute(
    group: Sequence[BuildStep], context: Path, builder: Builder, layers: Sequence[Path], scratch: Path, until: float
) -> None:
    """Run steps in a container over some layers; what they write is in the scratch folder's ``upper``."""
    container = builder.make(layers=layers, kept=scratch)
    try:
        container.start()
        for step in group:
            _run_step(container, step, context, scratch, until)
    except builder.refused as error:
        raise ImageError(f"its image must be built, and {error}") from None
    finally:
        container.stop()


def _run_step(container: Any, step: BuildStep, context: Path, scratch: Path, until: float) -> None:
    location = f"environment/Dockerfile:{step.line}: {step.text}"

    def run(command: str, **settings: Any) -> None:
        result = container.run(command, **settings)
        if result.timed_out:
            raise ImageError(f"{location} was stopped: the build timed out")
        if result.code:
            output = b"\n".join((result.stdout, result.stderr)).decode(errors="replace")
            raise ImageError(f"{location} failed with exit code {result.code}: {_last(output)}")

    run(f"mkdir -p {shlex.quote(step.workdir)}", cwd="/")
    for name, text in step.files.items():
        file = scratch / "file"
        file.write_text(text)
        file.chmod(0o644)
        container.put(file, name)
    for copied in step.copies:
        container.put(context / copied.source.lstrip("/"), copied.target)
        for tool, value in (("chown -R", copied.owner), ("chmod -R", copied.mode)):
            if value:
                run(f"{tool} {shlex.quote(value)} {shlex.quote(copied.target)}", cwd="/")
    if step.command:
        left = until - time.monotonic()
        if left <= 0:
            raise ImageError(f"{location} was not started: the build timed out")
        message = f"{location} was stopped: less than {RESERVE >> 30} GB of disk space was left"
        with _watching_disk(container, scratch, message):
            run(step.command, cwd=step.workdir, env=step.env, user=step.user, timeout=left)


@contextmanager
def _watching_disk(container: Any, folder: Path, message: str) -> Iterator[None]:
    """Stop the processes of a container when the disk is nearly full; ImageError if that happened."""
    full, ended = threading.Event(), threading.Event()

    def watch() -> None:
        while not ended.wait(1.0):
            status = os.statvfs(folder)
            if status.f_bavail * status.f_frsize < RESERVE:
                full.set()
                container.sweep()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        if full.is_set():
            raise ImageError(message)


def _last(text: str) -> str:
    """The last lines of an output, joined; only lines that look like errors, if there are any."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()][-MOST_LINES:]
    errors = [
        line for line in lines if re.match(r"E:|dpkg: error|error\b|fatal\b|curl:|wget:|npm ERR", line, re.IGNORECASE)
    ]
    return " | ".join((errors or lines)[-LAST_LINES:])[-LONGEST:] or "no output"


def _base_key(base: BaseImage) -> str:
    own = [path.read_bytes().hex() for path in sorted(Path("/", CERTIFICATES).glob("*.crt"))]
    return digest(
        [BASES_VERSION, platform.machine(), base.vendor, base.suite, base.packages, bool(base.python), FILES, own]
    )


def _keys(plan: ImagePlan) -> Iterator[tuple[str, list[BuildStep]]]:
    """The steps of each layer, and its key: a hash of the layer below it and of everything it is made from."""
    key = _base_key(plan.base)
    for group in grouped(plan.steps):
        steps = [{**asdict(step), "line": 0, "text": ""} for step in group]
        content = [contents(plan.context / copied.source.lstrip("/")) for step in group for copied in step.copies]
        key = digest([key, steps, content])
        yield key, group


def grouped(steps: Iterable[BuildStep]) -> list[list[BuildStep]]:
    """Steps by layer: each command has its own layer; all copies between two commands share a layer."""
    groups: list[list[BuildStep]] = []
    for step in steps:
        if groups and not step.command and not groups[-1][-1].command:
            groups[-1].append(step)
        else:
            groups.append([step])
    return groups


def contents(path: Path) -> list[tuple[str, int, str]]:
    """Names, modes and hashes of a file, or of all files in a folder."""
    files = [path, *sorted(path.rglob("*"))] if path.is_dir() and not path.is_symlink() else [path]
    listed = []
    for file in files:
        name, mode = str(file.relative_to(path)), file.lstat().st_mode
        if file.is_symlink():
            listed.append((name, mode, os.readlink(file)))
        else:
            listed.append((name, mode, hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""))
    return listed


def digest(parts: Any) -> str:
    """A hash of plain values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:40]
