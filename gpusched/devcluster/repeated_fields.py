"""Fields that a JSON body names twice: the last one counts, and strict clients are told.

Decoding forgets them, so they are looked for in the bytes. Almost no body has any: first keys are
only counted, in the bytes and in what was decoded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from gpusched.devcluster.schema.types import join

_UNUSUAL: Final = re.compile(rb'"[ \t\r\n]+:|\\\\":')
"""Spellings of a key's end that plain counting does not see."""


class _Pairs(list[tuple[str, Any]]):
    """The members of an object in order, repeated ones too."""


_decode: Final = json.JSONDecoder(object_pairs_hook=_Pairs).decode


def repeated_fields(raw: bytes, decoded: Any) -> list[str]:
    """Return ``duplicate field "spec.x"`` for each repeated field of a body, in its order.

    Args:
        raw: JSON that could be decoded.
        decoded: what it was decoded to.
    """
    if _UNUSUAL.search(raw) is None and _key_ends(raw) == _keys(decoded):
        return []
    found = _repeated(_decode(raw.decode("utf-8", "replace")), "")
    return [f'duplicate field "{path}"' for path in dict.fromkeys(found)]


def _key_ends(raw: bytes) -> int:
    return raw.count(b'":') - raw.count(b'\\":')


def _keys(value: Any) -> int:
    count, left = 0, [value]
    while left:
        item = left.pop()
        if isinstance(item, dict):
            count += len(item)
            left += [v for v in item.values() if isinstance(v, dict | list)]
        elif isinstance(item, list):
            left += [v for v in item if isinstance(v, dict | list)]
    return count


def _repeated(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, inner in value:
            below = join(path, key)
            if key in seen:
                yield below
            seen.add(key)
            yield from _repeated(inner, below)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _repeated(inner, f"{path}[{index}]")
