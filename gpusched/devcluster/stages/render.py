"""What one step of a Stage asks for, rendered for one object: pure, nothing is sent here."""

from __future__ import annotations

from typing import Any

import attrs

from gpusched.devcluster.stages import gotmpl
from gpusched.devcluster.stages.gotmpl_parse import TemplateError
from gpusched.devcluster.stages.model import (
    ApplyStep,
    DeleteStep,
    EventStep,
    FinalizersStep,
    PatchStep,
    PatchType,
    Step,
)
from gpusched.devcluster.stages.typed_objects import template_data
from gpusched.devcluster.stages.yaml_texts import parsed


@attrs.frozen
class Patch:
    """A patch of the object itself; type None is the default of its kind."""

    body: Any
    subresource: str
    type: PatchType | None


@attrs.frozen
class Apply:
    """Another object to create or change."""

    body: dict[str, Any]
    subresource: str
    type: PatchType


@attrs.frozen
class Delete:
    """Delete the object with grace 0."""


@attrs.frozen
class Event:
    """Record an event."""

    type: str
    reason: str
    message: str


Effect = Patch | Apply | Delete | Event


def effect(step: Step, obj: dict[str, Any], functions: gotmpl.Functions) -> Effect | None:
    """What a step asks for; None when it would change nothing by its own account.

    The result shares parts with a cache: callers must not change it.

    Raises:
        TemplateError: the template does not fit this object.
    """
    if isinstance(step, EventStep):
        return Event(step.type, step.reason, step.message)
    if isinstance(step, FinalizersStep):
        return _finalizers(step, obj)
    if isinstance(step, DeleteStep):
        return Delete()
    body = parsed(gotmpl.render(step.template, template_data(obj), functions).strip())
    if isinstance(step, ApplyStep):
        if not isinstance(body, dict):
            raise TemplateError("the rendered template is no object to apply")
        return Apply(body, step.subresource, step.type)
    return _patch(step, body)


def _patch(step: PatchStep, body: Any) -> Patch | None:
    if body is None:
        return None
    wrapped = {step.root: body} if step.root and step.type != "json" else body
    return Patch(wrapped, step.subresource, step.type)


def _finalizers(step: FinalizersStep, obj: dict[str, Any]) -> Patch | None:
    have: list[str] = list(obj["metadata"].get("finalizers") or [])
    kept = [] if step.empty else [name for name in have if name not in step.remove]
    want = kept + [name for name in step.add if name not in kept]
    if want == have:
        return None
    operation = "add" if want and not have else "replace" if want else "remove"
    change: dict[str, Any] = {"op": operation, "path": "/metadata/finalizers"}
    if want:
        change["value"] = want
    return Patch([change], "", "json")
