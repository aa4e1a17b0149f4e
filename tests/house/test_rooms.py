"""The house keeps the rules of docs/architecture.md: rooms, words, and who imports whom."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable

import pytest

from .source import (
    ROOT,
    circles,
    classes,
    functions,
    module_imports,
    modules,
    names_used_of,
    syntax_tree,
)

ENTRIES_MAX = 12
NAMES_THAT_SAY_NOTHING = {"of", "told", "put", "keep", "again", "given", "kept", "made", "within"}


def _folders() -> dict[str, list[str]]:
    """Entries of each folder of the package, without ``__init__`` and what is no code."""
    found = {}
    for folder in sorted((ROOT / "gpusched").rglob("*")):
        if folder.is_dir() and any(folder.glob("*.py")):
            found[str(folder.relative_to(ROOT))] = [
                each.name
                for each in folder.iterdir()
                if each.name not in {"__pycache__", "__init__.py", "py.typed"}
            ]
    return found


def test_each_folder_shows_at_most_a_dozen_entries() -> None:
    crowded = {name: len(each) for name, each in _folders().items() if len(each) > ENTRIES_MAX}
    assert crowded == {}


def test_each_package_says_which_question_it_answers() -> None:
    packages = {name.replace("/", ".") for name in _folders()}
    without = [
        name
        for name in sorted(packages & set(modules()))
        if len(modules()[name].docstring.split()) < 4
    ]
    assert without == []


def test_no_module_imports_itself_in_a_circle() -> None:
    assert circles(module_imports()) == []


def test_a_class_name_stands_once_within_a_package() -> None:
    twice = {
        (package, name): where
        for package, names in classes().items()
        for name, where in names.items()
        if len(where) > 1
    }
    assert twice == {}


def test_functions_of_modules_have_names_that_say_something() -> None:
    silent = [(module, name) for module, name in functions() if name in NAMES_THAT_SAY_NOTHING]
    assert silent == []


def test_every_bound_is_asked_for_somewhere() -> None:
    """One that nothing asks for is a promise that nothing keeps."""
    limits = syntax_tree("gpusched.base.limits")
    promised = {
        node.target.id
        for node in limits.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    here = {
        node.id
        for node in ast.walk(limits)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    assert len(promised) > 200
    assert promised - names_used_of("gpusched.base.limits") - here == set()


def _contracts(kind: str) -> list[dict[str, object]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    return [each for each in contracts if each["type"] == kind]


def _names(layers: Iterable[str]) -> list[set[str]]:
    return [{part.strip().removeprefix("gpusched.") for part in each.split("|")} for each in layers]


def test_the_architecture_page_tells_the_layers_of_the_contracts() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    told = {
        title: _names(drawn.replace("\n", " ").split(">"))
        for title, drawn in re.findall(
            r"\*\*([^*]+)\*\*[^*`]*(?:`[a-z/]+`\))?:\n\n```layers\n(.*?)```", page, re.DOTALL
        )
    }
    bound = {}
    for contract in _contracts("layers"):
        layers = contract["layers"]
        assert isinstance(layers, list)
        bound[contract["name"]] = _names(layers)
    assert told == bound


def test_the_architecture_page_names_every_contract_by_its_title() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    titles = [each["name"] for each in settings["tool"]["importlinter"]["contracts"]]
    assert [title for title in titles if title not in page] == []


def test_the_architecture_page_names_every_module_that_may_use_the_solver() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (contract,) = [
        each for each in _contracts("forbidden") if each["forbidden_modules"] == ["ortools"]
    ]
    allowed = contract["ignore_imports"]
    assert isinstance(allowed, list)
    paths = [each.split(" -> ")[0].removeprefix("gpusched.").replace(".", "/") for each in allowed]
    assert [path for path in paths if f"`{path}.py`" not in page] == []


def test_every_path_on_the_architecture_page_exists() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    paths = re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:/|\.py))`", page)
    assert len(paths) > 30
    missing = [
        each
        for each in paths
        if not ((ROOT / "gpusched" / each).exists() or (ROOT / each).exists())
    ]
    assert missing == []


def test_every_path_on_the_page_of_changes_exists() -> None:
    page = (ROOT / "docs" / "changing.md").read_text(encoding="utf-8")
    paths = re.findall(r"`([\w./-]+(?:/|\.py|\.yaml|\.md|\.toml))`", page)
    assert len(paths) > 30
    assert [each for each in paths if not (ROOT / each).exists()] == []


def test_the_picture_of_the_house_has_every_layer() -> None:
    picture = (ROOT / "docs" / "house.svg").read_text(encoding="utf-8")
    (contract,) = [each for each in _contracts("layers") if "containers" not in each]
    layers = contract["layers"]
    assert isinstance(layers, list)
    names = [part.strip().removeprefix("gpusched.") for each in layers for part in each.split("|")]
    assert [name for name in names if f">{name}<" not in picture] == []


@pytest.mark.parametrize("number", [2, 3])
def test_a_circle_is_found_where_there_is_one(number: int) -> None:
    names = [f"m{each}" for each in range(number)]
    edges = {name: {names[(at + 1) % number]} for at, name in enumerate(names)}
    assert circles({**edges, "alone": {"m0"}}) == [names]


def test_classes_are_made_by_the_decorators_of_base() -> None:
    """Those of attrs compile three methods a class at each start; actions are templates for authors."""
    own = ("gpusched.actions", "gpusched.base.classes", "gpusched_plugins")
    slow = [
        name
        for name, source in modules().items()
        if {("attrs", "frozen"), ("attrs", "define")} & source.attributes
        and not name.startswith(own)
    ]
    assert slow == [], "use gpusched.base.classes"
