"""Which blocks of lone pods a claimant may take from, asked queue by queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs

from gpusched.api.meta.identity import GangKey
from gpusched.base.classes import define, frozen
from gpusched.cache.gangs.gang import Gang
from gpusched.session.framework.hooks import Hooks
from gpusched.session.framework.proposal import allowed_victims
from gpusched.session.preempt.claims.victim_kinds import QueueKinds
from gpusched.session.preempt.pools.pod_blocks import PodBlock, PodBlocks


@define(eq=False)
class ExcludedVictims:
    """Victims that a class of claimants gets no more.

    Attributes:
        gangs: that stay.
        kept: by queue, those that are left of it, where all others stay.
    """

    gangs: set[GangKey] = attrs.Factory(set)
    kept: dict[str, set[GangKey]] = attrs.Factory(dict)

    def leaves_all_of(self, queue: str) -> bool:
        """Whether it is known that no gang of a queue is excluded."""
        return not self.gangs and queue not in self.kept

    def without(self, gangs: list[Gang], queue: str) -> list[Gang]:
        """Gangs of a queue that may leave still."""
        kept = self.kept.get(queue)
        if not self.gangs and kept is None:
            return gangs
        return [
            gang
            for gang in gangs
            if gang.key not in self.gangs and (kept is None or gang.key in kept)
        ]


NONE_EXCLUDED: Final = ExcludedVictims()
"""Nobody; not to be changed."""


@frozen(slots=True, eq=False)
class AllowedBlocks:
    """Blocks of the first queues.

    Attributes:
        blocks: of queues whose gangs may leave.
        taken_in: how many queues that took.
        work: gangs that were looked at.
    """

    blocks: list[PodBlock]
    taken_in: int
    work: int


@frozen(slots=True, eq=False)
class BlockSearch:
    """What blocks of victims are looked for with.

    Attributes:
        blocks: of all queues.
        hooks: of the session.
        may_be_victim: whether the second may leave for the first, before policies are asked.
        of_queue: all victims of a queue, excluded ones too.
        kinds_of_queue: the same, those that are alike together; None where ``may_be_victim`` may tell them apart.
    """

    blocks: PodBlocks
    hooks: Hooks
    may_be_victim: Callable[[Gang, Gang], bool]
    of_queue: Callable[[str], Sequence[Gang]]
    kinds_of_queue: Callable[[str], QueueKinds] | None

    def find(
        self,
        claimant: Gang,
        action: str,
        ordered: Sequence[str],
        excluded: ExcludedVictims,
        *,
        most: int,
    ) -> AllowedBlocks | None:
        """Blocks of the first queues until they have so many gangs; None where some of a queue may leave and others not.

        A queue in which some gang is more than a pod has no block: it is passed over where policies refuse all of it.
        """
        found: list[PodBlock] = []
        gangs = taken_in = work = 0
        while taken_in < len(ordered) and gangs < most:
            asked: list[PodBlock] = []
            others: list[Gang] = []
            count = 0
            while taken_in < len(ordered) and gangs + count < most:
                queue = ordered[taken_in]
                block, taken_in = self.blocks.of_queue(queue), taken_in + 1
                if block is None:
                    size, possible, some = self._possible(claimant, excluded, queue)
                    work += size
                    others += some
                    count += possible
                    continue
                may = {self.may_be_victim(claimant, first) for first in block.firsts}
                if len(may) > 1 or claimant.key in block.keys:
                    return None
                work += block.size
                left = self._left_of(block, excluded) if may.pop() else None
                if left is not None:
                    asked.append(left)
                    count += left.size
            allowed = self._allowed(claimant, action, asked, others)
            if allowed is None:
                return None
            found += allowed
            gangs += sum(block.size for block in allowed)
        return AllowedBlocks(found, taken_in, work)

    def _possible(
        self, claimant: Gang, excluded: ExcludedVictims, queue: str
    ) -> tuple[int, int, list[Gang]]:
        """How many victims a queue has, how many may leave before policies are asked, and of whom these are asked.

        Of those that are one pod and alike they are asked about one.
        """
        may_be_victim = self.may_be_victim
        if self.kinds_of_queue is None or claimant.placed or not excluded.leaves_all_of(queue):
            gangs = self.of_queue(queue)
            possible = excluded.without(
                [
                    gang
                    for gang in gangs
                    if gang.key != claimant.key and may_be_victim(claimant, gang)
                ],
                queue,
            )
            return len(gangs), len(possible), possible
        kinds = self.kinds_of_queue(queue)
        asked = [
            gang
            for gang in kinds.others.values()
            if gang.key != claimant.key and may_be_victim(claimant, gang)
        ]
        count = len(asked)
        for line in kinds.lines.values():
            if may_be_victim(claimant, line.speaker):
                asked.append(line.speaker)
                count += len(line)
        return len(kinds), count, asked

    def _left_of(self, block: PodBlock, excluded: ExcludedVictims) -> PodBlock | None:
        """Those of a queue that are victims still, None where there are none."""
        gangs = excluded.without(block.gangs, block.queue)
        return block if len(gangs) == block.size else self.blocks.find(gangs)

    def _allowed(
        self, claimant: Gang, action: str, asked: Sequence[PodBlock], others: Sequence[Gang]
    ) -> list[PodBlock] | None:
        """Blocks that policies allow; None where they allow some of the others, or part of a block."""
        gangs = [first for block in asked for first in block.firsts]
        filters = self.hooks.victim_filters
        said = set(map(id, allowed_victims(filters, claimant, [*gangs, *others], action)))
        if any(id(gang) in said for gang in others):
            return None
        found = []
        for block in asked:
            each = {id(first) in said for first in block.firsts}
            if len(each) > 1:
                return None
            if each.pop():
                found.append(block)
        return found
