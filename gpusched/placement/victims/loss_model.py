"""Limits on what queues lose, as inequalities over the bundles that a solver picks."""

from __future__ import annotations

from typing import Any

from gpusched.placement.victims.loss_limits import Amount, BundleLoss, LossLimits, LossRight


def add_loss_limits(
    model: Any, leaves: list[Any], limits: LossLimits, losses: tuple[BundleLoss, ...]
) -> None:
    """Add all limits to a model.

    Args:
        model: of CP-SAT.
        leaves: whether each bundle is picked.
        limits: what queues may lose.
        losses: what each bundle takes.
    """
    _LossModel(model, leaves, losses).add(limits)


class _LossModel:
    def __init__(self, model: Any, leaves: list[Any], losses: tuple[BundleLoss, ...]) -> None:
        self._model = model
        self._leaves = leaves
        self._losses = losses
        self._inside: dict[int, list[int]] = {}
        for number, each in enumerate(losses):
            for account in each.accounts:
                self._inside.setdefault(account, []).append(number)
        self._sums: dict[tuple[int, int], Any] = {}

    def add(self, limits: LossLimits) -> None:
        """Add the limits, see ``add_loss_limits``."""
        self._free_amounts(limits.frees)
        for account, column, amount in limits.most:
            if self._largest_loss(account, column) > amount:
                self._model.add(self._total_loss(account, column) <= amount)
        for side, rights in enumerate(limits.sides):
            members = [n for n, each in enumerate(self._losses) if each.side == side]
            if not members:
                continue
            chosen = [self._model.new_bool_var("") for _ in rights]
            self._model.add_at_most_one(chosen)
            for number in members:
                self._model.add(self._leaves[number] <= sum(chosen))
            for literal, right in zip(chosen, rights, strict=True):
                self._free_amounts(right.frees, literal)
                self._limit_excess(right, members, literal)
                self._forbid_returns(right, members, literal)

    def _free_amounts(self, frees: tuple[Amount, ...], *enforced: Any) -> None:
        for account, column, amount in frees:
            if amount > 0:
                rule = self._model.add(self._total_loss(account, column) >= amount)
                if enforced:
                    rule.only_enforce_if(*enforced)

    def _largest_loss(self, account: int, column: int) -> int:
        return sum(self._losses[n].taken[column] for n in self._inside.get(account, ()))

    def _total_loss(self, account: int, column: int) -> Any:
        """What an account loses in all, as one variable."""
        known = self._sums.get((account, column))
        if known is None:
            known = self._model.new_int_var(0, self._largest_loss(account, column), "")
            self._sums[account, column] = known
            self._model.add(known == self._taken_amount(self._inside.get(account, []), column))
        return known

    def _taken_amount(self, numbers: list[int], column: int) -> Any:
        return sum(
            self._losses[n].taken[column] * self._leaves[n]
            for n in numbers
            if self._losses[n].taken[column]
        )

    def _limit_excess(self, right: LossRight, members: list[int], literal: Any) -> None:
        """All but the last step of an account take less than what it holds too much."""
        model, leaves, losses = self._model, self._leaves, self._losses
        for account, over in right.above:
            inside = [n for n in members if account in losses[n].accounts]
            for judged in sorted({losses[n].judged for n in inside}):
                alike = [n for n in inside if losses[n].judged == judged]
                columns = [column for column in judged if over[column] > 0]
                if any(sum(losses[n].taken[c] for n in alike) <= over[c] for c in columns):
                    continue  # all of them together take no more than that
                by = [literal] if len(columns) == 1 else [model.new_bool_var("") for _ in columns]
                if len(columns) != 1:
                    for number in alike:
                        model.add(leaves[number] <= sum(by) + literal.negated())
                for column, enforced in zip(columns, by, strict=True):
                    rest = self._taken_amount(alike, column) - self._largest_last_step(
                        alike, column
                    )
                    model.add(rest <= over[column] - 1).only_enforce_if([literal, enforced])

    def _largest_last_step(self, numbers: list[int], column: int) -> Any:
        """At most what the largest last step takes of those that are picked."""
        sizes: dict[int, list[int]] = {}
        for number in numbers:
            sizes.setdefault(self._losses[number].last[column], []).append(number)
        total: Any = 0
        reaching: list[int] = []
        ordered = sorted(sizes, reverse=True)
        for size, smaller in zip(ordered, [*ordered[1:], 0], strict=True):
            reaching += sizes[size]
            reached = self._model.new_bool_var("")
            self._model.add(reached <= sum(self._leaves[number] for number in reaching))
            total += (size - smaller) * reached
        return total

    def _forbid_returns(self, right: LossRight, members: list[int], literal: Any) -> None:
        """No gang could claim back what it loses."""
        gangs: dict[int, list[int]] = {}
        for number in members if right.returns else ():
            gangs.setdefault(self._losses[number].gang, []).append(number)
        for _, numbers in sorted(gangs.items()):
            first = self._losses[numbers[0]]
            own = [(a, over) for a, over in right.returns if a in first.accounts]
            ways = [
                (account, column, over[column])
                for account, over in own
                for column in first.judged
                if over[column] > 0
            ]
            if any(self._never_more(a, c, limit, numbers) for a, c, limit in ways) or not own:
                continue
            by = [self._model.new_bool_var("") for _ in ways]
            for number in numbers:
                self._model.add(self._leaves[number] <= sum(by) + literal.negated())
            for (account, column, limit), enforced in zip(ways, by, strict=True):
                others = self._total_loss(account, column) - self._taken_amount(numbers, column)
                self._model.add(others <= limit - 1).only_enforce_if([literal, enforced])

    def _never_more(self, account: int, column: int, limit: int, numbers: list[int]) -> bool:
        """Whether others than these could not lose so much."""
        own = set(numbers)
        others = [n for n in self._inside.get(account, ()) if n not in own]
        return sum(self._losses[n].taken[column] for n in others) < limit
