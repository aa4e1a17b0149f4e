"""What one step of a Stage asks for, rendered for one object: pure, nothing is sent here.

A template renders thousands of YAML texts of one form, in which only times, addresses and names
differ, each a value at the end of its line. These values are cut out, the form that is left is
parsed once, and the values are put into a copy of it.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Final

import yaml

from gpusched.base.classes import frozen
from gpusched.base.shared_texts import shared_text
from gpusched.devcluster.stages.model import (
    ApplyStep,
    DeleteStep,
    EventStep,
    FinalizersStep,
    PatchStep,
    PatchType,
    Step,
)
from gpusched.devcluster.stages.templates import execution
from gpusched.devcluster.stages.templates.parser import TemplateError
from gpusched.devcluster.stages.typed_objects import template_data


class TemplateYamlLoader(yaml.CSafeLoader):
    """Timestamps stay texts: JSON has no other form for them."""


TemplateYamlLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}

_VALUE: Final = re.compile(
    r'(?m)(?<=: )(?:"([ !#-\[\]-~]*)"'  # quoted, nothing escaped
    r"|(\d+(?:\.\d+){3}|[a-z][a-z0-9.]*(?:-[a-z0-9.]+)+))"  # an address, a name with a dash
    r"(?=[ \t]*$)"
)
"""Values that are texts, whatever surrounds them on their line."""


@frozen
class _ValuePlaceholder:
    """Where a value was cut out."""

    index: int


@frozen
class _ParsedForm:
    """What a text says but for its values; None where it must be parsed as a whole."""

    tree: Any


def parse_rendered(text: str) -> Any:
    """What a text says, timestamps as texts. It shares parts with a cache: it must not be changed.

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
    return _filled(form.tree, [shared_text(value) for value in values])


@functools.lru_cache(maxsize=1024)
def _form(text: str, count: int) -> _ParsedForm | None:
    try:
        tree = _shared(_loaded(text))
    except TemplateError:
        return None  # the whole text has the better story, if it has one at all
    seen: list[int] = []
    form = _ParsedForm(_gapped(tree, seen))
    return form if sorted(seen) == list(range(count)) else None


def _loaded(text: str) -> Any:
    try:
        return yaml.load(text, Loader=TemplateYamlLoader)  # noqa: S506 - a safe loader, see above
    except yaml.YAMLError as fault:
        raise TemplateError(f"the rendered template is not YAML: {fault}") from fault


def _gapped(tree: Any, seen: list[int]) -> Any:
    kind = type(tree)
    if kind is str and re.fullmatch(r"@@\d+", tree):
        seen.append(int(tree[2:]))
        return _ValuePlaceholder(seen[-1])
    if kind is dict:
        return {key: _gapped(item, seen) for key, item in tree.items()}
    return [_gapped(item, seen) for item in tree] if kind is list else tree


def _filled(tree: Any, values: list[str]) -> Any:
    kind = type(tree)
    if kind is _ValuePlaceholder:
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
        return shared_text(value)
    if kind is dict:
        return {_shared(key): _shared(item) for key, item in value.items()}
    return [_shared(item) for item in value] if kind is list else value


@frozen
class PatchEffect:
    """A patch of the object itself; type None is the default of its kind."""

    body: Any
    subresource: str
    type: PatchType | None


@frozen
class ApplyEffect:
    """Another object to create or change."""

    body: dict[str, Any]
    subresource: str
    type: PatchType


@frozen
class DeleteEffect:
    """Delete the object with grace 0."""


@frozen
class EventEffect:
    """An event that the step records."""

    type: str
    reason: str
    message: str


Effect = PatchEffect | ApplyEffect | DeleteEffect | EventEffect


def render_effect(step: Step, obj: dict[str, Any], functions: execution.Functions) -> Effect | None:
    """What a step asks for; None when it would change nothing by its own account.

    The result shares parts with a cache: callers must not change it.

    Raises:
        TemplateError: the template does not fit this object.
    """
    if isinstance(step, EventStep):
        return EventEffect(step.type, step.reason, step.message)
    if isinstance(step, FinalizersStep):
        return _finalizers(step, obj)
    if isinstance(step, DeleteStep):
        return DeleteEffect()
    body = parse_rendered(
        execution.render_template(step.template, template_data(obj), functions).strip()
    )
    if isinstance(step, ApplyStep):
        if not isinstance(body, dict):
            raise TemplateError("the rendered template is no object to apply")
        return ApplyEffect(body, step.subresource, step.type)
    return _patch(step, body)


def _patch(step: PatchStep, body: Any) -> PatchEffect | None:
    if body is None:
        return None
    wrapped = {step.root: body} if step.root and step.type != "json" else body
    return PatchEffect(wrapped, step.subresource, step.type)


def _finalizers(step: FinalizersStep, obj: dict[str, Any]) -> PatchEffect | None:
    have: list[str] = list(obj["metadata"].get("finalizers") or [])
    kept = [] if step.empty else [name for name in have if name not in step.remove]
    want = kept + [name for name in step.add if name not in kept]
    if want == have:
        return None
    operation = "add" if want and not have else "replace" if want else "remove"
    change: dict[str, Any] = {"op": operation, "path": "/metadata/finalizers"}
    if want:
        change["value"] = want
    return PatchEffect([change], "", "json")
