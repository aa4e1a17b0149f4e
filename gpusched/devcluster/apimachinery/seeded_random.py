"""Repeatable randomness keyed by (seed, concern, object, draw number).

One more object draws from its own keys only, so that no other object's uid, name or delay shifts.
"""

from __future__ import annotations

import hashlib
import random
from typing import Final

_KEYS_MAX: Final = 1 << 17
_BITS: Final = 53


class SeededDraws:
    """Numbered draws of one concern.

    How often a key drew is remembered for a bounded number of keys. When all are forgotten the
    era changes, which enters every later draw: a key never repeats what it drew before.

    Args:
        seed: of the whole cluster.
        concern: what is drawn, such as ``uid``.
    """

    def __init__(self, seed: int, concern: str) -> None:
        self._base = hashlib.blake2b(f"{seed}/{concern}".encode(), digest_size=16)
        self._drawn: dict[str, int] = {}
        self._era = 0

    def next(self, key: str) -> int:
        """The next 128 bits of an object."""
        drawn = self._drawn
        number = drawn.get(key, 0)
        if number == 0 and len(drawn) >= _KEYS_MAX:
            drawn.clear()
            self._era += 1
        drawn[key] = number + 1
        state = self._base.copy()
        state.update(f"/{key}/{self._era}/{number}".encode())
        return int.from_bytes(state.digest(), "big")

    def forget(self, key: str) -> None:
        """Drop the count of a key that will never draw again."""
        self._drawn.pop(key, None)


class KeyedRandom(random.Random):
    """A ``random.Random`` whose numbers come from the draws of the object it is ``about``."""

    def __init__(self, seed: int, concern: str) -> None:
        super().__init__(0)
        self._draws = SeededDraws(seed, concern)
        self._key = ""

    def about(self, key: str) -> None:
        """Draw for this object from now on."""
        self._key = key

    def forget(self, key: str) -> None:
        """Forget the draws of an object, as ``SeededDraws.forget`` does."""
        self._draws.forget(key)

    def random(self) -> float:
        """Uniform in [0, 1)."""
        return float(self.getrandbits(_BITS)) * 2.0**-_BITS

    def getrandbits(self, k: int, /) -> int:
        """``k`` bits, at most 128."""
        assert k <= 128
        return self._draws.next(self._key) >> (128 - k)
