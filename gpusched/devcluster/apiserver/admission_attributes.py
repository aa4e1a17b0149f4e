"""A write that asks to be admitted, and the interface of what admits or refuses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

import attrs

from gpusched.base.classes import frozen
from gpusched.devcluster.apiserver.rbac.rules import User
from gpusched.devcluster.registry.kinds import Resource

Obj = dict[str, Any]
Operation = Literal["CREATE", "UPDATE", "DELETE"]


@frozen(kw_only=True)
class Attributes:
    """One write that asks to be admitted.

    Attributes:
        kind: of the object sent, as group, version and kind; a subresource has its own.
        name: as in the path or the body, or as the server has made it; empty for one of many that
            one request deletes.
        namespace: empty for objects of the whole cluster; a Namespace's own name for itself.
        obj: as it would be stored; None for deletions.
        old: as it is stored; None for creates.
        options: the write's own options, as the API spells them.
        warnings: gets what a policy only warns of.
    """

    operation: Operation
    resource: Resource
    kind: tuple[str, str, str]
    namespace: str
    name: str
    user: User
    subresource: str = ""
    obj: Obj | None = None
    old: Obj | None = None
    dry_run: bool = False
    options: Obj = attrs.field(factory=dict)
    warnings: list[str] = attrs.field(factory=list)


class PolicyAdmission(Protocol):
    """What is asked about every write of a known user before it is stored."""

    @property
    def mutates(self) -> bool:
        """Tell whether any policy is in force that changes objects."""

    def mutate(self, asked: Attributes, misfit: Callable[[Obj], str | None]) -> Obj:
        """Return the object as policies leave it; raises the StatusError of one that fails.

        ``misfit`` says why an object does not fit its schema, None when it does.
        """

    @property
    def active(self) -> bool:
        """Tell whether any policy is in force, so that attributes are worth collecting."""

    def admit(self, asked: Attributes) -> None:
        """Return for an admitted write; raises the StatusError that refuses it."""
