"""Parts of a session: who imports whom, and that each part is changed through its methods alone."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import gpusched.session
from gpusched.session.state.cycle_state import CycleState

ROOT = Path(gpusched.session.__path__[0])
LOWEST_FIRST = (
    "framework", "state", "gpu_types", "allocate", "admission", "backfill", "preempt", "status", "rebalance",
    "containment", "start", "decide",
)  # fmt: skip
PARTS = ("placements", "nominations", "outcomes")


@cache
def _trees() -> dict[Path, ast.Module]:
    """Syntax trees of sessions and actions, by path."""
    folders = (ROOT, ROOT.parent / "actions")
    paths = sorted(path for folder in folders for path in folder.rglob("*.py"))
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def test_packages_of_sessions_import_only_packages_below_them() -> None:
    """Imports inside of functions and for types count, too."""
    upwards = []
    for path, tree in _trees().items():
        if not path.is_relative_to(ROOT) or (path.parent == ROOT and path.stem == "__init__"):
            continue
        own = path.relative_to(ROOT).parts[0].removesuffix(".py")
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or node.module is None:
                continue
            parts = node.module.split(".")
            if parts[:2] != ["gpusched", "session"] or len(parts) == 2:
                continue
            if LOWEST_FIRST.index(parts[2]) > LOWEST_FIRST.index(own):
                upwards.append(f"{path.relative_to(ROOT)} imports {node.module}")
    assert upwards == []


@pytest.mark.parametrize("part", PARTS)
def test_nothing_outside_a_part_reads_or_changes_its_private_fields(part: str) -> None:
    found = [
        f"{path.name}:{node.lineno}"
        for path, tree in _trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == part
    ]
    assert found == []


def _assigned_parts(node: ast.expr) -> list[str]:
    """Attributes on the way to what is assigned to: ``x``, ``outcomes`` of ``session.outcomes.x[k]``."""
    names = []
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute):
            names.append(node.attr)
        node = node.value
    return names


@pytest.mark.parametrize("part", PARTS)
def test_nothing_assigns_to_a_field_of_a_part(part: str) -> None:
    """Neither to an attribute nor into a mapping that a part shows."""
    found = [
        f"{path.name}:{node.lineno}"
        for path, tree in _trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute | ast.Subscript)
        and isinstance(node.ctx, ast.Store | ast.Del)
        and part in _assigned_parts(node)
        and not (isinstance(node, ast.Attribute) and node.attr == part)
    ]
    assert found == []


def test_cycle_state_makes_one_value_of_each_class() -> None:
    state = CycleState()
    first = state.get_or_make(list, list)
    first.append(1)
    assert state.get_or_make(list, list) is first
    assert state.get_or_make(dict, dict) == {}
