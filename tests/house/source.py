"""The source of the packages as these tests read it: modules, classes, functions, imports."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import attrs

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"gpusched": ROOT / "gpusched", "gpusched_plugins": ROOT / "plugins"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@attrs.frozen
class ModuleSource:
    """What these tests ask of one module; its syntax tree would be millions of objects with those of others.

    Attributes:
        docstring: of the module, empty for none.
        imports: modules of whole imports, wherever they stand: in functions and for types included.
        taken: module and name of each ``from module import name``.
        attributes: name and attribute of each ``name.attribute``.
        classes: that the module defines, no inner ones.
        functions: likewise.
        callables: names of all functions and methods below the module, ``Class.method``, with their lines; see ``callables``.
    """

    docstring: str
    imports: frozenset[str]
    taken: frozenset[tuple[str, str]]
    attributes: frozenset[tuple[str, str]]
    classes: tuple[str, ...]
    functions: tuple[str, ...]
    callables: tuple[tuple[str, int], ...]

    @classmethod
    def read(cls, tree: ast.Module) -> ModuleSource:
        """What a syntax tree says."""
        imports, taken, attributes = set(), set(), set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                imports.update(each.name for each in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                taken.update((node.module, each.name) for each in node.names)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                attributes.add((node.value.id, node.attr))
        return cls(
            docstring=ast.get_docstring(tree) or "",
            imports=frozenset(imports),
            taken=frozenset(taken),
            attributes=frozenset(attributes),
            classes=tuple(each.name for each in tree.body if isinstance(each, ast.ClassDef)),
            functions=tuple(each.name for each in tree.body if isinstance(each, _FUNCTIONS)),
            callables=tuple(callables(tree)),
        )


def callables(tree: ast.AST, within: str = "") -> Iterator[tuple[str, int]]:
    """Name and lines of each function below a syntax tree; one inside a function is ``outer().inner``."""
    for node in ast.iter_child_nodes(tree):
        inner = within
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            inner = f"{within}.{node.name}" if within else node.name
        if isinstance(node, _FUNCTIONS):
            assert node.end_lineno is not None
            yield inner, node.end_lineno - node.lineno + 1
            inner += "()"
        yield from callables(node, inner)


@cache
def modules() -> Mapping[str, ModuleSource]:
    """What each module says, by dotted name; a package stands for its ``__init__``."""
    return {name: ModuleSource.read(syntax_tree(name)) for name in _files()}


@cache
def _files() -> Mapping[str, Path]:
    found: dict[str, Path] = {}
    for name, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = [name, *path.relative_to(folder).with_suffix("").parts]
            if parts[-1] == "__init__":
                parts.pop()
            found[".".join(parts)] = path
    return found


def syntax_tree(module: str) -> ast.Module:
    """The syntax tree of one module."""
    return ast.parse(_files()[module].read_text(encoding="utf-8"))


def imported(module: str) -> Iterator[str]:
    """Modules of ours that a module imports, anywhere."""
    known = modules()
    source = known[module]
    yield from (each for each in source.imports if each in known)
    for origin, name in source.taken:
        if f"{origin}.{name}" in known:
            yield f"{origin}.{name}"
        elif origin in known:
            yield origin


def circles(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """Strongly connected parts of more than one module (Tarjan, 1972), each sorted."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(start: str) -> None:
        work = [(start, iter(sorted(edges.get(start, ()))))]
        index[start] = low[start] = len(index)
        stack.append(start)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    work.append((target, iter(sorted(edges.get(target, ())))))
                    break
                if target in stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    cut = stack.index(node)
                    part, stack[cut:] = stack[cut:], []
                    if len(part) > 1:
                        found.append(sorted(part))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return sorted(found)


def module_imports() -> dict[str, set[str]]:
    """What each module imports of ours, without itself."""
    return {name: {each for each in imported(name) if each != name} for name in modules()}


def classes() -> dict[str, dict[str, list[str]]]:
    """By package at the top of ours and class name: the modules that define it."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, source in modules().items():
        package = ".".join(name.split(".")[:2])
        for each in source.classes:
            found[package][each].append(name)
    return found


def names_used_of(module: str) -> set[str]:
    """Names of a module of ours that others import from it, or take from it by its last name."""
    short, used = module.rpartition(".")[2], set()
    for name, source in modules().items():
        if name != module:
            used.update(each for origin, each in source.taken if origin == module)
            used.update(each for owner, each in source.attributes if owner == short)
    return used


def functions() -> Iterator[tuple[str, str]]:
    """Module and name of each function of a module; no methods."""
    for name, source in modules().items():
        yield from ((name, each) for each in source.functions)
