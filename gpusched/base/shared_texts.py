"""Equal texts held once in the process: names, labels and plans stand on many objects.

``sys.intern`` would do the same, but from Python 3.12.0 on it keeps each text for ever (python/cpython#113993,
mended in 3.13), and names of gangs and ids of plans are new all the time. This table forgets what was
not met for long.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

SHARED_TEXTS_MAX: Final = 8192
"""Texts that are known at a time; one that is forgotten and met again is held twice, no more."""

shared_text: Final = lru_cache(maxsize=SHARED_TEXTS_MAX)(str)
"""The text that was met first of all that equal this one."""
