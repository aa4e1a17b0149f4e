"""Why a class of pods has too few places: counts of nodes by what is wrong with them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpusched.arrays.columns import Bools, Workbench
from gpusched.objects.pod import PodClass
from gpusched.objects.quantity import format_quantity
from gpusched.objects.resources import PODS
from gpusched.placement.board import Board
from gpusched.session.hooks import Filter
from gpusched.session.reasons import Reason, cut, no_room, what


def shortage(
    pod_class: PodClass,
    count: int,
    *,
    bench: Workbench,
    board: Board,
    filters: Sequence[Filter],
    refused: Sequence[Bools],
    within: Bools | None = None,
    where: str = "",
) -> tuple[Reason, str]:
    """Reason and sentence for ``count`` pods of a class that do not all fit.

    Args:
        refused: for each filter the rows it refuses.
        within, where: the domain that was looked at, as rows and as words.
    """
    total = len(bench.nodes) if within is None else int(within.sum())
    never = never_fits(pod_class, bench, board.allowed)
    if total == 0:
        return Reason.NO_FEASIBLE_NODE, cut(
            f"needs {what(count, pod_class)}; the cluster has no node"
        )
    causes = _causes(pod_class, bench, board, filters, refused, within)
    fit = board.total(within, most=count)
    sentence = no_room(what(count, pod_class), fit=fit, total=total, refused=causes, where=where)
    if never:
        return Reason.NO_FEASIBLE_NODE, cut(f"{sentence}; {never}")
    return Reason.INSUFFICIENT_RESOURCES, sentence


def never_fits(pod_class: PodClass, bench: Workbench, allowed: Bools) -> str:
    """Why no node could take one such pod even if it were empty; empty when one could."""
    columns = bench.nodes
    if len(columns) == 0:
        return ""
    if not allowed.any():
        return "no node is allowed for it"
    for name, amount in pod_class.requests.items:
        column = columns.columns.get(name)
        if not amount:
            continue
        largest = int(columns.allocatable[allowed, column].max()) if column is not None else 0
        if amount > largest:
            have = format_quantity(largest, resource=name)
            return f"no allowed node offers more than {have} {name}"
    return ""


def _causes(
    pod_class: PodClass,
    bench: Workbench,
    board: Board,
    filters: Sequence[Filter],
    refused: Sequence[Bools],
    within: Bools | None,
) -> list[tuple[int, str]]:
    left = np.ones(len(bench.nodes), dtype=np.bool_) if within is None else within.copy()
    causes: list[tuple[int, str]] = []
    for each, mask in zip(filters, refused, strict=True):
        hit = left & mask
        if hit.any():
            causes.append((int(hit.sum()), each.reason))
        left &= ~mask
    full = left & (board.fits == 0)
    for name, amount in pod_class.requests.items:
        column = bench.nodes.columns.get(name)
        if not amount:
            continue
        if column is None:
            causes.append((int(full.sum()), f"have no {name}"))
            continue
        short_rows = full & (bench.nodes.allocatable[:, column] - bench.used[:, column] < amount)
        if short_rows.any():
            label = "room for another pod" if name == PODS else f"enough {name} free"
            causes.append((int(short_rows.sum()), f"have not {label}"))
    return sorted(causes, key=lambda cause: (-cause[0], cause[1]))
