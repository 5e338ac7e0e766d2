"""The source of Calipers as its rules see it: every file is parsed once for all tests of a process."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path
from typing import NamedTuple

import calipers

SOURCE = Path(calipers.__file__).parent
FILES = {path.relative_to(SOURCE).as_posix(): path for path in sorted(SOURCE.rglob("*.py"))}

WAITS = {ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await}
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Facts(NamedTuple):
    """What the rules ask of one file; its syntax tree is a hundred times as large."""

    waits: bool
    texts: list[tuple[int, str]]  # each text with its line: a literal, or a formatted one with its values left out
    strings: list[str]  # the literals alone
    named: list[tuple[str, int]]  # each use of a name, and its line
    defined: list[tuple[str, int, int]]  # each function, class and private method, with its first and its last line


@cache
def facts() -> dict[str, Facts]:
    """What every file of the source has."""
    collects = gc.isenabled()
    gc.disable()  # a million nodes and no garbage among them
    try:
        return {name: facts_of(ast.parse(path.read_text(encoding="utf-8"))) for name, path in FILES.items()}
    finally:
        if collects:
            gc.enable()


def facts_of(tree: ast.Module) -> Facts:
    """What one file has."""
    waits, texts, strings, named = False, [], [], []
    for node in nodes(tree):
        kind = type(node)
        if kind is ast.Name:
            named.append((node.id, node.lineno))
        elif kind is ast.Attribute:
            named.append((node.attr, node.lineno))
        elif kind is ast.Constant:
            if isinstance(node.value, str):
                texts.append((node.lineno, node.value))
                strings.append(node.value)
                home, _, objects = node.value.rpartition(":")  # it may name an object: module:object
                several = objects.split() if home.startswith("calipers.") else [objects]  # or some, as in names.LENT
                named += [(name, node.lineno) for name in several]
        elif kind is ast.ImportFrom:
            named += [(alias.name, node.lineno) for alias in node.names if alias.asname]  # used by its other name
        elif kind is ast.JoinedStr:
            parts = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
            texts.append((node.lineno, "".join(map(str, parts))))
        elif kind in WAITS:
            waits = True
    inner = [node for node in tree.body if isinstance(node, DEFINITIONS)]
    methods = (node for outer in inner if isinstance(outer, ast.ClassDef) for node in outer.body)
    # a public method may be the hook of a library
    inner += [node for node in methods if isinstance(node, DEFINITIONS) and node.name.startswith("_")]
    return Facts(waits, texts, strings, named, [(node.name, node.lineno, node.end_lineno or 0) for node in inner])


def nodes(tree: ast.AST) -> list[ast.AST]:
    """The nodes that `ast.walk` gives, without a generator for each of them."""
    found = [tree]
    for node in found:
        for field in node._fields:
            value = getattr(node, field, None)
            if isinstance(value, list):
                found += [item for item in value if isinstance(item, ast.AST)]
            elif isinstance(value, ast.AST):
                found.append(value)
    return found
