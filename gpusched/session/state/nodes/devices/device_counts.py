"""How many pods of a class find devices on each row, from what is known of equal nodes where that says it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from gpusched.api.pod.pod import Pod, PodClass
from gpusched.arrays.columns import Ints
from gpusched.devices.allocator import AllocationOutcome
from gpusched.devices.fit import AskedClaims, DeviceAnswers, PodCount, maximal_counts
from gpusched.devices.inventory import NodeDevices
from gpusched.devices.search.node_signature import NodeSignature, node_signature
from gpusched.placement.model.class_fit import Caps
from gpusched.session.state.nodes.devices.claims_by_class import ClaimsByClass
from gpusched.session.state.nodes.devices.device_rows import DeviceRows
from gpusched.session.state.nodes.devices.device_search import JOINT_PODS_MAX, DeviceSearch
from gpusched.session.state.nodes.devices.pod_claims import ClassClaims, GivenClaims, SharedClaim
from gpusched.session.state.nodes.devices.taken_devices import TakenDevices

PODS_MAX: Final = 64
"""Pods of one class on one node whose devices are counted at once."""
_MIXES_MAX: Final = 100
"""Counts of several classes on one node that are gone through."""


class DeviceCounts:
    """See the module.

    Args:
        rows: of the nodes.
        claims: of classes.
        taken: what is taken.
        search: for the devices of one pod.
        answers: about nodes that are alike.
    """

    def __init__(
        self,
        rows: DeviceRows,
        claims: ClaimsByClass,
        taken: TakenDevices,
        search: DeviceSearch,
        answers: DeviceAnswers,
    ) -> None:
        self._rows = rows
        self._claims = claims
        self._taken = taken
        self._search = search
        self._answers = answers
        self._signatures: dict[
            tuple[int, bool], tuple[dict[int, NodeSignature], dict[NodeSignature, NodeSignature]]
        ] = {}
        """By what is asked, now or later, signatures of rows; each stands for all that are equal."""
        self._signatures_at = 0
        """Moves after which these were made."""
        self._uncertain: set[tuple[str, int]] = set()
        self._given_up: dict[tuple[str, int], int] = {}
        """Pods with places by class and row beside which the search for devices of one more ended early."""

    def class_caps(self, pod_class: PodClass) -> Caps:
        """What lowers how many pods of a class with claims fit some rows."""
        hold = self._claims.hold

        def lower(rows: Sequence[int] | slice, fits: Ints) -> None:
            numbers = range(len(fits)) if isinstance(rows, slice) else rows
            with self._claims.held_to(hold):
                asked = [
                    (position, row, most)
                    for position, (row, most) in enumerate(zip(numbers, fits.tolist(), strict=True))
                    if most
                ]
                for position, row, most in self._lower_by_known(pod_class, asked, fits):
                    fits[position] = self.count_more_pods(pod_class, row, most=most)

        return lower

    def _lower_by_known(
        self, pod_class: PodClass, asked: Sequence[tuple[int, int, int]], fits: Ints
    ) -> list[tuple[int, int, int]]:
        """Lower fits by what is remembered of equal nodes; what is left to be counted is returned.

        Args:
            pod_class: of the pods.
            asked: places in ``fits``, each with its row and the pods that are asked about.
            fits: of the rows, changed in place.
        """
        claims = self._claims.class_claims(pod_class)
        if claims.fault or claims.nodes or claims.shared or claims.asked is None or self._given_up:
            return list(asked)
        if claims.extended:
            left = [each for each in asked if self._claims.published_resources(pod_class, each[1])]
            if left:
                served = [
                    each
                    for each in asked
                    if not self._claims.published_resources(pod_class, each[1])
                ]
                return [*left, *self._lower_by_known(pod_class, served, fits)]
        signatures = self._known_signatures(claims.asked, [row for _, row, _ in asked])
        given = self._taken.given_pods(nominated=self._taken.looks_later)
        counts: dict[tuple[int, int], PodCount | None] = {}
        left = []
        for position, row, most in asked:
            signature, pods = signatures.get(row), min(most, PODS_MAX)
            count = None
            if signature is not None:
                key = (id(signature), pods)
                if key not in counts:
                    counts[key] = self._answers.known_count(claims.asked, signature, most=pods)
                count = counts[key]
            if count is None or count.bounded:
                left.append((position, row, most))
            elif count.most == pods or not (given.on_row(row) or self._rows.shares_pools(row)):
                fits[position] = count.most
            else:  # pods that were given places may change their devices
                left.append((position, row, most))
        return left

    def _known_signatures(
        self, asked: AskedClaims, rows: Sequence[int]
    ) -> Mapping[int, NodeSignature]:
        """Signatures of rows as they are now, equal ones one object; without rows that have none yet."""
        if self._signatures_at != self._taken.moves:
            self._signatures_at = self._taken.moves
            self._signatures.clear()
        found, same = self._signatures.setdefault((asked.number, self._taken.looks_later), ({}, {}))
        for row in rows:
            if row not in found:
                signature = self._answers.known_signature(
                    self._taken.usage, self._rows.node_devices(row), asked
                )
                if signature is not None:
                    found[row] = same.setdefault(signature, signature)
        return found

    def count_more_pods(self, pod_class: PodClass, row: int, *, most: int) -> int:
        """How many more pods of a class find devices on a row, ``most`` at most."""
        most = self._found_in_time(pod_class, row, most)
        if most <= 0:
            return 0
        claims = self._claims.claims_on(pod_class, row)
        if claims.fault:
            return 0
        node = self._rows.nodes[row]
        if claims.nodes and not all(
            any(term.matches(node.labels, name=node.name) for term in terms)
            for terms in claims.nodes
        ):
            return 0
        unserved = self._search.unserved_claims(claims, row)
        if unserved is None:
            return 0
        if not claims.shared:
            return self._count_served(pod_class, unserved, row, most=most)
        nominated = self._taken.looks_later
        wide = self._search.find_wide(claims, row, nominated=nominated)
        if wide is None:
            return 0
        for each in wide.values():
            self._taken.shift_devices(each.allocations, nominated=nominated, times=1)
        found = self._count_served(pod_class, unserved, row, most=most)
        for each in wide.values():
            self._taken.shift_devices(each.allocations, nominated=nominated, times=-1)
        return found

    def _found_in_time(self, pod_class: PodClass, row: int, most: int) -> int:
        """Of so many pods of a class those for which no search on a row ended early, beside those with places there."""
        known = self._given_up.get((pod_class.digest, row))
        if known is None:
            return most
        return min(
            most, known - len(self._taken.given_pods(nominated=self._taken.looks_later).on_row(row))
        )

    def _count_served(
        self, pod_class: PodClass, unserved: Sequence[SharedClaim], row: int, *, most: int
    ) -> int:
        """How many pods find devices of their own on a row, with shared claims that are served there."""
        asked = self._claims.claims_on(pod_class, row).asked
        beside = [each.asked for each in unserved]
        if asked is not None:
            return self._count_own(pod_class, asked, row, most=min(most, PODS_MAX), beside=beside)
        if not beside:
            return most
        together = self._search.ask_for([each.ready for each in unserved])
        return most if self._count_own(pod_class, together, row, most=1, beside=()) else 0

    def _count_own(
        self,
        pod_class: PodClass,
        asked: AskedClaims,
        row: int,
        *,
        most: int,
        beside: Sequence[AskedClaims],
    ) -> int:
        """How often some claims are served on a row, with others that are served once."""
        devices, answers = self._rows.node_devices(row), self._answers
        found = answers.count(
            self._rows.inventory, self._taken.usage, devices, asked, most=most, beside=beside
        )
        if found.most < most:
            nominated = self._taken.looks_later
            given = self._taken.given_pods(nominated=nominated).on_row(row)
            if given:
                found = self._count_beside(
                    asked, devices, list(given.values()), most=most, more=beside
                )
        if found.most < most and not beside and self._rows.shares_pools(row):
            found = self._count_jointly(asked, row, found, most=most)
        if found.bounded:
            self._uncertain.add((pod_class.digest, row))
        return found.most

    def _count_jointly(
        self, asked: AskedClaims, row: int, known: PodCount, *, most: int
    ) -> PodCount:
        """The same where pods on other nodes may change the devices that both reach."""
        nominated = self._taken.looks_later
        beside = self._search.sharing_pods(nominated=nominated)
        if all(each.row == row for each in beside.values()):
            return known
        if len(beside) >= JOINT_PODS_MAX:
            return attrs.evolve(known, bounded=True)
        one = GivenClaims(row, ClassClaims(own=asked.claims, asked=asked), ())
        while known.most < most:
            pods = [*beside.values(), *[one] * (known.most + 1)]
            found = self._search.allocate_jointly(pods, beside, nominated=nominated)
            if found.outcome is not AllocationOutcome.ALLOCATED:
                bounded = found.outcome is AllocationOutcome.BOUNDED
                return attrs.evolve(known, bounded=known.bounded or bounded)
            known = PodCount(known.most + 1)
        return known

    def _count_beside(
        self,
        asked: AskedClaims,
        devices: NodeDevices,
        beside: Sequence[GivenClaims],
        *,
        most: int,
        more: Sequence[AskedClaims],
    ) -> PodCount:
        """The same where pods were given places in this session, which may change their devices."""
        nominated = self._taken.looks_later
        others = [each.claims.asked for each in beside if each.claims.asked is not None]
        others += more
        answers = self._answers
        if (
            not nominated
            and not self._taken.nominated.by_uid
            and not self._rows.inventory.shares_pools(devices.node)
        ):
            # On such a node these pods have all that was taken since the session began.
            return answers.count(
                self._rows.inventory, self._taken.first, devices, asked, most=most, beside=others
            )
        for each in beside:
            self._taken.shift_devices(each.allocations, nominated=nominated, times=-1)
        found = answers.count(
            self._rows.inventory, self._taken.usage, devices, asked, most=most, beside=others
        )
        for each in beside:
            self._taken.shift_devices(each.allocations, nominated=nominated, times=1)
        return found

    def count_together(
        self, classes: Sequence[PodClass], row: int, most: Sequence[int]
    ) -> tuple[tuple[int, ...], ...] | None:
        """Maximal counts of pods of several classes that find devices on a row together.

        Args:
            classes: with claims of their own.
            row: of the node.
            most: pods of each class that are asked about.

        Returns:
            Counts by class; None where there are too many to be gone through.
        """
        if math.prod(each + 1 for each in most) > _MIXES_MAX:
            return None
        node = self._rows.nodes[row]
        devices = self._rows.inventory.node_devices(node.name, node.labels)
        kinds = [self._claims.claims_on(each, row).own for each in classes]
        once = [
            {
                str(each.uid): each.ready
                for each in self._search.unserved_claims(self._claims.class_claims(of), row) or ()
            }
            for of in classes
        ]
        every = [claim for own in kinds for claim in own]
        every += [claim for shared in once for claim in shared.values()]
        signature = node_signature(self._rows.inventory, self._taken.usage, devices, every)
        sorts = tuple(tuple(e.sort for e in own) for own in kinds)
        shared_sorts = tuple(tuple((uid, e.sort) for uid, e in each.items()) for each in once)
        key = (signature, sorts, shared_sorts, tuple(most))
        known = self._answers.mixes.get(key)
        if known is None:
            known = maximal_counts(
                self._rows.inventory, self._taken.usage, devices, kinds, most=most, once=once
            )
            self._answers.mixes[key] = known
        return known

    def is_bounded(self, pod_class: PodClass) -> bool:
        """Whether on some node more pods of the class might fit than were found in time."""
        return any(digest == pod_class.digest for digest, _ in self._uncertain)

    def give_up(self, pod: Pod, row: int, *, nominated: bool) -> None:
        """A search for the devices of a pod on a row ended early: no more pods of its class are counted there."""
        key = (pod.pod_class.digest, row)
        self._given_up[key] = len(self._taken.given_pods(nominated=nominated).on_row(row))
        self._uncertain.add(key)
