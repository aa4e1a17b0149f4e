"""The invariants of a run, always on: looked at with every binding, and each second.

Like ``gpusched.testing.invariants`` it reads API objects alone and shares no logic with the
scheduler; unlike that one it keeps books, so that a run of ten thousand pods can afford it.

``room``: what we bind leaves its node within what that offers. ``slots``: no GPU is given twice,
and a pod has as many as it asks for. ``quota``: what is bound leaves every queue above it within
its capability. ``gangs``: no gang is bound in part for longer than a recovery may take. ``ours``:
only pods of this scheduler are bound, and none that is gated. ``honest``: a status tells what is so.
``devices``: no device is given twice, shares and counters are within what there is, and pods are bound
when their claims have devices. ``claims``: no claim keeps devices of which no pod makes use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from gpusched.api.devices.gpu_share import shared_resource
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.base.classes import define
from gpusched.engine.run_record import BrokenInvariant
from gpusched.lab.scenario.recorder import object_fields
from gpusched.lab.scenario.recorder.object_fields import Obj
from gpusched.lab.scenario.recorder.open_lives import OpenPod, OpenWorkload
from gpusched.lab.scenario.recorder.recorder import RunRecorder
from gpusched.lab.scenario.target_cluster.interface import ObjectChange
from gpusched.testing.invariants import RECOVERY_S
from gpusched.testing.invariants.devices import DeviceBooks, claim_names, unserved_claims
from gpusched.testing.invariants.model import served_by_claim

PATIENCE_S: Final = 10.0
"""What a node offers or a queue may hold is known to the daemon after so long at the latest."""
LEAK_S: Final = 180.0
"""Devices that no pod makes use of are released in this time: a recovery, and a claim controller's."""
_LEAK_PERIOD_S: Final = 30.0
STATUS_S: Final = 6.0
"""A status may tell for so long what is no longer so."""
_PLAN: Final = "gpusched.io/plan"
_ROOT: Final = "root"
_WHOLE: Final = 1000


@define(slots=True)
class _NodeUse:
    """What a node offers, what it offered before that, since when, and what is taken."""

    offer: Mapping[str, int]
    before: Mapping[str, int]
    since: float
    taken: Counter[str] = attrs.Factory(Counter)
    slots: dict[int, dict[str, int]] = attrs.Factory(dict)
    foreign: float = -PATIENCE_S

    def most(self, resource: str, now: float) -> int:
        """The largest offer that the daemon may still believe in."""
        have = self.offer.get(resource, 0)
        if now - self.since < PATIENCE_S:
            have = max(have, self.before.get(resource, 0))
        return have


@define(slots=True)
class _QueueUse:
    """Limits of a queue in thousandths, since when, and what is held in it and below."""

    parent: str = _ROOT
    limits: Mapping[str, int] = attrs.Factory(dict)
    since: float = -PATIENCE_S
    held: Counter[str] = attrs.Factory(Counter)


class InvariantWatch:
    """Watches the invariants of a run.

    Args:
        recorder: that has seen each change before this one does.
        schedulers: names under which our daemons place pods.

    Attributes:
        broken: what did not hold, each thing once.
    """

    def __init__(self, recorder: RunRecorder, schedulers: Sequence[str] = ("gpusched",)) -> None:
        self.broken: list[BrokenInvariant] = []
        self._recorder = recorder
        self._schedulers = frozenset(schedulers)
        self._nodes: dict[str, _NodeUse] = {}
        self._queues: dict[str, _QueueUse] = {}
        self._holding: dict[str, tuple[OpenPod, tuple[str, ...]]] = {}
        self._partial: dict[str, float] = {}
        self._whole: set[str] = set()
        self._groups: dict[str, Obj] = {}
        self._dirty: dict[str, None] = {}
        self._false: dict[str, float] = {}
        self._said: set[str] = set()
        self._devices = DeviceBooks()
        self._claims: dict[str, Obj] = {}
        self._unused: dict[str, float] = {}
        self._leaks_at = 0.0

    def see(self, change: ObjectChange) -> None:
        """Take in one change."""
        if change.kind == "Pod":
            self._pod(change)
        elif change.kind == "Node":
            self._node(change)
        elif change.kind == "Queue":
            self._queue(change)
        elif change.kind == "PodGroup":
            self._group(change)
        elif change.kind == "ResourceClaim":
            self._claim(change)
        elif change.kind == "ResourceSlice":
            self._devices.see_slice(change.obj, gone=change.gone)

    def look(self, now: float) -> None:
        """Once a second: what may be so for a while and no longer."""
        self._look_for_leaks(now)
        for key, since in list(self._partial.items()):
            if now - since <= RECOVERY_S:
                break  # in the order in which they began
            work = self._recorder.works.find(key)
            if work is not None:
                self._say(now, "gangs", f"{work.bound} of {work.min_member} pods of {key} have "
                                        f"been bound since {since:.0f} s")  # fmt: skip
            del self._partial[key]
        for key in self._dirty:
            if self._is_false(key):
                self._false.setdefault(key, now)
            else:
                self._false.pop(key, None)
        self._dirty.clear()
        for key, since in list(self._false.items()):
            if now - since >= STATUS_S and self._is_false(key):
                work = self._recorder.works.find(key)
                count = work.bound if work is not None else 0
                self._say(now, "honest", f"{key} is said to run with {count} pods bound")

    # -- devices -----------------------------------------------------------------------------
    def _claim(self, change: ObjectChange) -> None:
        key = object_fields.object_name(change.obj)
        if change.gone:
            self._claims.pop(key, None)
        else:
            self._claims[key] = change.obj
        for found in self._devices.see_claim(change.obj, gone=change.gone):
            self._say(change.at, "devices", found.sentence)

    def _look_for_leaks(self, now: float) -> None:
        """Claims whose devices no pod has made use of for too long."""
        if not self._claims or now < self._leaks_at:
            return
        self._leaks_at = now + _LEAK_PERIOD_S
        unused: dict[str, float] = {}
        for key, claim in self._claims.items():
            status = claim.get("status") or {}
            reserved = status.get("reservedFor") or ()
            if not status.get("allocation") or any(
                each.get("uid") in self._holding or each.get("resource") != "pods"
                for each in reserved
            ):
                continue
            unused[key] = self._unused.get(key, now)
            if now - unused[key] >= LEAK_S:
                self._say(now, "claims", f"claim {key} has kept devices since {unused[key]:.0f} s, "
                                         "and no pod that runs uses them")  # fmt: skip
        self._unused = unused

    def _say(self, at: float, invariant: str, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            self.broken.append(BrokenInvariant(at=at, invariant=invariant, sentence=sentence))

    # -- pods --------------------------------------------------------------------------------
    def _pod(self, change: ObjectChange) -> None:
        pod = change.obj
        uid = pod["metadata"]["uid"]
        body = self._recorder.pods.find(uid)
        if body is None:
            return
        if body.holds and uid not in self._holding:
            self._take(body, pod, change.at)
        elif not body.holds and uid in self._holding:
            self._give_back(uid)
        elif uid in self._holding and body.told is not None:
            self._leave_queues(uid)
        self._watch_gang(body.work, change.at)

    def _take(self, body: OpenPod, pod: Obj, at: float) -> None:
        node = self._nodes.get(body.node)
        ours = _PLAN in (pod["metadata"].get("annotations") or {})
        if node is not None:
            node.taken.update(body.asked.whole)
            for slot in () if _has_slots_of_claims(body, pod) else body.slots:
                node.slots.setdefault(slot, {})[body.uid] = body.asked.share or _WHOLE
            if not ours:
                node.foreign = at
        line = self._line(body.queue or body.work.queue or object_fields.DEFAULT_QUEUE)
        self._holding[body.uid] = (body, line)
        asks = _thousandths(body)
        for name in line:
            self._queues[name].held.update(asks)
        if ours:
            self._bound(body, pod, at, node)
            self._within(body, line, asks, at)

    def _give_back(self, uid: str) -> None:
        self._leave_queues(uid)
        body, _ = self._holding.pop(uid)
        node = self._nodes.get(body.node)
        if node is None:
            return
        node.taken.subtract(body.asked.whole)
        for slot in body.slots:
            node.slots.get(slot, {}).pop(uid, None)

    def _leave_queues(self, uid: str) -> None:
        body, line = self._holding[uid]
        asks = _thousandths(body)
        for name in line:
            self._queues[name].held.subtract(asks)
        self._holding[uid] = (body, ())

    def _bound(self, body: OpenPod, pod: Obj, at: float, node: _NodeUse | None) -> None:
        """What holds at a binding of ours."""
        name = f"{body.namespace}/{body.name}"
        if pod["spec"].get("schedulerName") not in self._schedulers:
            self._say(at, "ours", f"pod {name} was placed and does not ask for us")
        if pod["spec"].get("schedulingGates"):
            self._say(at, "ours", f"pod {name} was placed through its gate")
        if node is None:
            self._say(at, "room", f"pod {name} was bound to {body.node}, which is not there")
            return
        self._slots(body, pod, at, node)
        # On a real cluster claims are followed only where the scenario makes some itself.
        if all(each in self._claims for each in claim_names(pod)):
            for found in unserved_claims(pod, self._claims):
                self._say(at, "devices", found.sentence)
        if at - node.foreign < STATUS_S:
            return
        opened = sum(1 for held in node.slots.values() if any(s < _WHOLE for s in held.values()))
        served = served_by_claim(pod)
        for resource in body.asked.whole:
            if resource in served and not node.most(resource, at):
                continue  # devices of a claim, which are looked at above
            taken = node.taken[resource] + (opened if resource == shared_resource() else 0)
            have = node.most(resource, at)
            if taken > have:
                self._say(at, "room", f"node {body.node} offers {have} {resource}, its pods ask "
                                      f"for {taken} with {name}")  # fmt: skip

    def _slots(self, body: OpenPod, pod: Obj, at: float, node: _NodeUse) -> None:
        name = f"{body.namespace}/{body.name}"
        if _has_slots_of_claims(body, pod):
            return
        for slot in body.slots:
            held = node.slots[slot]
            if sum(held.values()) > _WHOLE:
                others = ", ".join(sorted(self._name(uid) for uid in held if uid != body.uid))
                self._say(at, "slots", f"GPU {slot} of {body.node} was given to {name} while "
                                       f"{others} has it")  # fmt: skip
        wanted = _slots_asked(body)
        if wanted != len(body.slots) and not pod["spec"].get("resourceClaims"):
            self._say(at, "slots", f"pod {name} asks for {wanted} GPUs and has {len(body.slots)}")

    def _name(self, uid: str) -> str:
        body = self._recorder.pods.find(uid)
        return f"{body.namespace}/{body.name}" if body is not None else uid

    def _within(
        self, body: OpenPod, line: Sequence[str], asks: Mapping[str, int], at: float
    ) -> None:
        for name in line:
            queue = self._queues[name]
            if at - queue.since < PATIENCE_S:
                continue
            for resource in asks:
                limit = queue.limits.get(resource)
                if limit is not None and queue.held[resource] > limit:
                    self._say(at, "quota", f"queue {name} holds {queue.held[resource] / 1000:g} "
                              f"{resource} with {body.namespace}/{body.name}, its capability is "
                              f"{limit / 1000:g}")  # fmt: skip

    def _line(self, queue: str) -> tuple[str, ...]:
        """The queue and those above it; none of them twice where they form a ring."""
        line: list[str] = []
        while queue and queue != _ROOT and queue not in line:
            line.append(queue)
            queue = self._queues.setdefault(queue, _QueueUse()).parent
        return tuple(line)

    # -- gangs -------------------------------------------------------------------------------
    def _watch_gang(self, work: OpenWorkload, at: float) -> None:
        if work.kind == "PodGroup":
            self._dirty[work.key] = None
        if work.bound >= work.min_member:
            self._whole.add(work.key)
        elif work.bound <= 0:  # what starts anew must be whole anew
            self._whole.discard(work.key)
        lacks = 0 < work.bound < work.min_member and work.ended is None
        if lacks and work.key not in self._whole:
            self._partial.setdefault(work.key, at)
        else:
            self._partial.pop(work.key, None)

    def _group(self, change: ObjectChange) -> None:
        key = object_fields.object_name(change.obj)
        if change.gone:
            self._groups.pop(key, None)
            return
        self._groups[key] = change.obj
        self._dirty[key] = None
        for each in (change.obj.get("status") or {}).get("conditions") or ():
            if not (each.get("reason") and each.get("message")):
                sentence = f"condition {each.get('type')} of {key} does not say why"
                self._say(change.at, "honest", sentence)

    def _is_false(self, key: str) -> bool:
        """Whether a group is said to run that lacks members while some of them wait."""
        group, work = self._groups.get(key), self._recorder.works.find(key)
        if group is None or work is None:
            return False
        if (group.get("status") or {}).get("phase") != "Running":
            return False
        if not object_fields.is_true(group, "Scheduled"):
            return False
        placed = sum(body.bound is not None for body in work.pods.values())
        waits = any(body.bound is None and body.ended is None for body in work.pods.values())
        return waits and placed < work.min_member

    # -- what there is -----------------------------------------------------------------------
    def _node(self, change: ObjectChange) -> None:
        name = change.obj["metadata"]["name"]
        if change.gone:
            self._nodes.pop(name, None)
            return
        status = change.obj.get("status") or {}
        offer = object_fields.base_amounts(status.get("allocatable"))
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = _NodeUse(offer, offer, change.at)
            for body, _ in self._holding.values():
                if body.node == name:
                    node.taken.update(body.asked.whole)
                    for slot in body.slots:
                        node.slots.setdefault(slot, {})[body.uid] = body.asked.share or _WHOLE
        elif node.offer != offer:
            node.before, node.offer, node.since = node.offer, offer, change.at

    def _queue(self, change: ObjectChange) -> None:
        name = change.obj["metadata"]["name"]
        queue = self._queues.setdefault(name, _QueueUse())
        spec = {} if change.gone else change.obj.get("spec") or {}
        limits = {
            resource: object_fields.base_amount(str(text), power=3)
            for resource, text in (spec.get("capability") or {}).items()
        }
        parent = spec.get("parent") or _ROOT
        if (limits, parent) != (queue.limits, queue.parent):
            queue.limits, queue.since = limits, change.at
            if parent != queue.parent:
                self._move(name, parent)

    def _move(self, name: str, parent: str) -> None:
        """A queue has another parent: what is held in it counts there."""
        self._queues[name].parent = parent
        for uid, (body, line) in list(self._holding.items()):
            if name not in line:
                continue
            asks = _thousandths(body)
            for each in line:
                self._queues[each].held.subtract(asks)
            new = self._line(line[0])
            for each in new:
                self._queues[each].held.update(asks)
            self._holding[uid] = (body, new)


def _slots_asked(body: OpenPod) -> int:
    """GPU slots that a pod asks for by its resources."""
    if body.asked.share:
        return 1
    return sum(
        number
        for resource, number in body.asked.whole.items()
        if gpu_resources().is_accelerator(resource)
    )


def _has_slots_of_claims(body: OpenPod, pod: Obj) -> bool:
    """Whether its slots are told of devices from its claims, which it may share."""
    if served_by_claim(pod):
        return True
    return bool(pod["spec"].get("resourceClaims")) and not _slots_asked(body)


def _thousandths(body: OpenPod) -> dict[str, int]:
    """What a pod holds of its queue, every resource in thousandths, shares of GPUs included."""
    asks = {
        name: number * (1 if name == "cpu" else _WHOLE) for name, number in body.asked.whole.items()
    }
    if body.asked.share:
        asks[shared_resource()] = asks.get(shared_resource(), 0) + body.asked.share
    return asks
