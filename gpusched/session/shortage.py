"""Why a class of pods has too few places: counts of nodes by what is wrong with them."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from gpusched.arrays.columns import Bools, how_many_fit
from gpusched.arrays.workbench import Workbench
from gpusched.objects.pod import PodClass
from gpusched.objects.quantity import format_quantity
from gpusched.objects.resources import PODS
from gpusched.objects.share import SHARED
from gpusched.objects.units import DEVICE
from gpusched.placement.board import Board
from gpusched.session.hooks import Filter
from gpusched.session.reasons import Reason, cut, no_room, what


@attrs.frozen(kw_only=True, eq=False)
class Shortage:
    """A class that did not find its places.

    Attributes:
        filters, refused: each filter and the rows it refuses, shape (nodes,).
        placed: of pods with rules about each other, how many found a place; None for others.
        within, where: the domain that was looked at, as rows (None: all) and as words.
    """

    pod_class: PodClass
    bench: Workbench
    board: Board
    filters: Sequence[Filter]
    refused: Sequence[Bools]
    within: Bools | None = None
    where: str = ""
    placed: int | None = None

    def told(self, count: int) -> tuple[Reason, str]:
        """Reason and sentence for so many pods that do not all fit."""
        total = len(self.bench.nodes) if self.within is None else int(self.within.sum())
        failed = self.failed()
        if failed:
            return Reason.BACK_OFF, failed
        asked = what(count, self.pod_class)
        if total == 0:
            return Reason.NO_FEASIBLE_NODE, cut(f"needs {asked}; the cluster has no usable node")
        fit = self.placed
        if fit is None:
            fit = self.board.total(self.within, most=count)
        sentence = no_room(asked, fit=fit, total=total, refused=self.causes(), where=self.where)
        never = never_fits(self.pod_class, self.bench, self.board.fixed)
        if never:
            return Reason.NO_FEASIBLE_NODE, cut(f"{sentence}; {never}")
        room = self._room_when_empty(count)
        # That none fits even then was said of each node already, where it is the share that is too big.
        if room < count and (room or self.pod_class.share is None):
            sentence = cut(f"{sentence}; even empty they have room for {room} only")
        return Reason.INSUFFICIENT_RESOURCES, sentence

    def failed(self) -> str:
        """That a filter gave no answer and so no node is accepted; empty when all did."""
        for each, mask in zip(self.filters, self.refused, strict=True):
            if each.failed and len(mask) and mask.all():
                return cut(f"{each.failed}; no node is accepted until it works")
        return ""

    def _room_when_empty(self, most: int) -> int:
        """How many would fit if nothing else ran there, counted up to ``most`` a node."""
        rows = self.board.fixed if self.within is None else self.board.fixed & self.within
        ask = self.board.ask
        offered = self.bench.nodes.allocatable[rows][:, ask.columns]
        fits = how_many_fit(offered, ask.amounts)
        if ask.share is not None:
            if ask.gpu < 0:
                return 0
            parts = self.bench.parts_of(ask.share)[rows]
            gpus = self.bench.nodes.allocatable[rows, ask.gpu] // DEVICE
            fits = np.minimum(fits, gpus * (DEVICE // parts))
        return int(np.minimum(fits, most).sum())

    def causes(self) -> list[tuple[int, str]]:
        """Numbers of nodes and why they take none more, the largest first."""
        nodes = self.bench.nodes
        left = np.ones(len(nodes), dtype=np.bool_) if self.within is None else self.within.copy()
        causes: list[tuple[int, str]] = []
        for each, mask in zip(self.filters, self.refused, strict=True):
            hit = int((left & mask).sum())
            if hit:
                causes.append((hit, each.reason))
            left &= ~mask
        full = left & (self.board.fits == 0)
        unexplained = full.copy()
        for name, amount in self.pod_class.requests.items:
            column = nodes.columns.get(name)
            if not amount:
                continue
            lacking = full
            if name == SHARED and self.pod_class.share is not None:
                causes += self._no_share(full)
                # What such a node lacks otherwise is told by the other resources.
                unexplained &= self._gives_share(full)
                continue
            if column is not None:
                lacking = full & (
                    nodes.allocatable[:, column] - self.bench.used[:, column] < amount
                )
            unexplained &= ~lacking
            if lacking.any():
                label = "have no room for another pod" if name == PODS else f"lack free {name}"
                causes.append((int(lacking.sum()), label))
        if unexplained.any():
            causes.append((int(unexplained.sum()), "have no NUMA node with room for it"))
        return sorted(causes, key=lambda cause: (-cause[0], cause[1]))

    def _gives_share(self, full: Bools) -> Bools:
        """Which of these nodes have a GPU with room for its share, shape (nodes,)."""
        ask = self.board.ask
        if ask.share is None or ask.gpu < 0:
            return np.zeros_like(full)
        return full & (self.bench.shares_fit(slice(None), ask) > 0)

    def _no_share(self, full: Bools) -> list[tuple[int, str]]:
        """Nodes none of whose GPUs has room for its share, and those that could never have it."""
        ask = self.board.ask
        if ask.share is None or ask.gpu < 0:
            return [(int(full.sum()), f"lack free {SHARED}")] if full.any() else []
        never = full & (self.bench.parts_of(ask.share) > DEVICE)
        lacking = full & ~never & (self.bench.shares_fit(slice(None), ask) == 0)
        words = "do not say that they have GPUs with so much memory"
        if ask.share.thousandths:
            words = "have no GPU that can be shared"
        found = [(never, words), (lacking, "have no GPU with room for its share")]
        return [(int(mask.sum()), text) for mask, text in found if mask.any()]


def never_fits(pod_class: PodClass, bench: Workbench, allowed: Bools) -> str:
    """Why no node could take one such pod even if it were empty; empty when one could."""
    nodes = bench.nodes
    if not allowed.any():
        return "no node is allowed to take it"
    for name, amount in pod_class.requests.items:
        if not amount:
            continue
        column = nodes.columns.get(name)
        largest = int(nodes.allocatable[allowed, column].max()) if column is not None else 0
        if amount > largest:
            have = format_quantity(largest, resource=name)
            return f"no allowed node offers more than {have} {name}"
    return ""
