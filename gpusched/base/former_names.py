"""Former names of attributes, which authors of plugins and actions may still use, with a warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any


def former_names(owner: str, names: Mapping[str, str]) -> Callable[[Any, str], Any]:
    """The ``__getattr__`` of a class whose attributes were renamed.

    Args:
        owner: name of the class, for the warning.
        names: by former name, the name that the attribute has now.
    """

    def find(self: Any, name: str) -> Any:
        known = names.get(name)
        if known is None:
            raise AttributeError(f"{owner!r} object has no attribute {name!r}")
        warnings.warn(
            f"{owner}.{name} is called {owner}.{known} now", DeprecationWarning, stacklevel=2
        )
        return getattr(self, known)

    return find
