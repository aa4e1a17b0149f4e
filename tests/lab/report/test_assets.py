"""The style sheets of pages: what a browser would skip in silence fails here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tinycss2
from tinycss2.ast import AtRule, Declaration, Node, ParseError, QualifiedRule

from gpusched.lab.report.pages import asset_files, style

FOLDER = Path(asset_files.__file__).parent / "assets"
SHEETS = sorted(path.name for path in FOLDER.glob("*.css"))
GIVEN_BY_PAGES = {"--n", "--tall", "--left", "--k"}
"""Properties that elements or rules set where they are used: numbers of cards, sizes of plots."""


def rules_of(text: str) -> list[Node]:
    """The rules of a style sheet, those inside of @media too."""
    found: list[Node] = []
    for rule in tinycss2.parse_stylesheet(text, skip_comments=True, skip_whitespace=True):
        found.append(rule)
        if isinstance(rule, AtRule) and rule.content is not None:
            inner = tinycss2.parse_rule_list(rule.content, skip_whitespace=True)
            found.extend(inner)
    return found


def declarations_of(text: str) -> list[tuple[str, list[Node]]]:
    """The selector of each rule, with what it declares."""
    return [
        (
            tinycss2.serialize(rule.prelude).strip(),
            tinycss2.parse_blocks_contents(rule.content, skip_whitespace=True),
        )
        for rule in rules_of(text)
        if isinstance(rule, QualifiedRule)
    ]


def defined_in(text: str) -> set[str]:
    """Custom properties that a style sheet sets."""
    return {
        item.name
        for _, items in declarations_of(text)
        for item in items
        if isinstance(item, Declaration) and item.name.startswith("--")
    }


def errors_in(text: str) -> list[str]:
    """What a browser would skip: rules and declarations that cannot be parsed."""
    items = [*rules_of(text), *(item for _, items in declarations_of(text) for item in items)]
    return [item.message for item in items if isinstance(item, ParseError)]


@pytest.mark.parametrize("name", SHEETS)
def test_each_style_sheet_parses(name):
    """No rule and no declaration of it would be skipped."""
    text = asset_files.read_asset(name)
    assert errors_in(text) == []
    assert text.count("{") == text.count("}")


def test_a_rule_that_would_be_skipped_is_found():
    """The parser of these tests sees what it is to see."""
    assert errors_in("a{color red}")
    assert errors_in("a{color:red}}")
    assert not errors_in("a{color:red}@media print{a{color:black}}")


@pytest.mark.parametrize("name", SHEETS)
def test_no_rule_declares_a_property_twice(name):
    """The first of two would have no effect."""
    for selector, items in declarations_of(asset_files.read_asset(name)):
        names = [item.name for item in items if isinstance(item, Declaration)]
        assert len(names) == len(set(names)), selector


def test_light_and_dark_set_the_same_properties():
    """A colour that only one of them has would be missing in the other."""
    light, dark = (defined_in(asset_files.read_asset(f"{name}.css")) for name in ("light", "dark"))
    assert light == dark
    assert "--bg" in light


@pytest.mark.parametrize("sheet", [style.style_sheet, style.drawing_style])
def test_every_property_that_is_used_is_set(sheet):
    """A name with a slip of the pen would leave an element without its colour."""
    text = sheet()
    used = set(re.findall(r"var\((--[\w-]+)", text))
    assert len(used) > 10
    assert used - defined_in(text) <= GIVEN_BY_PAGES


def test_nothing_is_fetched_from_elsewhere():
    """Pages work without a network: no import, no address, no font file."""
    for path in sorted(FOLDER.iterdir()):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"@import|url\(|//(?!www\.w3\.org)\w+\.\w|fetch\(|XMLHttp", text), path


def test_the_last_number_of_an_axis_ends_with_the_plot():
    """In the middle of the plot's end its half would stand outside of the page, which then scrolls sideways."""
    declared = declarations_of((FOLDER / "page.css").read_text())
    rules = {selector: tinycss2.serialize(items) for selector, items in declared}
    assert "translateX(-50%)" in rules[".xs span"]
    assert "translateX(-100%)" in rules['.xs span[style*="100%"]']
