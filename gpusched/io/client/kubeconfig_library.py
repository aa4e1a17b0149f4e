"""The part of ``kubernetes_asyncio`` that reads kubeconfig files and service accounts.

Importing any module of that library imports all of it: 860 modules of objects and API groups,
a quarter of a second and 35 MiB, of which the daemon and its commands use none. Here its packages
``config`` and ``client`` are imported without what their ``__init__`` brings along.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from gpusched.base.classes import frozen

_LIBRARY: Final = "kubernetes_asyncio"
_CLIENT: Final = f"{_LIBRARY}.client"
_URLLIB3: Final = "urllib3"
"""Of which the library uses one function, for users with a password, and which is imported then."""


@frozen
class KubeconfigLibrary:
    """What is used of the library.

    Attributes:
        config: its package ``config``.
        new_configuration: makes an empty ``Configuration``, which the loaders of ``config`` fill.
    """

    config: Any
    new_configuration: Any


@cache
def kubeconfig_library() -> KubeconfigLibrary:
    """The library's package ``config``, imported at the first call."""
    if _LIBRARY in sys.modules:  # a plugin uses it: then it is there as a whole
        config, client = (importlib.import_module(f"{_LIBRARY}.{n}") for n in ("config", "client"))
        return KubeconfigLibrary(config, client.Configuration)
    spec = importlib.util.find_spec(_LIBRARY)
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError(f"No module named '{_LIBRARY}'", name=_LIBRARY)
    folders = [Path(each) for each in spec.submodule_search_locations]
    client = _package(_CLIENT, [each / "client" for each in folders])
    instead = {_LIBRARY: _package(_LIBRARY, folders), _CLIENT: client}
    if _URLLIB3 not in sys.modules:
        instead[_URLLIB3] = _imported_when_used(_URLLIB3)
    sys.modules.update(instead)
    try:
        made = importlib.import_module(f"{_CLIENT}.configuration").Configuration
        # ``config`` takes both names from the package; the client itself is never made.
        client.__dict__.update(Configuration=made, ApiClient=object)
        return KubeconfigLibrary(importlib.import_module(f"{_LIBRARY}.config"), made)
    finally:
        # Whoever imports the library afterwards gets all of it.
        for name in [each for each in sys.modules if each.split(".")[0] == _LIBRARY]:
            del sys.modules[name]
        if sys.modules.get(_URLLIB3) is instead.get(_URLLIB3):
            del sys.modules[_URLLIB3]


def _package(name: str, folders: list[Path]) -> ModuleType:
    """A package of that name whose ``__init__`` is not run."""
    made = ModuleType(name)
    made.__path__ = [str(each) for each in folders]
    return made


def _imported_when_used(name: str) -> ModuleType:
    """What stands for a module until something of it is asked for."""
    made = ModuleType(name)
    made.__dict__["__getattr__"] = lambda part: getattr(importlib.import_module(name), part)
    return made
