"""Limits on what queues lose by a choice of victims: ints by account and column.

An account is a queue with all below it; a column is an amount of a resource. What is lost goes in
steps: single members first, then the rest of a gang at once. A queue that holds more than it is
due gives step by step while it still holds more, so that the last step may be larger than what
it holds too much.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from gpusched.base.classes import frozen

Amount = tuple[int, int, int]
"""Account, column and amount."""
ByAccount = Mapping[int, tuple[int, ...]]
"""Amounts by column, of each account that is named."""


@frozen(slots=True)
class LossRight:
    """A right by which may be taken from queues of one side.

    Attributes:
        frees: at least so much must be freed in these accounts by the same choice.
        above: by account, how much it holds too much in each column: a step may go while less
            than that is gone in some column by which the step is judged.
        returns: by account, how much less it may hold at most without what one gang loses: for
            each gang this must hold for some account and column of its own. A gang that has no
            such account loses without it.
        looked_up: of ``above`` and ``returns``, which are empty then, where amounts are worked out when an account is looked at.
    """

    frees: tuple[Amount, ...] = ()
    above: tuple[tuple[int, tuple[int, ...]], ...] = ()
    returns: tuple[tuple[int, tuple[int, ...]], ...] = ()
    looked_up: tuple[ByAccount, ByAccount] | None = None

    @cached_property
    def above_of(self) -> ByAccount:
        """What ``above`` says, by account."""
        return dict(self.above) if self.looked_up is None else self.looked_up[0]

    @cached_property
    def returns_of(self) -> ByAccount:
        """What ``returns`` says, by account."""
        return dict(self.returns) if self.looked_up is None else self.looked_up[1]


@frozen(slots=True)
class LossLimits:
    """What a choice of victims must respect beside the room that it makes.

    Attributes:
        frees: at least so much must be freed in these accounts.
        most: never more than this is lost in these accounts.
        sides: the rights of each side, of which one must hold where anything of it is taken.
    """

    frees: tuple[Amount, ...] = ()
    most: tuple[Amount, ...] = ()
    sides: tuple[tuple[LossRight, ...], ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing is limited."""
        return not (self.frees or self.most or self.sides)

    @cached_property
    def most_of(self) -> Mapping[int, Sequence[tuple[int, int]]]:
        """Columns and amounts of ``most``, by account."""
        found: dict[int, list[tuple[int, int]]] = {}
        for account, column, amount in self.most:
            found.setdefault(account, []).append((column, amount))
        return found


NO_LIMITS = LossLimits()


@frozen(slots=True)
class BundleLoss:
    """What a bundle takes, as the limits see it.

    Attributes:
        side: number of its side; -1 for one that needs no right.
        accounts: that are charged less, from the leaf up.
        judged: columns by which its steps are judged.
        taken: amounts by column.
        last: of these, what its last step takes.
        gang: number of the gang that it is of.
    """

    side: int = -1
    gang: int = -1
    accounts: tuple[int, ...] = ()
    judged: tuple[int, ...] = ()
    taken: tuple[int, ...] = ()
    last: tuple[int, ...] = ()

    def of_gang(self, gang: int) -> BundleLoss:
        """The same loss, of a gang of this number."""
        return BundleLoss(self.side, gang, self.accounts, self.judged, self.taken, self.last)


NO_LOSS = BundleLoss()


def limits_hold(limits: LossLimits, losses: Sequence[BundleLoss]) -> bool:
    """Whether these may be lost together, in the order that suits best."""
    lost = lost_amounts(losses)
    if not is_freed(limits.frees, lost):
        return False
    if any(_lost_amount(lost, account, column) > amount for account, column, amount in limits.most):
        return False
    return all(
        any(_right_holds(right, side, losses, lost) for right in limits.sides[side])
        for side in sorted({each.side for each in losses if each.side >= 0})
    )


def lost_amounts(losses: Iterable[BundleLoss]) -> dict[int, list[int]]:
    """Amounts lost by column, for each account."""
    lost: dict[int, list[int]] = {}
    for each in losses:
        add_loss(lost, each.accounts, each.taken)
    return lost


def add_loss(
    lost: dict[int, list[int]], accounts: Iterable[int], taken: Sequence[int], sign: int = 1
) -> None:
    """Charge a loss to accounts, or take it back."""
    for account in accounts:
        known = lost.setdefault(account, [0] * len(taken))
        for column, amount in enumerate(taken):
            known[column] += sign * amount


def may_go_next(limits: LossLimits, lost: Mapping[int, Sequence[int]], each: BundleLoss) -> bool:
    """Whether a bundle may go after what is lost already."""
    if not _leaves_enough(limits, lost, each):
        return False
    return each.side < 0 or any(
        is_freed(right.frees, lost) and _right_lets_go(right, lost, each)
        for right in limits.sides[each.side]
    )


def may_go_ever(limits: LossLimits, lost: Mapping[int, Sequence[int]], each: BundleLoss) -> bool:
    """Whether a bundle may go after what is lost already, or may once more is lost."""
    if not _leaves_enough(limits, lost, each):
        return False
    rights = limits.sides[each.side] if each.side >= 0 else ()
    return each.side < 0 or any(_right_lets_go(right, lost, each) for right in rights)


def _leaves_enough(limits: LossLimits, lost: Mapping[int, Sequence[int]], each: BundleLoss) -> bool:
    """Whether no account loses more than it may at most."""
    for account in each.accounts:
        for column, amount in limits.most_of.get(account, ()):
            if _lost_amount(lost, account, column) + each.taken[column] > amount:
                return False
    return True


def _right_lets_go(right: LossRight, lost: Mapping[int, Sequence[int]], each: BundleLoss) -> bool:
    """Whether each account of a bundle still holds too much before its last step."""
    for account in each.accounts:
        over = right.above_of.get(account)
        if over is None:
            continue
        for column in each.judged:
            before_last = each.taken[column] - each.last[column]
            if _lost_amount(lost, account, column) + before_last < over[column]:
                break
        else:
            return False
    return True


def is_stricter(limits: LossLimits, known: LossLimits) -> bool:
    """Whether limits of the same shape allow nothing that known ones did not."""
    if len(limits.sides) != len(known.sides) or not _amounts_within(limits.most, known.most):
        return False
    if not _amounts_within(known.frees, limits.frees):
        return False
    for side, before in zip(limits.sides, known.sides, strict=True):
        if len(side) != len(before):
            return False
        for right, old in zip(side, before, strict=True):
            if not _amounts_within(old.frees, right.frees):
                return False
            for ours, theirs in ((right.above, old.above), (right.returns, old.returns)):
                if ours is theirs:
                    continue
                if [account for account, _ in ours] != [account for account, _ in theirs]:
                    return False
                for (_, over), (_, was) in zip(ours, theirs, strict=True):
                    if over is not was and any(a > b for a, b in zip(over, was, strict=True)):
                        return False
    return True


@frozen(slots=True)
class LooserParts:
    """Parts of limits that may allow more than before.

    Attributes:
        sides: all whose victims may be taken by a right that they were not taken by.
        accounts: of a side, or of any (-1), in which more may be lost.
    """

    sides: frozenset[int]
    accounts: frozenset[tuple[int, int]]


def looser_parts(limits: LossLimits, known: LossLimits, reach: Sequence[int]) -> LooserParts | None:
    """What limits may allow, of losses of one node, that known ones did not; None where all may differ.

    Args:
        limits: that hold now.
        known: that held before.
        reach: no more than this can be lost on one node, by column. What is further away than this
            allows as much as it did.
    """
    if not _are_about_the_same(limits, known):
        return None
    accounts = {
        (-1, account)
        for (account, column, amount), (_, _, was) in zip(limits.most, known.most, strict=True)
        if was < min(amount, reach[column])
    }
    sides = set[int]()
    for side, (rights, before) in enumerate(zip(limits.sides, known.sides, strict=True)):
        for right, old in zip(rights, before, strict=True):
            if any(
                max(0, amount) < min(was, reach[column] + 1)
                for (_, column, amount), (_, _, was) in zip(right.frees, old.frees, strict=True)
            ):
                sides.add(side)
            accounts |= {(side, account) for account in _looser_accounts(right, old, reach)}
    return LooserParts(frozenset(sides), frozenset(accounts))


def _looser_accounts(right: LossRight, old: LossRight, reach: Sequence[int]) -> list[int]:
    """Accounts in which more may be lost by a right than before."""
    if right.above is old.above:
        return []
    return [
        account
        for (account, over), (_, was_over) in zip(right.above, old.above, strict=True)
        if over is not was_over
        and any(
            was <= most and was < amount
            for amount, was, most in zip(over, was_over, reach, strict=True)
        )
    ]


def _are_about_the_same(limits: LossLimits, known: LossLimits) -> bool:
    """Whether limits name the same accounts and columns, whatever their amounts."""
    if [each[:2] for each in limits.most] != [each[:2] for each in known.most]:
        return False
    if [len(side) for side in limits.sides] != [len(side) for side in known.sides]:
        return False
    return all(
        [each[:2] for each in right.frees] == [each[:2] for each in old.frees]
        and (
            right.above is old.above
            or [account for account, _ in right.above] == [account for account, _ in old.above]
        )
        for side, before in zip(limits.sides, known.sides, strict=True)
        for right, old in zip(side, before, strict=True)
    )


def _amounts_within(some: Sequence[Amount], others: Sequence[Amount]) -> bool:
    return [each[:2] for each in some] == [each[:2] for each in others] and all(
        one[2] <= other[2] for one, other in zip(some, others, strict=True)
    )


def _right_holds(
    right: LossRight, side: int, losses: Sequence[BundleLoss], lost: Mapping[int, Sequence[int]]
) -> bool:
    if not is_freed(right.frees, lost):
        return False
    ours = [each for each in losses if each.side == side]
    for account in sorted({a for each in ours for a in each.accounts}):
        over = right.above_of.get(account)
        if over is None:
            continue
        inside = [each for each in ours if account in each.accounts]
        for judged in sorted({each.judged for each in inside}):
            alike = [each for each in inside if each.judged == judged]
            if not any(
                sum(each.taken[column] for each in alike) - max(each.last[column] for each in alike)
                < over[column]
                for column in judged
            ):
                return False
    return _stays_gone(right, ours, lost)


def _stays_gone(
    right: LossRight, losses: Sequence[BundleLoss], lost: Mapping[int, Sequence[int]]
) -> bool:
    """Whether no gang could claim back what it loses."""
    gangs: dict[int, list[BundleLoss]] = {}
    for each in losses if right.returns_of else ():
        gangs.setdefault(each.gang, []).append(each)
    for _, parts in sorted(gangs.items()):
        known = right.returns_of
        own = [(a, known[a]) for a in parts[0].accounts if a in known]
        if own and not any(
            _lost_amount(lost, account, column) - sum(each.taken[column] for each in parts)
            < over[column]
            for account, over in own
            for column in parts[0].judged
        ):
            return False
    return True


def is_freed(frees: Iterable[Amount], lost: Mapping[int, Sequence[int]]) -> bool:
    """Whether so much is lost in these accounts."""
    return all(_lost_amount(lost, account, column) >= amount for account, column, amount in frees)


def _lost_amount(lost: Mapping[int, Sequence[int]], account: int, column: int) -> int:
    amounts = lost.get(account)
    return amounts[column] if amounts else 0
