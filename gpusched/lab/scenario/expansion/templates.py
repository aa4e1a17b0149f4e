"""Strings of a timeline with ``{{ Index }}`` and the functions of stage templates in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from gpusched.devcluster.stages.templates.execution import LANGUAGE_FUNCTIONS, render_template
from gpusched.devcluster.stages.templates.functions import SPRIG
from gpusched.devcluster.stages.templates.parser import TemplateError, parse_template

INDEX: Final = "Index"
FUNCTIONS: Final = frozenset({INDEX, *SPRIG, *LANGUAGE_FUNCTIONS})
"""Every function that a template may call."""
Rendered: TypeAlias = Callable[[int], Any]


def is_template(text: str) -> bool:
    """Tell whether a text has to be rendered."""
    return "{{" in text


def template_error(text: str) -> str:
    """What is wrong with a text as a template, empty for nothing."""
    if not is_template(text):
        return ""
    try:
        unknown = sorted(parse_template(text).functions - FUNCTIONS)
    except TemplateError as error:
        return str(error)
    if unknown:
        return f"function {unknown[0]!r} is not known"
    return ""


def compile_value(value: Any) -> Rendered:
    """A function from the index to the value with all its templates rendered.

    What holds no template is shared between the results and must not be changed. The function
    raises TemplateError where a template does not fit.
    """
    found = _compiled(value)
    return found if found is not None else lambda _: value


def _compiled(value: Any) -> Rendered | None:
    """None where there is nothing to render."""
    if isinstance(value, str):
        return _text(value) if is_template(value) else None
    if isinstance(value, Mapping):
        parts = [(key, part) for key, item in value.items() if (part := _compiled(item))]
        return _mapping(dict(value), parts) if parts else None
    if isinstance(value, list | tuple):
        places = [(at, part) for at, item in enumerate(value) if (part := _compiled(item))]
        return _listing(value, places) if places else None
    if attrs.has(type(value)):
        found = templates_of(value)
        return _instance(value, list(found.items())) if found else None
    return None


def templates_of(instance: Any) -> dict[str, Rendered]:
    """The attributes of an instance that hold templates, each as ``compiled`` makes it."""
    names = [field.name for field in attrs.fields(type(instance))]
    return {name: part for name in names if (part := _compiled(getattr(instance, name)))}


def _text(source: str) -> Rendered:
    def run(index: int) -> str:
        try:
            return render_template(source, {}, {**SPRIG, INDEX: lambda: index})
        except TemplateError as error:
            if not isinstance(error.__cause__, TypeError):
                raise
            raise TemplateError(_argument_message(str(error))) from error

    return run


def _argument_message(sentence: str) -> str:
    """Without the interpreter's own words about a call with wrong arguments."""
    function = sentence.partition(":")[0]
    close = "; did you mean {{ Index }}?" if function.casefold() == INDEX.casefold() else ""
    return f"template: {function}: it takes other arguments{close}"


def _mapping(whole: dict[Any, Any], parts: list[tuple[Any, Rendered]]) -> Rendered:
    def run(index: int) -> dict[Any, Any]:
        made = dict(whole)
        for key, part in parts:
            made[key] = part(index)
        return made

    return run


def _listing(whole: Sequence[Any], places: list[tuple[int, Rendered]]) -> Rendered:
    same = type(whole)

    def run(index: int) -> Any:
        made = list(whole)
        for at, part in places:
            made[at] = part(index)
        return same(made)  # type: ignore[call-arg]

    return run


def _instance(whole: Any, parts: list[tuple[str, Rendered]]) -> Rendered:
    made = copy_function(whole)

    def run(index: int) -> Any:
        return made({name: part(index) for name, part in parts})

    return run


def copy_function(whole: Any) -> Callable[[dict[str, Any]], Any]:
    """``attrs.evolve`` of one instance, for when it is done a hundred thousand times."""
    same = type(whole)
    fields = {field.name: getattr(whole, field.name) for field in attrs.fields(same)}
    return lambda changes: same(**{**fields, **changes})
