"""What a session moves: use of nodes now, and as it will be when leaving pods are gone.

Three amounts a node and resource: ``real``, what is held now (pods that are being deleted or
evicted hold their room until they are gone); ``releasing``, the part of it that will be free;
``reserved``, what is promised to pods that wait for it. Seen *now*, a pod may take what is free
and not needed to keep a promise; seen *later*, everything that will be free and is not promised::

    later = real - releasing + reserved
    now   = max(real, later)

``used`` shows one of the two. While room is held back for gangs whose turn comes at a later
time (``hold_back``), both count it as used. A log of touched rows tells others what to compute
again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, Protocol

import numpy as np

from gpusched.api.devices.gpu_share import (
    GpuShare,
    gpu_memory_of_labels,
    offers_gpu_slices,
    shared_resource,
)
from gpusched.api.devices.slots import slot_mask, slot_numbers, slot_ranges
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.resources import Resources
from gpusched.api.meta.units import DEVICE
from gpusched.arrays.alike_rows import AlikeRows
from gpusched.arrays.columns import Ints, NodeColumns, RequestVector, rows_with_any
from gpusched.arrays.node_facts import NodeFacts
from gpusched.arrays.shared_gpus import GpuShareRoom, SharedGpus
from gpusched.base.errors import InvariantBroken


class SlottedNodes(Protocol):
    """A workbench, as far as it is read here."""

    nodes: NodeColumns
    touched_rows: list[int]

    def slot_range(self, row: int, gpu: str) -> int:
        """Bitmask of all slots of one kind of GPU on a row."""

    def free_parts(self, row: int, slots: int) -> list[int]:
        """Free thousandths of each of these slots, by number."""


class FreeGpuParts:
    """Free thousandths by node and GPU; rows are looked at again only when they were touched.

    Args:
        node_usage: moves under it.
        gpu: name of the resource.
    """

    def __init__(self, node_usage: SlottedNodes, gpu: str) -> None:
        self._node_usage = node_usage
        self._slots = [node_usage.slot_range(row, gpu) for row in range(len(node_usage.nodes))]
        most = max((slots.bit_count() for slots in self._slots), default=0)
        self._free: Ints = np.zeros((len(self._slots), most), dtype=np.int64)
        self._seen = len(node_usage.touched_rows)
        for row, slots in enumerate(self._slots):
            if slots:
                self._refresh_row(row)

    def free_parts(self) -> Ints:
        """Shape (nodes, most GPUs of one node), 0 where a node has none; not to be changed."""
        touched = self._node_usage.touched_rows
        if self._seen < len(touched):
            for row in sorted(set(touched[self._seen :])):
                self._refresh_row(row)
            self._seen = len(touched)
        return self._free

    def _refresh_row(self, row: int) -> None:
        slots = self._slots[row]
        self._free[row, : slots.bit_count()] = self._node_usage.free_parts(row, slots)


def free_whole_gpus(slots: int, free: int) -> list[int]:
    """``DEVICE`` for each of ``slots`` that is in ``free``, else 0, by number."""
    return [DEVICE if free >> number & 1 else 0 for number in slot_numbers(slots)]


DEFAULT_POPULATION: Final = ((1, 300), (2, 120), (4, 180), (8, 400))
"""Mix of GPU requests that is assumed while no pods were counted."""


class NodeUsage:
    """See the module.

    Args:
        nodes: as the snapshot has them.
        facts: of the nodes, where they are known.
        alike_before: groups of nodes that were alike a moment ago, to go on with.
    """

    def __init__(
        self,
        nodes: NodeColumns,
        *,
        facts: NodeFacts | None = None,
        alike_before: AlikeRows | None = None,
    ) -> None:
        self.nodes = nodes
        self._alike_before = alike_before
        self.used: Ints = nodes.used.copy()
        """As the bench is looked at: shape (nodes, resources)."""
        self.later = False
        """Whether it is looked at as it will be."""
        self.free_slots: list[int] = list(nodes.free_slots)
        self.touched_rows: list[int] = []
        """Every row in the order it was changed; a position in it is a point in time."""
        self.population: tuple[tuple[int, int], ...] = DEFAULT_POPULATION
        """Sizes of GPU requests and how many of a thousand have them; fixed in a session."""
        self.numa_rows: dict[int, list[tuple[int, RequestVector]]] = {
            row: [] for row in (facts or NodeFacts(nodes)).numa_rows
        }
        """Rows whose NUMA nodes count, with slots and requests of what was added to each."""
        self._real: Ints = self.used.copy()
        self._releasing: Ints = nodes.leaving.copy()
        self._reserved: Ints = np.zeros_like(self.used)
        self._split: set[int] = set(rows_with_any(nodes.leaving).tolist())
        """Rows on which now and later may differ."""
        self._back: dict[int, Ints] = {}
        self._ranges: dict[tuple[int, str], int] = {}
        self._all_slots: dict[int, int] = {}
        self._gpu_parts: dict[str, FreeGpuParts] = {}
        self._shared = {row: SharedGpus(slots) for row, slots in nodes.shared.items()}
        self._parts: dict[GpuShare, Ints] = {}
        self._counted: dict[int, dict[tuple[int, int, bool], int]] = {}
        self._counted_to = 0
        self._alike: AlikeRows | None = None

    # -- looking ---------------------------------------------------------------------------
    def show_usage(self, *, later: bool) -> None:
        """Show use as it is now, or as it will be once pods that are leaving are gone."""
        if later == self.later:
            return
        self.later = later
        rows = sorted(self._split)
        if rows:
            self.used[rows] = self._seen_usage(rows)
            self.touched_rows.extend(rows)
        for row in sorted(self._back):
            self._show_row(row)

    @property
    def now_and_later_differ(self) -> bool:
        """Whether anything is being released, so that now and later may differ."""
        return bool(self._split)

    def _seen_usage(self, rows: int | list[int]) -> Ints:
        later: Ints = self._real[rows] - self._releasing[rows] + self._reserved[rows]
        return later if self.later else np.maximum(self._real[rows], later)

    def _show_row(self, row: int) -> None:
        back = self._back.get(row)
        if back is not None:
            self.used[row] = np.maximum(self._seen_usage(row), self.holdings_on(row) + back)
        elif row in self._split:
            self.used[row] = self._seen_usage(row)
        self.touched_rows.append(row)

    def count_as_used(self, amounts: Mapping[int, Ints]) -> None:
        """Count so much as used beyond what is held and promised, until called with nothing.

        Args:
            amounts: by row, shape (resources,); far below zero where nothing is held back.
        """
        before, self._back = self._back, dict(amounts)
        rows = sorted({*before, *amounts})
        self.used[rows] = self._seen_usage(rows)
        if amounts:
            held = sorted(amounts)
            back = self._real[held] + self._reserved[held] + [amounts[row] for row in held]
            self.used[held] = np.maximum(self.used[held], back)
        self.touched_rows.extend(rows)

    @property
    def staying(self) -> Ints:
        """Amounts held once leaving pods have left, plus those nominated; shape (nodes, resources)."""
        staying: Ints = self._real - self._releasing + self._reserved
        return staying

    def holdings_on(self, rows: int | slice | Ints) -> Ints:
        """Amounts held and nominated on a row or on several, by leaving pods too; int64."""
        held: Ints = self._real[rows] + self._reserved[rows]
        return held

    # -- moving ----------------------------------------------------------------------------
    def add(self, row: int, ask: RequestVector, *, slots: int) -> None:
        """Charge a row with a request and take these slots."""
        # By row and columns, which takes three times as long as one after the other, but lets other threads go on, by
        # which bindings are sent (ADR 37).
        self._real[row, ask.columns] += ask.amounts
        self.free_slots[row] &= ~slots
        if slots and row in self.numa_rows:
            self.numa_rows[row].append((slots, ask))
        if row not in self._split:  # now and later it is what is held
            self.used[row] = self._real[row]
        if ask.share is not None:
            part = int(self.parts_of(ask.share)[row])
            self._move_share(row, ask.gpu, slots.bit_length() - 1, now=part, later=part)
        self._show_row(row)

    def remove_pod(self, row: int, ask: RequestVector, *, slots: int) -> None:
        """The exact reverse of ``add``."""
        self._real[row, ask.columns] -= ask.amounts
        if slots and row in self.numa_rows:
            added = self.numa_rows[row]
            # Shares of one GPU have the same slots: the newest goes.
            last = max((n for n, each in enumerate(added) if each[0] == slots), default=-1)
            self.numa_rows[row] = [each for n, each in enumerate(added) if n != last]
        if row not in self._split:
            self.used[row, ask.columns] -= ask.amounts
        if ask.share is not None:
            part = int(self.parts_of(ask.share)[row])
            self._move_share(row, ask.gpu, slots.bit_length() - 1, now=-part, later=-part)
            if self._shared[row].has_shares(slots.bit_length() - 1):
                slots = 0
        self.free_slots[row] |= slots
        self._show_row(row)

    def release_later(
        self, row: int, ask: RequestVector, *, slots: int = 0, times: int = 1
    ) -> None:
        """What a pod there holds will be free; ``times=-1`` takes that back.

        Args:
            row: of its node.
            ask: what it holds.
            slots: on which its share is, 0 when unknown.
            times: see above.
        """
        self._releasing[row][ask.columns] += ask.amounts * times
        if ask.share is not None and ask.gpu >= 0:
            self._release_share(row, ask.gpu, ask.share, slots=slots, times=times)
        self._split.add(row)
        self._show_row(row)

    def reserve_later(self, row: int, ask: RequestVector, *, gpu: int = 0, times: int = 1) -> None:
        """Promise room; ``times=-1`` takes the promise back.

        Args:
            row: of the node.
            ask: what is promised.
            gpu: on which a share will be, as ``gpu_for`` says.
            times: see above.
        """
        self._reserved[row][ask.columns] += ask.amounts * times
        if ask.share is not None and ask.gpu >= 0:
            part = min(DEVICE, int(self.parts_of(ask.share)[row]))
            self._move_share(row, ask.gpu, gpu, now=0, later=part * times)
        self._split.add(row)
        self._show_row(row)

    def _move_share(self, row: int, column: int, gpu: int, *, now: int, later: int) -> None:
        shared = self._shared.get(row)
        if shared is None:
            shared = self._shared[row] = SharedGpus({})
        opened, kept = shared.move_share(gpu, now=now, later=later)
        self._real[row, column] += DEVICE * opened
        if gpu < 0:
            self._reserved[row, column] += DEVICE * kept
        else:
            self._releasing[row, column] += DEVICE * (opened - kept)
        if shared.now_and_later_differ:
            self._split.add(row)
        elif row not in self._split:
            self.used[row, column] += DEVICE * opened

    def _release_share(
        self, row: int, column: int, share: GpuShare, *, slots: int, times: int
    ) -> None:
        if slots.bit_count() != 1 or not slots & self.slot_range(row, shared_resource()):
            # As the ledger has it: it holds a whole one.
            self._releasing[row, column] += DEVICE * times
            return
        shared = self._shared.get(row)
        slot = slots.bit_length() - 1
        if shared is not None and shared.has_shares(slot):
            part = (
                share.thousandths_of(gpu_memory_of_labels(self.nodes.nodes[row].labels)) or DEVICE
            )
            self._move_share(row, column, slot, now=0, later=-part * times)

    # -- shares of GPUs --------------------------------------------------------------------
    def parts_of(self, share: GpuShare) -> Ints:
        """Thousandths of a GPU that a share takes on each row, shape (nodes,).

        More than ``DEVICE`` where no GPU can be shared or none is large enough.
        """
        known = self._parts.get(share)
        if known is None:
            known = self._parts[share] = np.array(
                [self._part_on(row, share) for row in range(len(self.nodes))], dtype=np.int64
            )
        return known

    def _part_on(self, row: int, share: GpuShare) -> int:
        labels = self.nodes.nodes[row].labels
        if not self.slot_range(row, shared_resource()) or offers_gpu_slices(labels):
            return DEVICE + 1
        return share.thousandths_of(gpu_memory_of_labels(labels)) or DEVICE + 1

    def shares_fit(self, rows: Sequence[int] | slice, ask: RequestVector) -> Ints:
        """How many such shares the GPUs of each row take, whatever else they ask for."""
        if ask.share is None or ask.gpu < 0:
            raise InvariantBroken("a request without a share, or of a kind that nobody offers")
        parts = self.parts_of(ask.share)[rows]
        free = self.nodes.allocatable[rows, ask.gpu] - self.used[rows, ask.gpu]
        fits: Ints = np.maximum(free, 0) // DEVICE * (DEVICE // parts)
        if self._shared:
            for row in self.touched_rows[self._counted_to :]:
                self._counted.pop(row, None)
            self._counted_to = len(self.touched_rows)
            chosen = range(len(self.nodes)) if isinstance(rows, slice) else rows
            for index, row in enumerate(chosen):
                if row in self._shared:
                    fits[index] = self._share_count(row, ask.gpu, int(parts[index]))
        return fits

    def _share_count(self, row: int, column: int, part: int) -> int:
        """The same of a row with shares, counted once for equal parts until the row changes."""
        known = self._counted.setdefault(row, {})
        key = (part, column, self.later)
        if key not in known:
            spare = self._share_room(row, column)
            known[key] = self._shared[row].count(part, spare, later=self.later)
        return known[key]

    def write_gpu_room_left(
        self, share: GpuShare, rows: Sequence[int] | Ints | slice, left: Ints
    ) -> None:
        """Write what the GPU that a share would join has left then, where it would join one.

        Args:
            share: that is asked for.
            rows: to look at.
            left: shape (rows,), written in place.
        """
        column = self.nodes.columns.get(shared_resource(), -1)
        if not self._shared or column < 0:
            return
        parts = self.parts_of(share)
        chosen = range(len(self.nodes)) if isinstance(rows, slice) else rows
        for index, row in enumerate(chosen):
            shared, part = self._shared.get(row), int(parts[row])
            if shared is None:
                continue
            found = shared.best_gpu(part, self._share_room(row, column), later=self.later)
            if found is not None:
                left[index] = shared.free_part(found, later=self.later) - part

    def gpu_to_join(self, row: int, ask: RequestVector) -> int | None:
        """The GPU of a row that such a share would join as one looks at it.

        Returns:
            The number of a slot, or below zero one that a promise opens; None when it would get
            a GPU that no share is on, see ``openable``.

        Raises:
            InvariantBroken: it does not fit there.
        """
        if ask.share is None or not self.shares_fit([row], ask)[0]:
            raise InvariantBroken(f"no GPU of {self.nodes.nodes[row].name} has room for a share")
        shared = self._shared.get(row) or SharedGpus({})
        part = int(self.parts_of(ask.share)[row])
        found = shared.best_gpu(part, self._share_room(row, ask.gpu), later=self.later)
        return shared.next_unnamed_number() if found is None and self.later else found

    def openable_slots(self, row: int, ask: RequestVector) -> int:
        """Bitmask of the slots of a row that a share could open now."""
        shared = self._shared.get(row) or SharedGpus({})
        return shared.unopened_slots(self._share_room(row, ask.gpu))

    def next_unnamed_gpu(self, row: int) -> int:
        """A number below zero for a GPU of a row that no promise opens yet."""
        shared = self._shared.get(row)
        return shared.next_unnamed_number() if shared is not None else -1

    def shared_on(self, row: int) -> dict[int, int]:
        """What is taken of each slot of a row that has shares now, in thousandths."""
        shared = self._shared.get(row)
        return dict(shared.taken_parts()) if shared is not None else {}

    def _share_room(self, row: int, column: int) -> GpuShareRoom:
        offered = int(self.nodes.allocatable[row, column])
        later = self._real[row, column] - self._releasing[row, column] + self._reserved[row, column]
        return GpuShareRoom(
            slots=self.free_slots[row] & self.slot_range(row, shared_resource()),
            whole=max(0, offered - int(self.used[row, column])) // DEVICE,
            later=max(0, offered - int(later)) // DEVICE,
            overcommitted=offered < int(self._seen_usage(row)[column]),
        )

    # -- reading ---------------------------------------------------------------------------
    def slot_range(self, row: int, gpu: str) -> int:
        """Bitmask of all slots of one kind of GPU on a row; 0 when they are not numbered."""
        known = self._ranges.get((row, gpu))
        if known is None:
            numbers = slot_ranges(self.nodes.nodes[row].allocatable).get(gpu)
            known = self._ranges[row, gpu] = slot_mask(numbers) if numbers else 0
        return known

    def slots_on(self, row: int) -> int:
        """Bitmask of all slots of a row, of whatever kind."""
        known = self._all_slots.get(row)
        if known is None:
            gpus = gpu_resources()
            known = self._all_slots[row] = _free_slot_numbers(
                self.nodes.nodes[row].allocatable, (gpus.names, gpus.slice_prefixes)
            )
        return known

    def free_parts(self, row: int, slots: int) -> list[int]:
        """Free thousandths of each of some slots of a row, by number."""
        parts = free_whole_gpus(slots, self.free_slots[row])
        shared = self._shared.get(row)
        if shared is not None:
            for index, number in enumerate(slot_numbers(slots)):
                if shared.has_shares(number):
                    parts[index] = max(0, shared.free_part(number, later=False))
        return parts

    def gpu_parts(self, gpu: str) -> Ints:
        """Free thousandths of each GPU of one kind: shape (nodes, GPUs); see ``GpuParts``."""
        parts = self._gpu_parts.get(gpu)
        if parts is None:
            parts = self._gpu_parts[gpu] = FreeGpuParts(self, gpu)
        return parts.free_parts()

    def free_amounts(self, rows: Sequence[int] | Ints | slice, columns: Ints) -> Ints:
        """Free amounts, shape (rows, columns); negative where a node is over its allocatable."""
        if not isinstance(rows, slice) and len(rows) == 1:
            return self.free_on(int(rows[0]), columns)[np.newaxis]
        allocatable: Ints = self.nodes.allocatable[rows].take(columns, 1)
        return allocatable - self.used[rows].take(columns, 1)

    def takes(self, row: int, ask: RequestVector) -> bool:
        """Whether the amounts of a request fit a row; in plain ints, which costs a third of what arrays do."""
        offered, used = self.nodes.allocatable[row].tolist(), self.used[row].tolist()
        for column, amount in zip(ask.columns.tolist(), ask.amounts.tolist(), strict=True):
            if offered[column] - used[column] < amount:
                return False
        return True

    @property
    def alike(self) -> AlikeRows:
        """Nodes that offer and hold the same, as one looks at them."""
        if self._alike is None:
            before, self._alike_before = self._alike_before, None
            follows = before is not None and before.follow(self)
            self._alike = before if follows else AlikeRows(self)
        assert self._alike is not None
        return self._alike

    def release_alike(self) -> AlikeRows | None:
        """The same for a usage of another moment to go on with, as this one is asked no more."""
        return self._alike or self._alike_before

    def free_on(self, row: int, columns: Ints) -> Ints:
        """The same of one row, shape (columns,)."""
        free: Ints = self.nodes.allocatable[row][columns] - self.used[row][columns]
        return free


@lru_cache(maxsize=4096)
def _free_slot_numbers(allocatable: Resources, _named: tuple[tuple[str, ...], ...]) -> int:
    """The bitmask of all slots of a node, under the GPU resources of these names and prefixes."""
    mask = 0
    for numbers in slot_ranges(allocatable).values():
        mask |= slot_mask(numbers)
    return mask
