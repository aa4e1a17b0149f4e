"""The CEL library without its command-line program, whose imports take a third of a second."""

from __future__ import annotations

import sys
from types import ModuleType

# The package imports its program on import; a module of that name already there is left alone.
sys.modules.setdefault("cel.cli", ModuleType("cel.cli"))

import cel as library  # noqa: E402  # must follow the line above

__all__ = ["library"]
