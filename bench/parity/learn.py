"""Find the columns that a task reads, and their kinds, from its YAML templates and the source of its functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path as File
from typing import Any

from jinja2 import Environment, TemplateSyntaxError, nodes

from bench.parity.columns import EACH, SEVERAL, Column, Path, finished

TEXT = {
    "strip",
    "lower",
    "upper",
    "split",
    "replace",
    "startswith",
    "endswith",
    "capitalize",
    "rstrip",
    "lstrip",
    "find",
}
OF_DICT = {"items", "keys", "values"}
FIELDS = ("doc_to_text", "doc_to_target", "doc_to_choice", "description", "gen_prefix")


class Learned:
    """Columns by path, with their possible kinds."""

    def __init__(self) -> None:
        self.columns: dict[str, Column] = {}

    def at(self, path: Path, hint: str | None = None) -> Column:
        """The column at a path, made if it does not exist."""
        column, fields = Column(), self.columns
        for place, key in enumerate(path):
            if key == EACH:
                if place:
                    column.hint("dicts" if place + 1 < len(path) else "texts")
                continue
            if place and path[place - 1] != EACH:
                column.hint("dict")
            column = fields.setdefault(key, Column())
            fields = column.fields
        if hint and path and path[-1] != EACH:
            column.hint(hint)
        return column

    def one_of(self, path: Path, options: list[Any]) -> None:
        """A cell that the task compares with these values: it is one of them, if they are of one type."""
        column = self.at(path)
        known = [one for one in options if one and type(one) in (str, int) and one not in column.options]
        if known and all(type(one) is type(known[0]) for one in [*known, *column.options]):
            column.options += known
            if len(column.options) > 1:
                column.hint("option")


def learned(config: Any, code: Any = None) -> dict[str, Column]:
    """The columns of a task, from its configuration, and from its class's source if it is a Python class."""
    found = Learned()
    choices = config.doc_to_choice
    shots = config.fewshot_config
    values = [getattr(config, name) for name in FIELDS] + [getattr(shots, name) for name in FIELDS[:3]]
    for value in values:
        _field(found, value)
    for value in (*values, config.process_docs, config.process_results, shots.process_docs, config.custom_dataset):
        if hasattr(value, "module"):
            _function(found, value)
    if hasattr(code, "module"):
        functions, constants = _module(code.folder.joinpath(*code.module.split(".")).with_suffix(".py"))
        for function in functions.values():
            _Source(found, constants).walk(function)
    if isinstance(choices, str) and (path := _alone(choices)):
        found.at((*path, EACH))
    name = config.doc_to_target.strip("{} ") if isinstance(config.doc_to_target, str) else ""
    if choices is not None and name in found.columns:
        found.columns[name].kinds.insert(0, "index")
    for column in found.columns.values():
        column.count = min(column.count, _count(choices))
    finished(found.columns)
    return found.columns


def _alone(template: str) -> Path | None:
    """The path in a template that only consists of a column, or of a field of one."""
    inside = template.strip()
    if inside.startswith("{{") and inside.endswith("}}"):
        inside = inside[2:-2].strip()
    parts = tuple(inside.split("."))
    return parts if all(part.isidentifier() for part in parts) else None


def _count(choices: Any) -> int:
    """The number of choices, if the file states it."""
    if isinstance(choices, (list, dict)):
        return len(choices)
    if isinstance(choices, str) and "{" in choices:
        try:
            tree = Environment().parse(choices)
        except TemplateSyntaxError:
            return SEVERAL
        listed = [one for output in tree.find_all(nodes.Output) for one in output.nodes if isinstance(one, nodes.List)]
        return len(listed[0].items) if listed else SEVERAL
    return SEVERAL


def _field(found: Learned, value: Any) -> None:
    if not isinstance(value, str) or not value:
        return
    if value.isidentifier():
        found.at((value,))
        return
    try:
        tree = Environment().parse(value)
    except TemplateSyntaxError:
        return
    _Template(found).visit(tree, {})


class _Template:
    """A walk through a template."""

    def __init__(self, found: Learned) -> None:
        self.found = found

    def visit(self, node: nodes.Node, bound: Mapping[str, Path | None]) -> None:
        """Visit a node and all nodes below it; ``bound`` are names that stand for parts of the document."""
        inner = dict(bound)
        if isinstance(node, nodes.Template):
            for child in node.body:
                self.visit(child, inner)
                if isinstance(child, nodes.Assign) and isinstance(child.target, nodes.Name):
                    inner[child.target.name] = self.path(child.node, inner)
            return
        if isinstance(node, nodes.For):
            self._loop(node, inner)
        elif isinstance(node, nodes.Compare):
            self._compare(node, inner)
        elif isinstance(node, nodes.Getitem):
            self._item(node, inner)
        elif isinstance(node, nodes.Call) and isinstance(node.node, nodes.Getattr):
            self._call(node, inner)
        elif isinstance(node, nodes.Filter) and node.node is not None and (path := self.path(node.node, inner)):
            if node.name in ("join", "list", "first", "last", "random"):
                self.found.at((*path, EACH))
            elif node.name in ("int", "float"):
                self.found.at(path, "digit")
            elif node.name in ("trim", "replace", "upper", "lower", "regex_replace", "capitalize"):
                self.found.at(path, "text")
        if isinstance(node, (nodes.Name, nodes.Getattr, nodes.Getitem)) and (path := self.path(node, inner)):
            self.found.at(path)
        for child in node.iter_child_nodes():
            self.visit(child, inner)

    def path(self, node: nodes.Node | None, bound: Mapping[str, Path | None]) -> Path | None:
        """The path in the document of a node's value."""
        if isinstance(node, nodes.Name):
            own = None if node.name in ("range", "namespace", "loop") else (node.name,)
            return bound.get(node.name, own)
        if isinstance(node, nodes.Getattr) and (before := self.path(node.node, bound)) is not None:
            return before if node.attr in TEXT | OF_DICT | {"index", "get"} else (*before, node.attr)
        if isinstance(node, nodes.Getitem) and (before := self.path(node.node, bound)) is not None:
            if isinstance(node.arg, nodes.Slice):
                return before
            key = node.arg.value if isinstance(node.arg, nodes.Const) else None
            return (*before, key if isinstance(key, str) else EACH)
        return None

    def _loop(self, node: nodes.For, inner: dict[str, Path | None]) -> None:
        path = self.path(node.iter, inner)
        if path:
            self.found.at((*path, EACH))
        if isinstance(node.target, nodes.Name):
            inner[node.target.name] = (*path, EACH) if path else None
        else:
            inner |= {name.name: None for name in node.target.find_all(nodes.Name)}

    def _compare(self, node: nodes.Compare, inner: Mapping[str, Path | None]) -> None:
        sides = [node.expr, *(one.expr for one in node.ops)]
        for side, other in ((sides[0], sides[1]), (sides[1], sides[0])):
            if (path := self.path(side, inner)) and isinstance(other, nodes.Const):
                self.found.one_of(path, [other.value])
            elif (path := self.path(side, inner)) and isinstance(other, (nodes.List, nodes.Tuple)):
                self.found.one_of(path, [one.value for one in other.items if isinstance(one, nodes.Const)])

    def _item(self, node: nodes.Getitem, inner: Mapping[str, Path | None]) -> None:
        if isinstance(node.arg, nodes.Slice) and (path := self.path(node.node, inner)):
            self.found.at(path, "text")
        if (index := self.path(node.arg, inner)) is None or isinstance(node.arg, nodes.Const):
            return
        if isinstance(node.node, nodes.Dict):
            keys = [pair.key.value for pair in node.node.items if isinstance(pair.key, nodes.Const)]
            self.found.one_of(index, keys)
        elif isinstance(node.node, (nodes.List, nodes.Tuple)):
            column = self.found.at(index, "index")
            column.count = len(node.node.items)
        else:
            self.found.at(index, "index")

    def _call(self, node: nodes.Call, inner: Mapping[str, Path | None]) -> None:
        callee = node.node
        assert isinstance(callee, nodes.Getattr)
        path = self.path(callee.node, inner)
        if path and callee.attr in TEXT:
            self.found.at(path, "text")
        elif path and callee.attr in OF_DICT:
            self.found.at(path, "dict")
        if callee.attr == "index" and node.args and (member := self.path(node.args[0], inner)):
            if path:
                self.found.at((*path, EACH))
                self.found.at(member, "member").of = path
            elif isinstance(callee.node, (nodes.List, nodes.Tuple)):
                self.found.one_of(member, [one.value for one in callee.node.items if isinstance(one, nodes.Const)])
        if callee.attr == "join" and node.args and (joined := self.path(node.args[0], inner)):
            self.found.at((*joined, EACH))


@lru_cache(256)
def _module(file: File) -> tuple[dict[str, ast.FunctionDef], dict[str, ast.expr]]:
    """The functions of a module, and the values of its names."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return {}, {}
    values = {
        target.id: one.value
        for one in ast.walk(tree)
        if isinstance(one, ast.Assign)
        for target in one.targets
        if isinstance(target, ast.Name)
    }
    return {one.name: one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)}, values


def _function(found: Learned, function: Any) -> None:
    """A function and those of its module that it calls, also through ``partial``."""
    known, values = _module(function.folder.joinpath(*function.module.split(".")).with_suffix(".py"))
    rest, seen = [function.name], set[str]()
    while rest:
        name = rest.pop()
        if name in seen:
            continue
        seen.add(name)
        made = values.get(name)
        if name not in known and isinstance(made, ast.Call) and name == function.name:
            values = {**values, **{one.arg: one.value for one in made.keywords if one.arg}}
            for place, argument in enumerate(made.args[1:]):
                inner = known.get(getattr(made.args[0], "id", ""))
                if inner is not None and place < len(inner.args.args):
                    values[inner.args.args[place].arg] = argument
            rest += [one.id for one in ast.walk(made) if isinstance(one, ast.Name)]
        if name in known:
            _Source(found, values).walk(known[name])
            rest += [one.id for one in ast.walk(known[name]) if isinstance(one, ast.Name)]


class _Source:
    """A visitor of a function: subscripts with constant texts are columns, whatever the name of the variable."""

    def __init__(self, found: Learned, values: Mapping[str, ast.expr]) -> None:
        self.found, self.values = found, values
        self.bound: dict[str, Path] = {}

    def constants(self, node: ast.AST | None) -> list[Any]:
        """The constants in a value: itself, the keys of a mapping, or the entries of a list."""
        if isinstance(node, ast.Name):
            node = self.values.get(node.id)
        if isinstance(node, ast.Dict):
            return [one.value for one in node.keys if isinstance(one, ast.Constant)]
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return [one.value for one in node.elts if isinstance(one, ast.Constant)]
        return [node.value] if isinstance(node, ast.Constant) else []

    def walk(self, function: ast.FunctionDef) -> None:
        """Learn the columns from a function."""
        for node in ast.walk(function):
            self._bind(node)
        for node in ast.walk(function):
            self._learn(node)

    def path(self, node: ast.AST | None) -> Path | None:
        """The path in a document of a value."""
        if isinstance(node, ast.Name):
            return self.bound.get(node.id, ())
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            before = self.path(node.value)
            if before is None:
                return None
            if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
                return (*before, node.slice.value)
            if isinstance(node.slice, ast.Slice):
                return before or None
            return (*before, EACH) if before else None
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "get"
            and node.args
        ):
            key, before = node.args[0], self.path(node.func.value)
            if isinstance(key, ast.Constant) and isinstance(key.value, str) and before is not None:
                return (*before, key.value)
        return None

    def _bind(self, node: ast.AST) -> None:
        pairs: list[tuple[ast.AST, ast.AST]] = []
        if isinstance(node, (ast.For, ast.comprehension)):
            source: ast.AST = node.iter
            target: ast.AST = node.target
            if isinstance(source, ast.Call) and isinstance(source.func, ast.Name) and source.func.id == "enumerate":
                source = source.args[0]
                target = target.elts[1] if isinstance(target, ast.Tuple) else target
            if (path := self.path(source)) and isinstance(target, ast.Name):
                self.found.at((*path, EACH))
                self.bound[target.id] = (*path, EACH)
            elif path:
                self.found.at((*path, EACH))
        elif isinstance(node, ast.Assign):
            pairs = [(target, node.value) for target in node.targets]
        for target, value in pairs:
            if isinstance(target, ast.Name) and (path := self.path(value)):
                self.bound[target.id] = path

    def _learn(self, node: ast.AST) -> None:
        if isinstance(node, (ast.Subscript, ast.Call)) and (path := self.path(node)):
            self.found.at(path)
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and (index := self.path(node.slice)):
            held = self.values.get(node.value.id) if isinstance(node.value, ast.Name) else node.value
            if isinstance(held, ast.Dict):
                self.found.one_of(index, self.constants(held))
            else:
                self.found.at(index, "index")
        if isinstance(node, ast.Compare):
            self._compare(node)
        if isinstance(node, ast.Call):
            self._call(node)

    def _compare(self, node: ast.Compare) -> None:
        if not isinstance(node.ops[0], (ast.Eq, ast.In)):
            return
        for side, other in ((node.left, node.comparators[0]), (node.comparators[0], node.left)):
            if path := self.path(side):
                self.found.one_of(path, self.constants(other))

    def _call(self, node: ast.Call) -> None:
        first = self.path(node.args[0]) if node.args else None
        if isinstance(node.func, ast.Name):
            kind = {"int": "digit", "float": "digit", "eval": "literal", "ord": "letter", "sorted": "texts"}
            if first and node.func.id in kind:
                self.found.at(first, kind[node.func.id])
            for argument in node.args if node.func.id == "zip" else ():
                if path := self.path(argument):
                    self.found.at((*path, EACH))
        elif isinstance(node.func, ast.Attribute):
            path = self.path(node.func.value)
            if path and node.func.attr in TEXT:
                self.found.at(path, "text")
            elif path and node.func.attr in OF_DICT:
                self.found.at(path, "dict")
            if first and node.func.attr == "index":
                listed = self.constants(node.func.value)
                self.found.one_of(first, list(listed[0]) if len(listed) == 1 and isinstance(listed[0], str) else listed)
                self.found.at(first, "member" if path else "letter").of = path or ()
            elif first and node.func.attr == "join":
                self.found.at((*first, EACH))
            elif first and node.func.attr in ("loads", "literal_eval"):
                self.found.at(first, "json" if node.func.attr == "loads" else "literal")


def keys(columns: Mapping[str, Column]) -> Iterator[tuple[str, Column]]:
    """All columns, including nested ones."""
    for name, column in columns.items():
        yield name, column
        yield from keys(column.fields)
