"""What an expression ends in when it has no value, and the value that may be absent."""

from __future__ import annotations

from typing import Any

import attrs

from gpusched.errors import GpuschedError


class CelFault(GpuschedError):
    """An expression without a value; ``str()`` says why."""


@attrs.frozen(eq=False)
class Optional:
    """CEL's optional: a value, or none."""

    value: Any = None
    present: bool = False
