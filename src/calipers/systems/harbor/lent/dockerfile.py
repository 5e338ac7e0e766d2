"""Reads a task's ``environment/`` folder: plans how to set it up in a container, or says why that is impossible."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from .image import BuildStep, CopiedFile, ImagePlan, base_image

if TYPE_CHECKING:
    from calipers.isolate.container import Container

DOCKERFILE, COMPOSE = "Dockerfile", ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml")
WORKDIR = "/app"
BASES = frozenset({"alpine", "bash", "buildpack-deps", "busybox", "debian", "python", "scratch", "ubuntu"})
"""Images with little beyond a shell, the usual tools and Python, which this machine provides instead."""
MACHINES = {"x86_64": "amd64", "AMD64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
"""Python's names of processors, and the names that images use."""
IGNORED = frozenset({"CMD", "ENTRYPOINT", "EXPOSE", "HEALTHCHECK", "LABEL", "MAINTAINER", "STOPSIGNAL", "VOLUME"})
IMAGE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SHELL = ("/bin/sh", "-c")
VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?([-+])([^}]*))?\})")
HEREDOC = re.compile(r"<<(-?)(['\"]?)([A-Za-z_]\w*)\2(?=\s|$|[;&|)>])")


class DockerfileError(ValueError):
    """A syntax error: (line, message with what was expected)."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its line, its first word in capitals, the rest, and its here-documents."""

    line: int
    word: str
    rest: str
    texts: Sequence[tuple[str, str]] = ()  # here-documents: (mark such as <<EOF, text including the closing line)

    def short(self) -> str:
        """The beginning of the instruction, at most 60 characters."""
        line = " ".join(f"{self.word} {self.rest}".split())
        return line if len(line) <= 60 else line[:57] + "..."


@dataclass(frozen=True, slots=True)
class EnvironmentPlan:
    """How to set up a container: working directory, variables, and files to copy, or the image to build."""

    workdir: str = WORKDIR
    env: dict[str, str] = field(default_factory=dict)
    copies: list[tuple[str, str]] = field(default_factory=list)  # (path in environment/, path in the container)
    declined: str | None = None  # the reason why it cannot be set up without a container engine
    image: ImagePlan | None = None  # the image to build, if this machine's programs are not enough
    user: str | None = None  # the user of commands that name no user


def read_environment(
    environment: Path, *, docker_image: str | None = None, workdir: str | None = None
) -> EnvironmentPlan:
    """The plan for a task's environment; ``declined`` if it needs a container engine."""
    if docker_image:
        return EnvironmentPlan(declined=f"it needs the image {docker_image}")
    if any((environment / name).exists() for name in COMPOSE):
        return EnvironmentPlan(declined="it needs docker compose")
    dockerfile = environment / DOCKERFILE
    if not dockerfile.is_file():
        return EnvironmentPlan(workdir or WORKDIR, {}, [(".", workdir or WORKDIR)] if environment.is_dir() else [])
    try:
        instructions = list(read_instructions(dockerfile.read_text(errors="replace")))
        plan = _plan_on_machine(instructions, environment)
        if plan.declined:
            plan = _plan_image(instructions, environment, plan.declined)
    except DockerfileError as error:
        line, message = error.args
        return EnvironmentPlan(declined=f"{dockerfile}:{line}: {message}")
    return replace(plan, workdir=workdir or plan.workdir)


def dockerfile_fault(environment: Path) -> str | None:
    """The syntax error of a Dockerfile, with its line; None if it has none."""
    declined = read_environment(environment).declined or ""
    return declined if declined.startswith(f"{environment / DOCKERFILE}:") else None


def furnish(container: Container, environment: Path, plan: EnvironmentPlan) -> None:
    """Create the working directory of a container and copy in the files of the plan."""
    container.run(f"mkdir -p {shlex.quote(plan.workdir)}", cwd="/")
    for source, target in plan.copies:
        container.put(environment / source, target)


def _plan_on_machine(instructions: Sequence[Instruction], environment: Path) -> EnvironmentPlan:
    """The plan that uses this machine's programs instead of an image."""
    workdir, env, args, copies = WORKDIR, dict[str, str](), dict[str, str](), list[tuple[str, str]]()
    for item in instructions:
        word, rest = item.word, item.rest
        known = {"PATH": os.environ.get("PATH", os.defpath), **args, **env}
        if word == "FROM":
            image, foreign = _image(rest, args)
            if foreign:
                return EnvironmentPlan(declined=f"it is built for {foreign}, which is not this machine's platform")
            if image.rpartition("/")[2].partition(":")[0].partition("@")[0] not in BASES:
                return EnvironmentPlan(declined=f"it needs the image {image}")
            workdir, env, copies = WORKDIR, {}, []  # a stage has nothing of the one before
        elif word == "WORKDIR":
            workdir = str(PurePosixPath(workdir, _text(item, known)))
        elif word == "ENV":
            env.update(_settings(item, known))
        elif word == "ARG":
            args.update(_arguments(item, known))
        elif word in ("COPY", "ADD"):
            words = _sources_and_target(item, known)
            plain = words is not None and not item.texts and not any("*" in name or "?" in name for name in words)
            if not (words and plain and all(_inside(environment, source) for source in words[:-1])):
                return _declined(item)
            for source in words[:-1]:
                copies.append((source, _target(environment / source, words[-1], workdir, len(words) > 2)))
        elif word != "SHELL" and word not in IGNORED:
            return _declined(item)
    return EnvironmentPlan(workdir, env, copies)


def _plan_image(instructions: Sequence[Instruction], environment: Path, why: str) -> EnvironmentPlan:
    """The plan that builds an image, if its base can be built; ``why`` is the reason why an image is needed."""
    workdir, env, args, user = "/", {"PATH": IMAGE_PATH}, dict[str, str](), None
    shell: Sequence[str] = SHELL
    base, steps = None, list[BuildStep]()
    for item in instructions:
        word, rest = item.word, item.rest
        known = {**args, **env}
        if word == "FROM":
            image, foreign = _image(rest, args)
            if foreign:
                return EnvironmentPlan(declined=why)
            if base is not None:
                return EnvironmentPlan(declined=f"environment/{DOCKERFILE} has several stages")
            base = base_image(image)
            if base is None:
                return EnvironmentPlan(declined=f"it needs the image {image}")
        elif word == "WORKDIR":
            workdir = str(PurePosixPath(workdir, _text(item, known)))
            steps.append(BuildStep(item.line, item.short(), workdir=workdir))
        elif word == "ENV":
            env.update(_settings(item, known))
        elif word == "ARG":
            args.update(_arguments(item, known))
        elif word == "USER":
            user = _text(item, known).partition(":")[0]
            user = None if user in ("root", "0") else user
        elif word == "SHELL":
            shell = _array(rest) or ()
            if not shell:
                return _declined(item)
        elif word == "RUN":
            command = _command(item, shell)
            if command is None:
                return _declined(item)
            steps.append(BuildStep(item.line, item.short(), command, user, workdir, known))
        elif word in ("COPY", "ADD"):
            step = _copy_step(item, known, workdir, environment)
            if step is None:
                words = _sources_and_target(item, known) or []
                missing = next((name for name in words[:-1] if not _inside(environment, name)), None)
                return _declined(item, f", and {missing} does not exist" if missing else "")
            steps.append(step)
        elif word == "ONBUILD":
            return _declined(item)
        elif word not in IGNORED:
            raise DockerfileError(item.line, f"{word} is not an instruction; expected for example RUN")
    if base is None:
        return EnvironmentPlan(declined=f"environment/{DOCKERFILE} has no FROM")
    return EnvironmentPlan(workdir, env, image=ImagePlan(base, steps, environment), user=user)


def _declined(item: Instruction, why: str = "") -> EnvironmentPlan:
    return EnvironmentPlan(declined=f"environment/{DOCKERFILE} contains {item.short()}{why}")


def _image(rest: str, args: Mapping[str, str]) -> tuple[str, str | None]:
    """The image of a FROM, and the platform it requires if this machine has a different one."""
    words = [_expanded(word, args) if not word.startswith("--") else word for word in rest.split()]
    platforms = [word.partition("=")[2] for word in words if word.startswith("--platform=")]
    image = next((word for word in words if not word.startswith("--")), "")
    for name in platforms:  # such as linux/amd64, linux/arm64/v8, amd64, or $BUILDPLATFORM, which is this machine's
        if "$" not in name and MACHINES.get(platform.machine()) not in name.lower().split("/"):
            return image, name
    return image, None


def read_instructions(text: str) -> Iterator[Instruction]:
    """The instructions of a Dockerfile: with joined lines, without comments, each with its here-documents."""
    lines = text.split("\n")  # not splitlines: a form feed or U+2028 does not end a line
    directive = re.match(r"(?:#[^\n]*\n)*?#\s*escape\s*=\s*(\S)", text, re.IGNORECASE)
    escape = directive[1] if directive else "\\"
    number = 0
    while number < len(lines):
        start, joined = number + 1, ""
        if not _counts(lines[number]):
            number += 1
            continue
        while number < len(lines):
            line = lines[number]
            number += 1
            if joined and not _counts(line):
                continue  # a comment between two lines of one instruction
            if not line.rstrip().endswith(escape):
                joined += line
                break
            joined += line.rstrip()[:-1] + " "
        word, rest = _first_word(joined.strip())
        word, texts = word.upper(), []
        for match in _heredocs(rest) if word in ("RUN", "COPY", "ADD") else ():
            closing = (line for line in range(number, len(lines)) if _unindented(lines[line], match) == match[3])
            end = next(closing, None)
            if end is None:
                raise DockerfileError(start, f"{match[0]} is not closed; expected a line {match[3]}")
            body = "".join(f"{_unindented(line, match)}\n" for line in lines[number : end + 1])
            texts.append((match[0], body))
            number = end + 1
        yield Instruction(start, word, rest, texts)


def _counts(line: str) -> bool:
    """Whether a line is neither blank nor a comment."""
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _first_word(text: str) -> tuple[str, str]:
    """The first word of a text and the text after it; Docker allows blanks and tabs between them."""
    word, *rest = re.split(r"[\t\v\f\r ]+", text, maxsplit=1)
    return word, "".join(rest)


def _heredocs(rest: str) -> Iterator[re.Match[str]]:
    """The marks of here-documents, except in quotes."""
    quote = ""
    for position, letter in enumerate(rest):
        if quote:
            quote = "" if letter == quote and rest[position - 1] != "\\" else quote
        elif letter in "'\"":
            quote = letter
        elif not rest[:position].endswith("<") and (match := HEREDOC.match(rest, position)):
            yield match


def _unindented(line: str, match: re.Match[str]) -> str:
    """A line of a here-document, without leading tabs if its mark is <<-."""
    return line.lstrip("\t") if match[1] else line


def _command(item: Instruction, shell: Sequence[str]) -> str | None:
    """The shell command of a RUN; None if it needs more than a container provides."""
    rest = item.rest
    while rest.startswith("--"):
        option, rest = _first_word(rest)
        if not re.match(r"--mount=(?:\S*,)?type=(?:cache|tmpfs)\b|--network=default$", option):
            return None
    words = _array(rest)
    if words is not None:
        return shlex.join(words) if words else None
    if item.texts and HEREDOC.fullmatch(rest):
        ((_, body),) = item.texts
        body = body.removesuffix("\n").rpartition("\n")[0] + "\n"
        if body.startswith("#!"):
            return f"file=$(mktemp) && printf %s {shlex.quote(body)} > $file && chmod +x $file && $file"
        return shlex.join([*shell, body])
    return shlex.join([*shell, "\n".join((rest, *(body.rstrip("\n") for _, body in item.texts)))])


def _copy_step(item: Instruction, known: Mapping[str, str], workdir: str, environment: Path) -> BuildStep | None:
    """A COPY or ADD as a step; None if a source is not in the folder, or it needs more than copying."""
    owner, mode, rest = "", "", item.rest
    while rest.startswith("--"):
        option, rest = _first_word(rest)
        name, _, value = option.partition("=")
        value = _expanded(value, known)
        if name == "--chown":
            owner = value
        elif name == "--chmod":
            mode = value
        elif name != "--link":
            return None
    words = _sources_and_target(replace(item, rest=rest), known)
    if words is None:
        return None
    *sources, target = words
    texts = dict(item.texts)
    names: list[str] = []
    files: dict[str, str] = {}
    for source in sources:
        mark = next((mark for mark in texts if mark.replace("'", "").replace('"', "") == source), None)
        if mark is not None:
            body = texts[mark].removesuffix("\n").rpartition("\n")[0] + "\n"
            name = source.lstrip("<-") if target.endswith("/") else ""
            body = body if "'" in mark or '"' in mark else _expanded(body, known)
            files[str(PurePosixPath(workdir, target, name))] = body
        elif re.search(r"[*?\[]", source):
            matches = sorted(environment.glob(re.sub(r"\*+", "*", source.lstrip("/"))))
            names += [str(path.relative_to(environment)) for path in matches]
            if not matches:
                return None
        else:
            names.append(source)
    if any(not _inside(environment, name) for name in names):
        return None
    archives = (".tar", ".gz", ".tgz", ".xz", ".bz2")
    if item.word == "ADD" and any(name.endswith(archives) for name in names):
        return None  # Docker would unpack it
    changes = [
        f"{tool} {shlex.quote(value)} -- {shlex.join(files)}"
        for tool, value in (("chown", owner), ("chmod", mode))
        if value and files
    ]
    several = len(names) + len(files) > 1
    copies = [
        CopiedFile(name, _target(environment / name.lstrip("/"), target, workdir, several), owner, mode)
        for name in names
    ]
    return BuildStep(item.line, item.short(), " && ".join(changes), copies=copies, files=files)


def _arguments(item: Instruction, known: Mapping[str, str]) -> dict[str, str]:
    """The values of an ARG: the stated values, else Docker's predefined ones."""
    machine = MACHINES.get(platform.machine(), platform.machine())
    predefined = {
        "TARGETARCH": machine,
        "BUILDARCH": machine,
        "TARGETOS": "linux",
        "TARGETPLATFORM": f"linux/{machine}",
    }
    words = (word.partition("=") for word in _words(item, known))
    return {name: value if equals else predefined.get(name, "") for name, equals, value in words}


def _settings(item: Instruction, known: Mapping[str, str]) -> dict[str, str]:
    """The variables of an ENV."""
    first = item.rest.split()[:1]
    if not first:
        raise DockerfileError(item.line, "ENV sets nothing; expected NAME=VALUE")
    if "=" not in first[0]:  # the old form: ENV KEY some value
        key, value = _first_word(item.rest)
        return {key: _text(replace(item, rest=value), known)}
    return {name: value for name, equals, value in (word.partition("=") for word in _words(item, known)) if equals}


def _sources_and_target(item: Instruction, known: Mapping[str, str]) -> list[str] | None:
    """The sources and the target of a COPY; None if it has options or a remote source."""
    words = _array(item.rest) or _words(item, known)
    if len(words) < 2 or any(word.startswith("--") or "://" in word or word.startswith("git@") for word in words):
        return None
    return words


def _array(rest: str) -> list[str] | None:
    """The words of an instruction in JSON form; None for the other form."""
    if not rest.startswith("["):
        return None
    try:
        words = json.loads(rest)
    except ValueError:
        return None
    return words if isinstance(words, list) and all(isinstance(word, str) for word in words) else None


def _text(item: Instruction, known: Mapping[str, str]) -> str:
    """The rest of an instruction as one word."""
    return " ".join(_words(item, known, apart=False))


def _words(item: Instruction, known: Mapping[str, str], *, apart: bool = True) -> list[str]:
    """The words of an instruction, as Docker reads them: unquoted, with variables expanded except in single quotes.

    With ``apart=False`` blanks do not separate words, so that there is only one.
    """
    words, word, rest, position = list[str](), None, item.rest, 0
    while position < len(rest):
        letter = rest[position]
        position += 1
        if letter in " \t" and apart:
            words += [] if word is None else [word]
            word = None
        elif letter == "'":
            end = rest.find("'", position)
            if end < 0:
                raise _unclosed(item, letter)
            word = (word or "") + rest[position:end]
            position = end + 1
        elif letter == '"':
            match = re.compile(r'((?:[^"\\]|\\.)*)"').match(rest, position)
            if match is None:
                raise _unclosed(item, letter)
            word = (word or "") + _expanded(match[1], known, quoted=True)
            position = match.end()
        elif letter == "\\":
            word = (word or "") + rest[position : position + 1]
            position += 1
        elif letter == "$" and (match := VARIABLE.match(rest, position - 1)):
            word = (word or "") + _value(match, known)
            position = match.end()
        else:
            word = (word or "") + letter
    return words if word is None else [*words, word]


def _unclosed(item: Instruction, quote: str) -> DockerfileError:
    return DockerfileError(item.line, f"{item.word} has a {quote} that is not closed; expected another {quote}")


def _expanded(text: str, known: Mapping[str, str], *, quoted: bool = False) -> str:
    """A text with its variables expanded; ``quoted`` text can have escaped characters."""
    if not quoted:
        return VARIABLE.sub(lambda match: _value(match, known), text)

    def expand(match: re.Match[str]) -> str:
        if match[1] is not None:
            return match[1] if match[1] in '"$\\' else match[0]
        return VARIABLE.sub(lambda variable: _value(variable, known), match[0])

    return re.sub(rf"\\(.)|{VARIABLE.pattern}", expand, text)


def _value(match: re.Match[str], known: Mapping[str, str]) -> str:
    """The value of a variable, with its alternative for a variable that is empty or not set."""
    value = known.get(match[1] or match[2], "")
    if match[3] == "-":
        return value or match[4]
    if match[3] == "+":
        return match[4] if value else ""
    return value


def _inside(environment: Path, source: str) -> bool:
    """Whether a source exists and is in the folder."""
    path = environment / source.lstrip("/")
    return os.path.exists(path) and path.resolve().is_relative_to(environment.resolve())


def _target(source: Path, target: str, workdir: str, several: bool) -> str:
    """The path that a source is copied to: in the target if that is a folder, else the target itself."""
    path = PurePosixPath(workdir, target)
    into = target.endswith(("/", "/.")) or target in (".", "./") or several
    return str(path / source.name) if into and not source.is_dir() else str(path)
