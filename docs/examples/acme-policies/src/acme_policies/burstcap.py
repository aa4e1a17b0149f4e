"""Cap how far one queue may burst: a queue that spreads over every rack leaves none whole."""

from __future__ import annotations

from typing import ClassVar

import attrs
from attrs import validators as v

from gpusched.plugin import ALLOW, DEVICE, Gang, Hooks, Reason, Verdict, View, wait


@attrs.frozen(kw_only=True)
class BurstCapArgs:
    """What the configuration may say."""

    max_gpus: int = attrs.field(default=64, validator=[v.ge(0), v.le(100_000)])


@attrs.frozen
class BurstCap:
    """Lets no queue hold more than ``max_gpus`` GPUs."""

    name: ClassVar[str] = "burstcap"
    api: ClassVar[int] = 1
    args: BurstCapArgs

    def open(self, hooks: Hooks, view: View) -> None:
        """Called once a session."""

        def check(gang: Gang) -> Verdict:
            left = max(0, self.args.max_gpus * DEVICE - view.used_gpus(gang.queue))
            need = sum(amount for name, amount in view.minimum(gang).items if name.endswith("/gpu"))
            if need <= left:
                return ALLOW
            return wait(
                Reason.QUOTA_EXCEEDED,
                "needs {need} GPUs, the burst cap leaves {left}",
                need=f"{need / DEVICE:g}",
                left=f"{left / DEVICE:g}",
            )

        hooks.quota_check(check)
