"""YAML of rendered templates, parsed once for all texts that differ in nothing but their values.

A template renders thousands of texts of one form: only times, addresses and names differ, each a
value at the end of its line. Those are cut out, what is left is parsed once, and the values are
put back into a copy. Where a value would not come back at exactly one place as it was, because it
stands in a block of text, a comment or an anchor, the whole text is parsed.
"""

from __future__ import annotations

import functools
import re
import sys
from typing import Any, Final

import attrs
import yaml

from gpusched.devcluster.stages.gotmpl_parse import TemplateError


class Loader(yaml.CSafeLoader):
    """Timestamps stay texts: JSON has no other form for them."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}

_VALUE: Final = re.compile(
    r'(?m)(?<=: )(?:"([ !#-\[\]-~]*)"'  # quoted, nothing escaped
    r"|(\d+(?:\.\d+){3}|[a-z][a-z0-9.]*(?:-[a-z0-9.]+)+))"  # an address, a name with a dash
    r"(?=[ \t]*$)"
)
"""Values that are texts, whatever surrounds them on their line."""


@attrs.frozen
class _Gap:
    """Where a value was cut out."""

    index: int


@attrs.frozen
class _Form:
    """What a text says but for its values; None where it must be parsed as a whole."""

    tree: Any


def parsed(text: str) -> Any:
    """What a text says, timestamps as texts. It shares parts with a cache: nobody may change it.

    Raises:
        TemplateError: it is not YAML.
    """
    return _parsed(text)


@functools.lru_cache(maxsize=4096)
def _parsed(text: str) -> Any:
    # The parse of equal texts is kept as well: equal statuses then share their memory.
    values: list[str] = []

    def cut(found: re.Match[str]) -> str:
        values.append(found[2] if found[1] is None else found[1])
        return f'"@@{len(values) - 1}"'

    form = _form(_VALUE.sub(cut, text), len(values))
    if form is None:
        return _shared(_loaded(text))
    return _filled(form.tree, [sys.intern(value) for value in values])


@functools.lru_cache(maxsize=1024)
def _form(text: str, count: int) -> _Form | None:
    try:
        tree = _shared(_loaded(text))
    except TemplateError:
        return None  # the whole text has the better story, if it has one at all
    seen: list[int] = []
    form = _Form(_gapped(tree, seen))
    return form if sorted(seen) == list(range(count)) else None


def _loaded(text: str) -> Any:
    try:
        return yaml.load(text, Loader=Loader)  # noqa: S506 - a safe loader, see above
    except yaml.YAMLError as fault:
        raise TemplateError(f"the rendered template is not YAML: {fault}") from fault


def _gapped(tree: Any, seen: list[int]) -> Any:
    kind = type(tree)
    if kind is str and re.fullmatch(r"@@\d+", tree):
        seen.append(int(tree[2:]))
        return _Gap(seen[-1])
    if kind is dict:
        return {key: _gapped(item, seen) for key, item in tree.items()}
    return [_gapped(item, seen) for item in tree] if kind is list else tree


def _filled(tree: Any, values: list[str]) -> Any:
    kind = type(tree)
    if kind is _Gap:
        return values[tree.index]
    if kind is dict:
        return {
            key: item if type(item) is str else _filled(item, values) for key, item in tree.items()
        }
    return [_filled(item, values) for item in tree] if kind is list else tree


def _shared(value: Any) -> Any:
    """The same tree with one string object for equal ones: thousands of statuses are alike."""
    kind = type(value)
    if kind is str:
        return sys.intern(value)
    if kind is dict:
        return {_shared(key): _shared(item) for key, item in value.items()}
    return [_shared(item) for item in value] if kind is list else value
