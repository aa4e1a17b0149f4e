"""Bound pods whose record of GPU slots does not count, told once each: changed, copied or taken."""

from __future__ import annotations

from collections.abc import Callable

from gpusched.api.devices.slots import SLOTS, format_slots
from gpusched.api.meta.identity import UID
from gpusched.api.pod.pod import Pod
from gpusched.api.serializer.seal import SEAL, Seal
from gpusched.cache.ledger import Ledger


def _binding_record(pod: Pod) -> tuple[object, ...]:
    """What the pod says of its binding."""
    return pod.node, pod.slots, pod.slots_error, pod.plan, pod.fence, pod.seal


class SlotDoubts:
    """See the module.

    Args:
        ledger: the slots that each pod has.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._contested: set[UID] = set()
        self.entered: set[str] = set()
        """Nodes with slots in doubt on which something was entered: looked at before the next snapshot."""
        self.listeners: list[Callable[[Pod, str], None]] = []
        """Called with a bound pod whose slots do not count as it says, and why."""

    def forget(self, uid: UID) -> None:
        """A pod is gone."""
        self._contested.discard(uid)

    def note_holding(self, node: str) -> None:
        """Something was entered on a node."""
        if self._ledger.doubted_on(node):
            self.entered.add(node)

    def report_conflict(self, pod: Pod, seal: Seal) -> None:
        """Name a pod, once, that claims slots which others have."""
        held = self._ledger.get(pod.uid)
        if held is None or not held.slots or self._ledger.slots_of(held) == held.slots:
            self._contested.discard(pod.uid)
        elif pod.uid not in self._contested and seal.key:
            self._contested.add(pod.uid)
            self._tell_doubt(
                pod, f"its annotation {SLOTS} claims {format_slots(held.slots)}, which others have"
            )

    def report_invalid(self, pod: Pod, known: Pod | None, seal: Seal) -> None:
        """Name a pod that is bound and says of its slots what does not count."""
        if not seal.key or (known is not None and _binding_record(known) == _binding_record(pod)):
            return
        held = self._ledger.get(pod.uid)
        if pod.slots_error:
            self._tell_doubt(pod, pod.slots_error)
        elif pod.seal and held is not None and not held.sealed:
            self._tell_doubt(
                pod,
                f"its annotation {SEAL} does not fit its node, slots, plan and fence: they were "
                "changed after the binding, or copied",
            )

    def _tell_doubt(self, pod: Pod, why: str) -> None:
        for listener in self.listeners:
            listener(pod, why)
