"""What a watch shows that we wrote ourselves: it changes no decision."""

from __future__ import annotations

from gpusched.objects.group import PodGroup, Queue
from gpusched.objects.meta import Rejected


def same_spec(known: PodGroup | Queue | None, item: PodGroup | Queue | Rejected) -> bool:
    """Whether only the status differs, which is ours."""
    return (
        known is not None
        and not isinstance(item, Rejected)
        and (known.uid, known.generation) == (item.uid, item.generation)
        and _deleting(known) == _deleting(item)
    )


def _deleting(item: PodGroup | Queue) -> bool:
    return isinstance(item, PodGroup) and item.deleting
