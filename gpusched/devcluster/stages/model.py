"""A Stage of ``kwok.x-k8s.io/v1alpha1``, read and checked.

A Stage says: an object of this kind that looks so (selector) is, after a while (delay), changed
so (steps). ``next``, the older form, is turned into steps in the order in which it is played.
"""

from __future__ import annotations

from typing import Literal

from gpusched.base.classes import frozen
from gpusched.base.errors import ConfigError

PatchType = Literal["json", "merge", "strategic", "apply"]


class StageError(ConfigError):
    """A Stage that cannot be used; the sentence names it, the field and what would be right."""


@frozen
class JqTest:
    """``key`` yields texts; ``operator`` is In, NotIn, Exists or DoesNotExist."""

    key: str
    operator: str
    values: frozenset[str]


@frozen
class CelTest:
    """A CEL expression over ``self`` that has to be true."""

    expression: str


@frozen
class EqualTest:
    """A label or annotation that must have exactly this value."""

    field: Literal["labels", "annotations"]
    key: str
    value: str


@frozen
class StageExpression:
    """Where a number or a time comes from: a jq or a CEL expression over the object."""

    language: Literal["jq", "cel"]
    text: str


@frozen
class StageDelay:
    """Milliseconds, each with an expression that overrules it."""

    duration_ms: int | None = None
    duration_from: StageExpression | None = None
    jitter_ms: int | None = None
    jitter_from: StageExpression | None = None


@frozen
class EventStep:
    """Record an event about the object."""

    type: str
    reason: str
    message: str


@frozen
class FinalizersStep:
    """Add and remove finalizers, or empty the list first."""

    add: tuple[str, ...]
    remove: tuple[str, ...]
    empty: bool


@frozen
class PatchStep:
    """Patch the object with a rendered template under ``root``; type None is the kind's default."""

    template: str
    root: str = ""
    subresource: str = ""
    type: PatchType | None = None


@frozen
class ApplyStep:
    """Create or patch another object: the rendered template names it."""

    template: str
    subresource: str = ""
    type: PatchType = "apply"


@frozen
class DeleteStep:
    """Delete the object with no grace."""


Step = EventStep | FinalizersStep | PatchStep | ApplyStep | DeleteStep
Test = JqTest | CelTest | EqualTest


@frozen
class KwokStage:
    """One Stage, read and checked."""

    name: str
    group_version: str
    kind: str
    tests: tuple[Test, ...]
    steps: tuple[Step, ...]
    weight: int = 0
    weight_from: StageExpression | None = None
    delay: StageDelay | None = None
    immediate_next: bool = False
