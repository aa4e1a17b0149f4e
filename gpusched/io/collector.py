"""How often Python looks for garbage in cycles: seldom, as nearly all we hold lives long."""

from __future__ import annotations

import gc

from gpusched import limits


def collect_rarely() -> None:
    """Let the collector run less often, for the whole process.

    Each of its runs walks what is young, and now and then everything: the cache of a large
    cluster, again and again while it is being filled. What we drop holds no cycles and is freed
    at once in any case.
    """
    gc.set_threshold(limits.COLLECT_AFTER_OBJECTS, *gc.get_threshold()[1:])
