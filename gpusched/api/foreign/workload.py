"""A controller's object from which a gang's size is known: JobSet, PyTorchJob and the like."""

from __future__ import annotations

import attrs

from gpusched.api.meta.identity import UID, ObjectKey, ResourceVersion
from gpusched.api.pod.pod import NO_GANG_ANNOTATIONS, GangAnnotations
from gpusched.base.classes import frozen


@frozen(slots=True)
class ForeignWorkloadRole:
    """Pods of one role.

    Attributes:
        size: pods that it needs from now on; those of finished children are left out.
        late: its pods are made only when others are ready, so that no pod may wait for them.
        finished: pods that were left out of ``size``.
    """

    role: str
    size: int
    late: bool = False
    finished: int = 0


@frozen(slots=True, kw_only=True)
class ForeignWorkload:
    """One object.

    Attributes:
        min_member: members it asks for itself; 0 for the sum of its parts.
        min_roles: roles that must be whole although ``min_member`` is less than the sum.
        warning: what of it is not honoured, empty for nothing.
        hold: why nothing of it is started until it is released; empty when it is not held.
        controller: kind and name of the object that a native Workload describes; empty for none.
    """

    kind: str
    namespace: str
    name: str
    uid: UID
    resource_version: ResourceVersion = attrs.field(eq=False)
    created: float
    parts: tuple[ForeignWorkloadRole, ...]
    min_member: int = 0
    min_roles: tuple[tuple[str, int], ...] = ()
    queue: str = ""
    group: str = ""
    priority_class: str = ""
    hints: GangAnnotations = NO_GANG_ANNOTATIONS
    warning: str = ""
    controller: tuple[str, str] = ("", "")
    hold: str = ""

    @property
    def key(self) -> ObjectKey:
        """Namespace and name of the workload."""
        return ObjectKey(self.namespace, self.name)

    @property
    def finished(self) -> int:
        """Pods of finished children."""
        return sum(part.finished for part in self.parts)

    def stages(self) -> tuple[tuple[tuple[ForeignWorkloadRole, ...], int], ...]:
        """Parts that start together and how many members they need to, in their order.

        Each late part is a stage of its own: its controller makes it when the others are ready,
        and a gang that waited for it would wait for ever.
        """
        first = tuple(part for part in self.parts if not part.late)
        stages = [first] if first else []
        stages += [(part,) for part in self.parts if part.late]
        left = self.min_member
        found = []
        for parts in stages:
            size = sum(part.size for part in parts)
            need = size
            if self.min_member:
                need = left if len(stages) == 1 else max(min(size, left), min(size, 1))
                left -= need
            found.append((parts, need))
        return tuple(found)
