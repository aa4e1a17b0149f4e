"""A claimant as rules of reclaim see it: what it asks for, and the rights that it has against a side of the tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from gpusched_plugins.queues.fairshare.entitlement import Held, ReclaimRequest

from gpusched.plugin import Gang, Key, Resources

Rights = tuple[bool, bool]
"""Whether a chain may claim by what it deserves, and whether by its fair share."""


class ClaimRules(Protocol):
    """What rules of reclaim tell of claimants."""

    def path_of(self, gang: Gang) -> tuple[str, ...]:
        """Levels of a gang's queue, from the leaf up."""

    def deciding_request(self, claimant: Gang) -> tuple[Resources, tuple[str, ...]]:
        """What a claimant requests, and the resources by which it is judged."""

    def held_after_all_reclaims(self, claimant: Gang, names: Sequence[str]) -> Held:
        """What the claimant's levels hold of some resources when all leave that may."""

    def rights_of(self, claim: ReclaimRequest, claimed: Held) -> Rights:
        """The rights of a chain that holds so much."""

    def has_right(self, claim: ReclaimRequest, claimed: Held, deserved: bool, due: bool) -> bool:
        """Whether it has one of these that counts."""


class Claimant:
    """A claimant whose possible victims are judged on the accounts as they are.

    Attributes:
        path: of its queue.
        asked: what it requests.
        names: resources that decide.
    """

    def __init__(self, rules: ClaimRules, gang: Gang) -> None:
        self._rules = rules
        self._gang = gang
        self._claimed: Held | None = None
        self.asked, self.names = rules.deciding_request(gang)
        self._claims: dict[tuple[str, ...], tuple[ReclaimRequest, Rights]] = {}
        self.path = rules.path_of(gang)

    def claim_with(self, chain: tuple[str, ...]) -> tuple[ReclaimRequest, Rights]:
        """Its claim with a chain of its levels, and the rights that it has with them."""
        known = self._claims.get(chain)
        if known is None:
            claim = ReclaimRequest(chain, self.asked, self.names)
            known = self._claims[chain] = (claim, self._rules.rights_of(claim, self._held_then()))
        return known

    def has_right(self, chain: tuple[str, ...], deserved: bool, due: bool) -> bool:
        """Whether it has a right with a chain of its levels that counts: by what it deserves, or by its fair share."""
        if chain in self._claims:
            by_deserved, by_fair_share = self._claims[chain][1]
            return (by_deserved and deserved) or (by_fair_share and due)
        claim = ReclaimRequest(chain, self.asked, self.names)
        return self._rules.has_right(claim, self._held_then(), deserved, due)

    def _held_then(self) -> Held:
        """What its levels hold when all leave that may."""
        if self._claimed is None:
            self._claimed = self._rules.held_after_all_reclaims(self._gang, self.names)
        return self._claimed


def keys_by_queue(victims: Sequence[Gang], key: Callable[[Gang], Key]) -> list[Key]:
    """Keys of victims, of which those of one queue have the same."""
    known: dict[str, Key] = {}
    for victim in victims:
        if victim.queue not in known:
            known[victim.queue] = key(victim)
    return [known[victim.queue] for victim in victims]
