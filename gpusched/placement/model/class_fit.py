"""One class of pods on all nodes: how many fit where, and which place is best.

A board is refreshed from the workbench's log of touched rows: after a placement only the
touched rows are computed again, so placing a pod costs the same on ten nodes and on thousands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import numpy as np

from gpusched.arrays.columns import Bools, Ints, RequestVector, how_many_fit
from gpusched.arrays.node_usage import NodeUsage


class Scores(Protocol):
    """Scores of nodes for one class, int64, larger is better; ties go to the lower row."""

    def of_rows(self, rows: Sequence[int]) -> Ints:
        """Scores of some rows."""

    def of_fitting(self, fit: Bools) -> Ints:
        """Scores of all rows, shape (nodes,); rows that do not fit may have any."""

    def are_alike(self) -> bool:
        """Whether rows that are alike have equal scores."""

    def of_alike(self, rows: Sequence[int] | Ints) -> Ints:
        """Scores of some rows by what counts alone where those of rows that are alike are equal."""


Caps = Callable[[Sequence[int] | slice, Ints], None]
"""Some rows and how many pods fit each, int64, to be lowered."""


class PodDependentRules(Protocol):
    """What of a class's rules depends on where other pods are."""

    @property
    def version(self) -> object:
        """Changes whenever the answers may have changed."""

    @property
    def once(self) -> bool:
        """Whether two of its pods never share a node."""

    def allowed_rows(self) -> Bools:
        """Where another pod may go as things stand, shape (nodes,)."""

    def row_points(self) -> Ints | None:
        """What to add to each row's score, shape (nodes,); None for nothing at all."""


_NEVER = np.int64(-(2**62))
_UNRANKED: Final[Ints] = np.full(0, _NEVER)
_FEW = 64
_GROUPS_TRIED = 4
"""Groups of nodes in the order of their scores, of which filters may refuse all."""
_PART = 4
"""Up to so many rows, or this part of all, are refreshed alone; beyond, all at once is cheaper."""


class ClassFit:
    """What one class of pods may do.

    Args:
        node_usage: moves under it.
        request: of one pod.
        allowed: bool, shape (nodes,): what filters allow.
        scores: rate rows; a lower row is a smaller node name.
        gate: for pods with rules about other pods: what these allow on top.
        caps: lowers how many fit some rows (None: all), in place, by what amounts do not say.
    """

    def __init__(
        self,
        node_usage: NodeUsage,
        ask: RequestVector,
        *,
        allowed: Bools,
        scores: Scores,
        gate: PodDependentRules | None = None,
        caps: Caps | None = None,
    ) -> None:
        self._caps = caps
        self.request = ask
        self.allowed = allowed if gate is None else allowed & gate.allowed_rows()
        self.fixed = allowed
        """The same without the gate."""
        self._gate = gate
        self._passed = None if gate is None else gate.version
        self._node_usage = node_usage
        self._scores = scores
        self._seen = 0
        self._fits: Ints | None = None
        self._first_look = True
        """Whether nobody asked who is best: most classes of many are asked for one place."""
        self._rank: Ints = _UNRANKED
        self._unranked: set[int] | None = None
        """Rows to be scored when somebody asks who is best; None for all."""

    @property
    def fits(self) -> Ints:
        """How many fit each row, int64, shape (nodes,); counted when somebody asks first."""
        if self._fits is None:
            self._seen = len(self._node_usage.touched_rows)
            self._fits = self._count_rows(slice(None), self.allowed)
        return self._fits

    @property
    def has_caps(self) -> bool:
        """Whether how many fit a node depends on more than amounts."""
        return self._caps is not None

    def refresh(self) -> None:
        """Take in what happened on the bench since the last look."""
        touched = self._node_usage.touched_rows
        turned = self._changed_gate_rows()
        fits = self._fits
        if fits is None or (self._seen == len(touched) and not turned):
            return
        new = touched[self._seen :]
        self._seen = len(touched)
        if len(new) == 1 and not turned and self._gate is None:
            self._refresh_row(fits, new[0])
            return
        rows = sorted({*new, *turned})
        few = max(_FEW, len(fits) // _PART)
        if len(rows) > few or (self._gate is not None and self._gate.row_points() is not None):
            self._fits = self._count_rows(slice(None), self.allowed)
            self._unranked = None
            return
        fits[rows] = self._count_rows(rows, self.allowed[rows])
        if self._unranked is not None:
            self._unranked.update(rows)

    def _refresh_row(self, fits: Ints, row: int) -> None:
        """The same after one move, as between pods that are placed one by one: in plain ints, which costs less."""
        if self._caps is not None or self.request.share is not None:
            fits[[row]] = self._count_rows([row], self.allowed[[row]])
        elif self.allowed[row] and not self.request.missing and self.request.amounts.size:
            free = self._node_usage.free_on(row, self.request.columns).tolist()
            pairs = zip(free, self.request.amounts.tolist(), strict=True)
            fits[row] = max(0, min([have // ask for have, ask in pairs]))
        if self._unranked is not None:
            self._unranked.add(row)

    def _changed_gate_rows(self) -> list[int]:
        """Rows on which the gate has changed its mind."""
        if self._gate is None or self._gate.version == self._passed:
            return []
        self._passed = self._gate.version
        allowed = self.fixed & self._gate.allowed_rows()
        turned: list[int] = np.flatnonzero(allowed != self.allowed).tolist()
        self.allowed = allowed
        return turned

    def _ranked(self) -> Ints:
        """Scores of all rows that fit, and less than any for the others.

        Rows are scored when somebody asks, and only those that fit: most nodes of a full cluster
        are full, and most classes of many are asked for once.
        """
        if self._unranked is None:
            self._rank = self._rank_rows()
        elif len(self._unranked) == 1:
            (row,) = self._unranked
            self._rank[row] = self._scores.of_rows([row])[0] if self.fits[row] > 0 else _NEVER
        elif self._unranked:
            rows = sorted(self._unranked)
            fits = self.fits[rows] > 0
            self._rank[rows] = _NEVER
            open_rows = [row for row, fit in zip(rows, fits.tolist(), strict=True) if fit]
            if open_rows:
                self._rank[open_rows] = self._scores.of_rows(open_rows)
        self._unranked = set()
        return self._rank

    def _rank_rows(self) -> Ints:
        fit = self.fits > 0
        scores = self._scores.of_fitting(fit)
        points = None if self._gate is None else self._gate.row_points()
        return np.where(fit, scores if points is None else scores + points, _NEVER)

    def best_row(self, within: Bools | None = None) -> int:
        """The row where the next pod goes, -1 when it fits nowhere.

        Args:
            within: only these rows, shape (nodes,).
        """
        if within is None and self._first_look:
            self._first_look = False
            row = self._best_of_groups() if self._fits is None else None
            if row is not None:
                return row
        fit = self.fits > 0 if within is None else within & (self.fits > 0)
        count = int(np.count_nonzero(fit))
        if count < 2:  # nothing to compare
            return int(fit.argmax()) if count else -1
        rank = self._ranked()
        return int((rank if within is None else np.where(within, rank, _NEVER)).argmax())

    def _best_of_groups(self) -> int | None:
        """The same where nodes that are alike are equally good; None where that is not known."""
        alike = self._node_usage.alike.few_groups()
        special = self._gate is not None or self._caps is not None or self.request.share is not None
        if alike is None or special:
            return None
        firsts, group = alike
        if self.request.missing:
            return -1
        left = self._node_usage.alike.with_room(self.request.columns, self.request.amounts)
        if not self._scores.are_alike():
            return None
        some, points = left.tolist(), self._scores.of_alike(firsts[left]).tolist()
        for _ in range(_GROUPS_TRIED):
            if not some:
                return -1
            best = max(points)
            numbers = [each for each, point in zip(some, points, strict=True) if point == best]
            row = self._first_allowed(firsts, group, numbers)
            if row >= 0:
                return row
            worse = [each for each in zip(some, points, strict=True) if each[1] != best]
            some, points = [each for each, _ in worse], [point for _, point in worse]
        return None

    def _first_allowed(self, firsts: Ints, group: Ints, numbers: Sequence[int]) -> int:
        """The first row of some groups that filters allow; -1 where there is none."""
        if len(numbers) == 1 and self._node_usage.alike.is_lone(numbers[0]):
            row = int(firsts[numbers[0]])
            return row if self.allowed[row] else -1
        rows = self.allowed & _in_groups(group, numbers)
        row = int(rows.argmax())
        return row if rows[row] else -1

    def by_rank(self, within: Bools | None = None) -> list[int]:
        """All rows where the next pod may go, best first."""
        fit = self.fits > 0 if within is None else within & (self.fits > 0)
        rows = np.flatnonzero(fit)
        ordered: list[int] = rows[np.argsort(-self._ranked()[rows], kind="stable")].tolist()
        return ordered

    def row_scores(self) -> Ints:
        """Scores of all rows as they stand, int64, shape (nodes,), larger is better.

        A row that takes none may have any.
        """
        return np.where(self.fits > 0, self._ranked(), 0)

    def count_fitting(self, within: Bools | None = None, *, most: int) -> int:
        """How many pods fit in all, counted up to ``most`` a node so that sums stay small."""
        fits = self.fits if within is None else np.where(within, self.fits, 0)
        return int(np.minimum(fits, most).sum())

    def count_beside(self, rows: Ints, spare: Ints) -> int:
        """How many pods fit in all where no more may be taken of some rows.

        Args:
            rows: of which no more may be taken, some of them more than once perhaps.
            spare: amounts that may be, shape (rows, resources).
        """
        if self.request.missing or not rows.size:
            return int(self.fits.sum())
        fits = self.fits.copy()
        beside = how_many_fit(spare[:, self.request.columns], self.request.amounts)
        np.minimum.at(fits, rows, beside)
        return int(fits.sum())

    def count_fitting_by_domain(
        self, domain: Ints, count: int, *, most: int, within: Bools | None = None
    ) -> list[int]:
        """How many pods fit in each domain, counted up to ``most`` a node.

        Args:
            domain: number of each row's domain, int64, shape (nodes,); negative for none.
            count: of domains.
            most: pods of a node that are counted.
            within: only these rows, bool, shape (nodes,); None for all.
        """
        rows = np.flatnonzero(domain >= 0 if within is None else (domain >= 0) & within)
        found = np.zeros(count, dtype=np.int64)
        np.add.at(found, domain[rows], np.minimum(self.fits[rows], most))
        return [int(each) for each in found]

    def _count_rows(self, rows: Sequence[int] | slice, allowed: Bools) -> Ints:
        if self.request.missing:
            return np.zeros(allowed.shape[0], dtype=np.int64)
        fits = self._count_by_amounts(rows)
        if self.request.share is not None:
            fits = np.minimum(fits, self._node_usage.shares_fit(rows, self.request))
        if self._gate is not None and self._gate.once:
            fits = np.minimum(fits, 1)
        fits = np.where(allowed, fits, 0)
        if self._caps is not None:
            self._caps(rows, fits)
        return fits

    def _count_by_amounts(self, rows: Sequence[int] | slice) -> Ints:
        """How many fit some rows as far as amounts tell: of nodes that are alike one is counted."""
        usage, ask = self._node_usage, self.request
        alike = usage.alike.few_groups() if isinstance(rows, slice) else None
        if alike is None:
            return how_many_fit(usage.free_amounts(rows, ask.columns), ask.amounts)
        return how_many_fit(usage.alike.free_amounts(ask.columns), ask.amounts)[alike[1]]


def _in_groups(group: Ints, numbers: Sequence[int]) -> Bools:
    """Rows of some groups, of which there are few as a rule."""
    rows: Bools = group == numbers[0]
    for number in numbers[1:]:
        rows |= group == number
    return rows
