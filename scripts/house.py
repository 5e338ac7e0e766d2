"""Measure the source: its files, its imports, and how many files and stack frames a command goes through.

    python scripts/house.py            print the table
    python scripts/house.py --write    put it into docs/architecture.md

The import graph is read with `ast`. The commands run in their own processes, and `sys.setprofile` records their calls.
The files of commands, which are named in the table of `calipers.cli`, and the files that a `System` names in the
`__init__` of its folder, do not count as files with one importer in the same folder. A package is a folder: a single
file such as `errors.py` or `systems/__init__.py` is not a package.
"""

from __future__ import annotations

import ast
import gc
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "calipers"
PAGE = ROOT / "docs" / "architecture.md"
MARKS = "<!-- house: scripts/house.py -->", "<!-- /house -->"
COMPARISON = "calipers.analyses.compare."
VERDICT = re.compile(r"calipers\.analyses\.compare\.(document\.)?\w+")  # the request, the result and its document
RIDDLES = frozenset({"found", "one", "place", "asked", "held", "said", "told", "own", "both"})  # unclear variable names
SYSTEMS = ("evsys", "lm_eval", "nemo_gym", "harbor", "inspect")
ALIASES = {"gym": "nemo_gym"}  # a word in the name of a file -> its system

WATCHED = """
import contextlib, inspect, io, json, sys
source, args = sys.argv[1], sys.argv[2:]
files, types, deepest = set(), set(), 0
def walk(frame, event, value):
    global deepest
    if event == "call" and frame.f_code.co_name == "__init__" and "self" in frame.f_locals:
        made = type(frame.f_locals["self"])
        types.add(made.__module__ + "." + made.__qualname__)
    if event != "call" or not frame.f_code.co_filename.startswith(source):
        return
    above, frames = frame, 0
    while above is not None:
        if above.f_code.co_filename.startswith(source):
            if not above.f_code.co_flags & inspect.CO_OPTIMIZED:  # a module or class body: loading is no walk
                return
            frames += 1
        above = above.f_back
    files.add(frame.f_code.co_filename[len(source) + 1:])
    deepest = max(deepest, frames)
from calipers.cli import main
sys.argv = ["calipers", *args]
sys.setprofile(walk)
try:
    with contextlib.redirect_stdout(io.StringIO()):
        main()
except SystemExit as stop:
    if stop.code not in (None, 0):
        raise
finally:
    sys.setprofile(None)
modules = sorted(name for name in sys.modules if name.startswith("calipers"))
print(json.dumps({"files": sorted(files), "frames": deepest, "modules": modules, "types": sorted(types)}))
"""


def module_of(path: Path) -> str:
    """The dotted name of a source file."""
    parts = ("calipers", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def trees() -> dict[str, tuple[Path, ast.Module]]:
    """The file and the syntax tree of every module, by its name."""
    paths = sorted(SOURCE.rglob("*.py"))
    collects = gc.isenabled()
    gc.disable()  # there are a million nodes and no garbage: collections took three quarters of the time
    try:
        return {module_of(path): (path, ast.parse(path.read_text(), str(path))) for path in paths}
    finally:
        if collects:
            gc.enable()


def imports_of(name: str, tree: ast.Module, known: Collection[str]) -> Iterator[str]:
    """The modules of Calipers that a module imports, or names in a string: an index has "module:object" entries."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner in known or node.module in known:
                    yield inner if inner in known else node.module
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            target = node.value.partition(":")[0]
            if target in known and target not in (name, "calipers"):
                yield target


def importers(known: dict[str, tuple[Path, ast.Module]]) -> dict[str, set[str]]:
    """The importers of each module."""
    importers_of: dict[str, set[str]] = {name: set() for name in known}
    for name, (_, tree) in known.items():
        for target in imports_of(name, tree, known):
            if target != name:
                importers_of[target].add(name)
    return importers_of


def kept_by_one(known: dict[str, tuple[Path, ast.Module]]) -> list[str]:
    """Modules with a single importer, which is in the same folder and does not only name them in a table."""
    kept = []
    for name, users in importers(known).items():
        if len(users) == 1 and known[name][0].name != "__init__.py":
            (user,) = users
            beside = known[user][0].parent == known[name][0].parent
            if beside and not (known[user][0].name == "__init__.py" and names_only(known[user][1], name)):
                kept.append(name)
    return kept


def names_only(tree: ast.Module, module: str) -> bool:
    """Whether a module is only named in strings, as "module:object", and never imported."""
    imported = (node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return module not in imported


def room(name: str) -> str:
    """The package of a module: its folder below calipers, below systems the system; "" for a single file."""
    parts = name.split(".")[1:]
    return "/".join((parts[:2] if len(parts) > 1 else ()) if parts[:1] == ["systems"] else parts[:1])


def systems_of(name: str) -> set[str]:
    """The systems that a module's dotted name mentions."""
    words = name.replace("nemo_gym", "gym")
    parts = [part for piece in words.split(".") for part in (piece, *piece.split("_"))]
    mentioned = {ALIASES.get(part, part) for part in parts}
    mentioned |= {"lm_eval"} if "lm_eval" in words else set()
    return mentioned & set(SYSTEMS)


def rooms_of(system: str, known: dict[str, tuple[Path, ast.Module]]) -> set[str]:
    """The packages with a module of a system."""
    return {room(name) for name in known if system in systems_of(name)} - {""}


def classes(known: dict[str, tuple[Path, ast.Module]]) -> list[str]:
    """Class names that are defined in more than one file."""
    homes: dict[str, set[str]] = defaultdict(set)
    for name, (_, tree) in known.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                homes[node.name].add(name)
    return sorted(name for name, where in homes.items() if len(where) > 1)


def locals_of(known: dict[str, tuple[Path, ast.Module]]) -> Counter[str]:
    """The number of functions that bind each name by an assignment, loop, with, comprehension or walrus."""
    counts: Counter[str] = Counter()
    for _, tree in known.values():
        for function in ast.walk(tree):
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                inner = ast.walk(function)
                counts.update(
                    {node.id for node in inner if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
                )
    return counts


@dataclass(frozen=True, slots=True)
class Walk:
    """The measurements of one command by the script above."""

    files: list[str]  # source files with a call
    frames: int  # maximum number of Calipers' frames on the stack
    modules: list[str]  # modules that were loaded at the end
    types: list[str]  # classes whose __init__ was called, ours and others'


def walk(*args: str) -> Walk:
    """Run a command in a process of its own, and measure it."""
    command = [sys.executable, "-c", WATCHED, str(SOURCE), *args]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        raise SystemExit(f"calipers {' '.join(args)}: {process.stderr}")
    return Walk(**json.loads(process.stdout.splitlines()[-1]))


TASK = """task: capitals
dataset_path: json
dataset_kwargs: {data_files: {test: docs.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\\n"]}
metric_list:
  - metric: exact_match
"""


def rows() -> list[tuple[str, str, str]]:
    """The rows of the table: measurement, value, target."""
    known = trees()
    lines = sum(len(path.read_text().splitlines()) for path, _ in known.values())
    counts = locals_of(known)
    share = sum(counts[name] for name in RIDDLES) / counts.total()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rewards = [{"task": f"t{each}", "sample": 0, "reward": each % 2} for each in range(4)]
        for file in ("a.jsonl", "b.jsonl"):
            (folder / file).write_text("".join(json.dumps(row) + "\n" for row in rewards))
        (folder / "docs.jsonl").write_text('{"question": "France?", "answer": "Paris"}\n')
        (folder / "answers.jsonl").write_text('{"task": "0", "sample": 0, "completion": "Paris"}\n')
        (folder / "capitals.yaml").write_text(TASK)
        (folder / "model.py").write_text("def answer(prompt):\n    return 'Paris'\n")
        scored = walk("score", str(folder / "a.jsonl"))
        task = ["run", str(folder / "capitals.yaml"), "--model", f"python/{folder / 'model.py'}:answer"]
        ran = walk(*task, "--out", str(folder / "run"))
        compared = walk("compare", str(folder / "a.jsonl"), str(folder / "b.jsonl"))
    strangers = [module for module in scored.modules if systems_of(module)]
    rooms = {room(module_of(SOURCE / file)) for file in ran.files}
    packages = [name for name in rooms if name and (SOURCE / name).is_dir()]
    between = [name for name in compared.types if name.startswith(COMPARISON) and not VERDICT.fullmatch(name)]
    return [
        ("files under src / lines", f"{len(known)} / {lines / 1000:.1f}k", "about 300 / 10 % fewer lines"),
        ("files with one importer, in the same folder", str(len(kept_by_one(known))), "at most 10"),
        *((f"packages with files of {each}", str(len(rooms_of(each, known))), "1") for each in SYSTEMS),
        ("modules of other systems loaded to score four native JSON lines", str(len(strangers)), "0"),
        (
            "`score` of four JSON lines: files entered / stack depth",
            f"{len(scored.files)} / {scored.frames}",
            "at most 35 / 14",
        ),
        (
            "lm-eval task: files / packages / stack depth",
            f"{len(ran.files)} / {len(packages)} / {ran.frames}",
            "at most 70 / 10 / 22",
        ),
        ("`compare`: types between two files and a verdict", str(len(between)), "at most 7"),
        ("class names defined in more than one file", str(len(classes(known))), "at most 10"),
        (f"local variables called {', '.join(sorted(RIDDLES))}", f"{share:.1%}", "below 3 %"),
    ]


def table() -> str:
    """The rows as Markdown."""
    lines = ["| measurement | value | target |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows())])


def main() -> None:
    """Print the table, or write it between its markers in the page."""
    text = table()
    if "--write" not in sys.argv[1:]:
        print(text)
        return
    start, end = MARKS
    page = PAGE.read_text()
    before, _, after = page.partition(start)
    _, _, after = after.partition(end)
    PAGE.write_text(f"{before}{start}\n{text}\n{end}{after}")


if __name__ == "__main__":
    main()
