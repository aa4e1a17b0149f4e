"""The source of the packages as these tests read it: modules, classes, functions, imports."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"gpusched": ROOT / "gpusched", "gpusched_plugins": ROOT / "plugins"}


@cache
def modules() -> Mapping[str, ast.Module]:
    """Syntax trees by dotted name; a package stands for its ``__init__``."""
    found: dict[str, ast.Module] = {}
    for name, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = [name, *path.relative_to(folder).with_suffix("").parts]
            if parts[-1] == "__init__":
                parts.pop()
            found[".".join(parts)] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imported(module: str) -> Iterator[str]:
    """Modules of ours that a module imports, anywhere: in functions and for types included."""
    known = modules()
    for node in ast.walk(known[module]):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for each in node.names:
                inner = f"{node.module}.{each.name}"
                if inner in known:
                    yield inner
                elif node.module in known:
                    yield node.module


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
    for name, tree in modules().items():
        package = ".".join(name.split(".")[:2])
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                found[package][node.name].append(name)
    return found


def names_used_of(module: str) -> set[str]:
    """Names of a module of ours that others import from it, or take from it by its last name."""
    short, used = module.rpartition(".")[2], set()
    for name, tree in modules().items():
        if name == module:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == module:
                used.update(each.name for each in node.names)
            elif (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == short
            ):
                used.add(node.attr)
    return used


def functions() -> Iterator[tuple[str, str]]:
    """Module and name of each function of a module; no methods."""
    for name, tree in modules().items():
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield name, node.name
