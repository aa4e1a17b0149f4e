"""A gang that is to start in one of its queue's node pools."""

from __future__ import annotations

import attrs

from gpusched.cache.gangs import Gang


@attrs.frozen(slots=True, eq=False)
class Variant:
    """The gang with the pool's labels in its pods' node selectors.

    Attributes:
        pool: the pool's name, empty when its queue has no pools.
        node_selector: what the pool adds, pairs sorted by label.
    """

    gang: Gang
    pool: str = ""
    node_selector: tuple[tuple[str, str], ...] = ()
