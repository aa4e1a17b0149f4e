"""What ``explain`` says of labels and annotations under ``gpusched.io/`` that mean nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from gpusched.base.known_keys import is_unknown_key, unknown_key_message

_NAMED_MAX: Final = 5


def unknown_keys(objects: Iterable[dict[str, Any]]) -> list[str]:
    """A sentence for each key of some objects that means nothing, five at most."""
    return list(dict.fromkeys(_sentences(objects)))[:_NAMED_MAX]


def _sentences(objects: Iterable[dict[str, Any]]) -> Iterator[str]:
    for each in objects:
        metadata = each.get("metadata")
        for kind in ("labels", "annotations"):
            found = metadata.get(kind) if isinstance(metadata, dict) else None
            for key in sorted(found) if isinstance(found, dict) else ():
                if is_unknown_key(str(key)):
                    yield unknown_key_message(kind.removesuffix("s"), str(key))
