"""The seal on records of ours that stand where tenants can write: an HMAC with a key of our own.

Annotations of pods and Jobs can be written by whoever may edit them. What is read back from
there after a restart carries a seal over the object's UID and the content, made with a key that
only the daemon's Lease holds: a tenant can take a record away, and can neither make nor change
one, nor put it on another object.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import re
from typing import Final

from gpusched.api.devices.slots import format_slots
from gpusched.api.gang.charge_record import ChargeRecord, format_charge
from gpusched.api.gang.eviction_record import GangEvictions, format_evictions
from gpusched.api.gang.move_record import MoveRecord, format_move
from gpusched.api.gang.turn_record import TurnRecord, format_turn
from gpusched.api.jobs.job import Job
from gpusched.api.meta.identity import TIME_MAX, UID, RejectedPodUsage, format_time
from gpusched.api.pod.pod import Pod
from gpusched.base.classes import frozen

SEAL: Final = "gpusched.io/seal"
"""The annotation of a pod that we bound, and of a Job that we started."""
KEY: Final = "gpusched.io/seal-key"
"""The annotation of the daemon's Lease."""
KEY_BYTES: Final = 32
_DIGITS: Final = 32
"""128 bits: too many to guess, few enough for every pod to carry."""
_KEY: Final = re.compile(rf"[0-9a-f]{{{2 * KEY_BYTES}}}")


@frozen(slots=True, repr=False)
class Seal:
    """Makes and checks seals.

    Attributes:
        key: secret; empty while none is known: then nothing is sealed, and no seal is believed.
        open: whether no one else can write where our records are, as in a simulation: then
            everything is believed.
    """

    key: bytes = b""
    open: bool = False

    def of_binding(self, uid: UID, *, node: str, slots: int, plan: str, fence: str) -> str:
        """The annotation ``gpusched.io/seal`` of a pod that is bound so; empty without a key."""
        return self._mark_of("binding", uid, node, format_slots(slots), plan, fence)

    def of_move(self, uid: UID, move: MoveRecord) -> str:
        """The seal in the record of a move on the object of that UID; empty without a key."""
        return self._mark_of("move", uid, format_move(move, seal=""))

    def of_turn(self, uid: UID, turn: TurnRecord) -> str:
        """The seal in the record of turns on the object of that UID; empty without a key."""
        return self._mark_of("turn", uid, format_turn(turn, seal=""))

    def of_evictions(self, uid: UID, record: GangEvictions) -> str:
        """The seal in the record of evictions on the object of that UID; empty without a key."""
        return self._mark_of("evictions", uid, format_evictions(record, seal=""))

    def of_charge(self, uid: UID, record: ChargeRecord) -> str:
        """The seal in the record of who pays for the pod of that UID; empty without a key."""
        return self._mark_of("charge", uid, format_charge(record, seal=""))

    def of_start(self, uid: UID, admitted: str) -> str:
        """The annotation ``gpusched.io/seal`` of a Job that we start at that time."""
        return self._mark_of("start", uid, admitted)

    def fits_binding(self, pod: Pod) -> bool:
        """Whether a bound pod is where we bound it, with the slots, plan and fence we wrote."""
        return self.fits(pod.uid, pod)

    def fits(self, uid: UID, binding: Pod | RejectedPodUsage) -> bool:
        """The same of what is read of the binding of a pod, believed otherwise or not."""
        if self.open:
            return True
        if not binding.seal:
            return False
        made = self.of_binding(
            uid, node=binding.node, slots=binding.slots, plan=binding.plan, fence=binding.fence
        )
        return bool(made) and hmac.compare_digest(made.encode(), binding.seal.encode())

    def fits_move(self, uid: UID, move: MoveRecord) -> bool:
        """Whether we wrote this record on the object of that UID."""
        if self.open:
            return True
        made = self.of_move(uid, move)
        return bool(made) and hmac.compare_digest(made.encode(), move.seal.encode())

    def fits_turn(self, uid: UID, turn: TurnRecord) -> bool:
        """Whether we wrote this record on the object of that UID."""
        if self.open:
            return True
        made = self.of_turn(uid, turn)
        return bool(made) and hmac.compare_digest(made.encode(), turn.seal.encode())

    def fits_evictions(self, uid: UID, record: GangEvictions) -> bool:
        """Whether we wrote this record on the object of that UID."""
        if self.open:
            return True
        made = self.of_evictions(uid, record)
        return bool(made) and hmac.compare_digest(made.encode(), record.seal.encode())

    def fits_charge(self, uid: UID, record: ChargeRecord) -> bool:
        """Whether we wrote this record on the pod of that UID."""
        if self.open:
            return True
        made = self.of_charge(uid, record)
        return bool(made) and hmac.compare_digest(made.encode(), record.seal.encode())

    def fits_start(self, job: Job) -> bool:
        """Whether we started a Job when it says so."""
        if self.open:
            return True
        if not 0 < job.admitted <= TIME_MAX:
            return False
        made = self.of_start(job.uid, format_time(job.admitted))
        return bool(made) and hmac.compare_digest(made.encode(), job.seal.encode())

    def _mark_of(self, *parts: str) -> str:
        if not self.key:
            return ""
        # Unlike hmac.digest, this keeps the interpreter's lock: one that is given away for
        # microseconds comes back only when the session's thread has used up its turn.
        keyed = _keyed_hash(self.key).copy()
        keyed.update("\0".join(parts).encode())
        return keyed.hexdigest()[:_DIGITS]


@functools.lru_cache(maxsize=4)
def _keyed_hash(key: bytes) -> hmac.HMAC:
    return hmac.new(key, digestmod=hashlib.sha256)


NO_SEAL: Final = Seal(open=True)
"""Where only we write."""
UNKNOWN_SEAL: Final = Seal()
"""Before the key is known."""


def parse_seal(text: str) -> Seal:
    """The seal whose key is written so in the Lease; ``UNKNOWN`` when that is no key."""
    return Seal(bytes.fromhex(text)) if _KEY.fullmatch(text) else UNKNOWN_SEAL


def is_seal_key(text: object) -> bool:
    """Whether that is a key as we write one."""
    return isinstance(text, str) and _KEY.fullmatch(text) is not None
