"""What a session asks of a plugin: a name, the version of the interface, and hooks to register.

The protocol is structural: a plugin inherits from nothing and imports nothing but
``gpusched.plugin``.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from gpusched.session.framework.hooks import Hooks
from gpusched.session.framework.view import View

PLUGIN_API = 1
"""The version of hooks and views that this program offers; a plugin states which it expects."""


class Plugin(Protocol):
    """A policy: frozen, alive as long as the configuration that names it.

    A class may also have a field ``args``; the loader reads its type from the annotation and
    builds it from the configuration's ``arguments``.
    """

    name: ClassVar[str]
    api: ClassVar[int]

    def open(self, hooks: Hooks, view: View, /) -> None:
        """Register hooks for one session; what belongs to a session is a local here.

        Called through ``Guard.wrap`` like every hook, under the name ``open``.
        """
