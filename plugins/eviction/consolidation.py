"""How much the action ``consolidate`` may move for one gang that waits."""

from __future__ import annotations

from typing import ClassVar

import attrs
from attrs import validators as v

from gpusched.plugin import DependsOn, Hooks, Moving, View


@attrs.frozen(kw_only=True)
class ConsolidationArgs:
    """Arguments of ``consolidation``.

    Attributes:
        max_gangs: that are moved together for one that waits; 0 for none.
        max_lost_seconds: those that are moved lose no more GPU-seconds of work in all than the gang
            that waits would use in so many seconds.
    """

    max_gangs: int = attrs.field(default=16, validator=[v.ge(0), v.le(16)])
    max_lost_seconds: int = attrs.field(default=600, validator=[v.ge(0), v.le(30 * 86_400)])


@attrs.frozen
class Consolidation:
    """Bounds of moves; without it they are those of its defaults."""

    name: ClassVar[str] = "consolidation"
    api: ClassVar[int] = 1
    depends_on: ClassVar[DependsOn] = DependsOn.VIEW
    args: ConsolidationArgs

    def open(self, hooks: Hooks, view: View) -> None:  # noqa: ARG002 - needs no view
        """Set how many gangs may move for one gang, and how much work may be lost."""
        hooks.moving = Moving(gangs_max=self.args.max_gangs, lost_s=self.args.max_lost_seconds)
