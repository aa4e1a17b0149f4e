"""Checks that are asked only of gangs whose members they concern."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpusched.cache.gangs import Gang
from gpusched.errors import PluginFault
from gpusched.objects.pod import PodClass
from gpusched.session.pairs import Concerns, asked
from gpusched.session.verdict import ALLOW, Verdict

if TYPE_CHECKING:  # it uses this
    from gpusched.session.hooks import Hooks


def of_concern(
    hooks: Hooks, check: Callable[[Gang], Verdict], concerns: Concerns | None
) -> Callable[[Gang], Verdict]:
    """The check, asked of gangs with a waiting member of a class that it concerns.

    Args:
        hooks: of the session; what goes wrong is put down to its plugin, and concerns all.
        check: contained already.
        concerns: asked once for each class of a session; None for all classes.
    """
    if concerns is None:
        return check

    def all_of_them(fault: PluginFault, _pod_class: PodClass) -> bool:
        hooks.faults.append(str(fault))
        return True

    sound = asked(hooks.plugin, "gang_ready", concerns)
    part = f"concerns {len(hooks.ready_checks)}"
    contained = hooks.guard.wrap(hooks.plugin, "gang_ready", sound, all_of_them, part=part)
    known: dict[str, bool] = {}

    def concerned(gang: Gang) -> Verdict:
        for task in gang.tasks:
            digest = task.pod_class.digest
            answer = known.get(digest)
            if answer is None:
                answer = known[digest] = contained(task.pod_class)
            if answer:
                return check(gang)
        return ALLOW

    return concerned
