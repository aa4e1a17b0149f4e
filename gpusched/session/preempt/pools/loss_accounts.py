"""What policies let queues lose, as ints for the search of victims: accounts, columns and steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from gpusched.api.meta.identity import GangKey
from gpusched.api.meta.resources import Resources
from gpusched.api.pod.pod import PodClass
from gpusched.base.classes import define
from gpusched.cache.gangs.gang import Gang
from gpusched.placement.victims.loss_limits import (
    NO_LIMITS,
    Amount,
    BundleLoss,
    LossLimits,
    LossRight,
)
from gpusched.session.framework.proposal import EvictionLimits, EvictionRight
from gpusched.session.state.session import Session

ROOT = "root"
NO_AMOUNTS: tuple[int, ...] = ()
_Above = tuple[tuple[str, Resources], ...]
"""Queues, and amounts above which each gives."""
_Over = tuple[int, tuple[int, ...]]
"""An account, and by column how much it holds above its limits."""


@define(eq=False)
class _KnownAmounts:
    """How much queues hold above limits.

    Attributes:
        above: the queues, and what they are held to.
        places: of each queue among them.
        held: what they held.
        over: numbers of the queues, and how much above it was.
        seen: how many moves of accounts were looked at.
    """

    above: _Above
    places: dict[str, list[int]]
    held: list[Resources]
    over: tuple[_Over, ...]
    seen: int


class AmountsAbove:
    """How much queues hold above limits: worked out once for all claimants whose limits are the same.

    Args:
        session: looked at as it will be.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._numbers: dict[str, int] = {}
        self._paths: dict[str, tuple[int, ...]] = {}
        self._losses: dict[BundleLoss, BundleLoss] = {}
        self._known: dict[tuple[int, tuple[str, ...], int], _KnownAmounts] = {}
        """By the id of what queues are held to, and columns."""
        self._moved: tuple[int, int, set[str]] = (0, 0, set())
        """Accounts that moved between two moments, which most limits are asked for."""
        self._looked_up: dict[tuple[int, tuple[str, ...], int], _OverByAccount] = {}
        self._moves = _AccountMoves(session.queue_accounts.moved)

    def account_number(self, queue: str) -> int:
        """The number of a queue with all below it, the same for all claimants."""
        return self._numbers.setdefault(queue, len(self._numbers))

    def account_path(self, queue: str) -> tuple[int, ...]:
        """Accounts that are charged with what is of a queue, from the leaf up."""
        known = self._paths.get(queue)
        if known is None:
            node = self._session.snapshot.queues.get(queue)
            names = (*(node.path if node is not None else ()), ROOT)
            known = self._paths[queue] = tuple([self.account_number(name) for name in names])
        return known

    def shared_loss(self, loss: BundleLoss) -> BundleLoss:
        """The first loss that is equal to this one: claimants of dozens of classes look at the same queues."""
        return self._losses.setdefault(loss, loss)

    def by_column(self, above: _Above, judging: tuple[str, ...], width: int) -> tuple[_Over, ...]:
        """Amounts of each queue, 0 where it does not name a resource; the same object where nothing moved.

        Args:
            above: queues, and amounts above which each gives.
            judging: resources of the first columns.
            width: columns, of which those behind ``judging`` are 0.
        """
        about = (id(above), judging, width)
        staying, now = self._session.view.staying, len(self._session.queue_accounts.moved)
        known = self._known.get(about)
        if known is None:
            held = [staying(queue) for queue, _ in above]
            first = tuple(
                (self.account_number(queue), _amounts_above(limits, amounts, judging, width))
                for (queue, limits), amounts in zip(above, held, strict=True)
            )
            places: dict[str, list[int]] = {}
            for number, (queue, _) in enumerate(above):
                places.setdefault(queue, []).append(number)
            self._known[about] = _KnownAmounts(above, places, held, first, now)
            return first
        before, known.seen = known.seen, now
        others: dict[int, _Over] = {}
        for queue in self._moved_between(before, now) & known.places.keys():
            amounts = staying(queue)
            for number in known.places[queue]:
                if amounts != known.held[number]:
                    known.held[number] = amounts
                    over = _amounts_above(above[number][1], amounts, judging, width)
                    others[number] = (known.over[number][0], over)
        if others:
            known.over = tuple([others.get(n, was) for n, was in enumerate(known.over)])
        return known.over

    def by_account(
        self, above: _Above, judging: tuple[str, ...], width: int
    ) -> Mapping[int, tuple[int, ...]]:
        """The same, worked out for the accounts that are looked at, as they are at that moment."""
        about = (id(above), judging, width)
        known = self._looked_up.get(about)
        if known is None:
            numbers = [self.account_number(queue) for queue, _ in above]
            known = self._looked_up[about] = _OverByAccount(
                above,
                numbers,
                self._session.view.staying,
                self._moves,
                judging=judging,
                width=width,
            )
        return known

    def _moved_between(self, begin: int, end: int) -> set[str]:
        """Accounts that moved between two moments."""
        if self._moved[:2] != (begin, end):
            self._moved = (begin, end, set(self._session.queue_accounts.moved[begin:end]))
        return self._moved[2]


class _AccountMoves:
    """When accounts moved last.

    Args:
        log: names of accounts as they move.
    """

    def __init__(self, log: Sequence[str]) -> None:
        self._log = log
        self._moved_at: dict[str, int] = {}
        self._seen = len(log)

    def moved_at(self, queue: str) -> int:
        """When the account of a queue moved last, as a number of moves."""
        if self._seen < len(self._log):
            for number in range(self._seen, len(self._log)):
                self._moved_at[self._log[number]] = number
            self._seen = len(self._log)
        return self._moved_at.get(queue, -1)


class _OverByAccount(Mapping[int, tuple[int, ...]]):
    """The same amounts by account, each worked out when it is looked at: a choice looks at some dozens of hundreds.

    Args:
        above: queues, and amounts above which each gives.
        numbers: of the accounts of these queues.
        staying: what a queue holds once pods that leave are gone.
        moves: of accounts.
        judging: resources of the first columns.
        width: columns.
    """

    def __init__(
        self,
        above: _Above,
        numbers: Sequence[int],
        staying: Callable[[str], Resources],
        moves: _AccountMoves,
        *,
        judging: tuple[str, ...],
        width: int,
    ) -> None:
        self.above = above  # as long as this is here no other gets its id
        self._moves = moves
        self._staying = staying
        self._width = width
        self._of = {
            number: (
                queue,
                [
                    (judging.index(name), name, most)
                    for name, most in limits.items
                    if name in judging
                ],
            )
            for number, (queue, limits) in zip(numbers, above, strict=True)
        }
        self._known: dict[int, tuple[int, tuple[int, ...]]] = {}

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[int]:
        return iter(self._of)

    def __contains__(self, account: object) -> bool:
        return account in self._of

    def __getitem__(self, account: int) -> tuple[int, ...]:
        queue, limited = self._of[account]
        moved, known = self._moves.moved_at(queue), self._known.get(account)
        if known is not None and known[0] == moved:
            return known[1]
        held, over = dict(self._staying(queue).items), [0] * self._width
        for column, name, most in limited:
            over[column] = max(0, held.get(name, 0) - most)
        found = tuple(over)
        self._known[account] = (moved, found)
        return found

    def get(self, account: int, default: Any = None) -> Any:
        """As that of any mapping, without the cost of an exception."""
        return self[account] if account in self._of else default


def _amounts_above(
    limits: Resources, held: Resources, judging: Sequence[str], width: int
) -> tuple[int, ...]:
    over = [0] * width
    for name, amount in limits.items:
        if name in judging:
            over[judging.index(name)] = max(0, held.get(name) - amount)
    return tuple(over)


class LossAccounts:
    """Accounts of all queues that a claimant's victims may be of, and the limits on them.

    An account is a queue with all below it. Columns are the resources by which steps are judged,
    then all that is limited in another manner.

    Args:
        session: looked at as it will be.
        claimant: one of its class; policies are asked about it.
        action: ``preempt`` or ``reclaim``.
        queues: of all possible victims.
        above: what queues hold above limits, for claimants of the session.
    """

    def __init__(
        self,
        session: Session,
        claimant: Gang,
        action: str,
        queues: Iterable[str],
        above: AmountsAbove,
    ) -> None:
        self._session = session
        self._action = action
        self._queues = tuple(sorted(queues))
        self._side: dict[str, int] = {}
        self._judging: dict[str, int] = {}
        self._counted: dict[str, int] = {}
        self._groups: tuple[tuple[str, ...], ...] = ()
        self._vectors: dict[str, tuple[int, ...]] = {}
        self._gangs: dict[GangKey, int] = {}
        self._losses: dict[tuple[int, ...], dict[str, BundleLoss]] = {}
        """By what is taken and queue."""
        self._judged: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._above = above
        self.known = bool(session.hooks.limits_of) or not session.hooks.reclaim_gates
        """Whether policies say all that they ask for in amounts."""
        self._said = self._ask_limits(claimant)
        self._limits: LossLimits | None = None
        self._name_columns(claimant, self._said)
        self._forget_unknown()

    def _ask_limits(self, claimant: Gang) -> list[EvictionLimits]:
        hooks = self._session.hooks
        answers = [of(claimant, self._action, self._queues) for of in hooks.limits_of]
        found = [each for each in answers if each is not None]
        self.known = self.known and len(found) == len(answers)
        return found

    def _name_columns(self, claimant: Gang, said: Sequence[EvictionLimits]) -> None:
        counted: dict[str, None] = {}
        judging: dict[str, None] = {}
        for each in said:
            self._groups = self._groups or each.decide
            judging.update(dict.fromkeys(name for group in each.decide for name in group))
            for _, kept in each.keeps:
                counted.update(dict.fromkeys(name for name, _ in kept.items))
            for number, (leaves, _) in enumerate(each.sides):
                self._side.update(dict.fromkeys(sorted(leaves), number))
        asked = self._session.view.minimum(claimant)
        counted.update(dict.fromkeys(name for name, amount in asked.items if amount))
        self._judging = {name: column for column, name in enumerate(judging)}
        self._counted = {name: len(judging) + column for column, name in enumerate(counted)}

    def renew_limits(self, claimant: Gang) -> None:
        """Ask policies again: what is held changes with every claim."""
        self._said, self._limits = self._ask_limits(claimant), None
        self._forget_unknown()

    def _forget_unknown(self) -> None:
        """A policy that failed once is not asked by amounts: no side of it is known either."""
        if not self.known:
            self._side.clear()
            self._losses.clear()

    @property
    def limits(self) -> LossLimits:
        """What queues may lose: as accounts are when this is asked for first since the limits were renewed."""
        return self.settle_limits()

    def settle_limits(self) -> LossLimits:
        """Work out limits that were renewed, for all accounts, before something moves."""
        if self._limits is None:
            self._limits = self._limits_of(self._said, self._loss_right)
        return self._limits

    def limits_looked_up(self) -> LossLimits:
        """The same for a choice that looks at few accounts, as long as nothing moves."""
        if self._limits is not None:
            return self._limits
        return self._limits_of(self._said, self._right_looked_up)

    def limits_now(self, claimant: Gang) -> LossLimits:
        """What policies say of a claimant now; what was said before stays."""
        said = self._ask_limits(claimant)
        self._forget_unknown()
        return self._limits_of(said, self._loss_right)

    def _limits_of(
        self, said: Sequence[EvictionLimits], right_of: Callable[[EvictionRight], LossRight]
    ) -> LossLimits:
        if not self.known:
            return NO_LIMITS
        frees: list[Amount] = []
        most: list[Amount] = []
        sides: tuple[tuple[LossRight, ...], ...] = ()
        staying = self._session.view.staying
        for each in said:
            frees += self._freed_amounts(each.frees)
            for queue, kept in each.keeps:
                held = staying(queue)
                most += [
                    (
                        self._account_number(queue),
                        self._counted[name],
                        max(0, held.get(name) - amount),
                    )
                    for name, amount in kept.items
                    if name in self._counted
                ]
            if each.sides:
                sides = tuple(
                    tuple(right_of(right) for right in rights) for _, rights in each.sides
                )
        return LossLimits(tuple(frees), tuple(most), sides)

    def _loss_right(self, right: EvictionRight) -> LossRight:
        return LossRight(
            tuple(self._freed_amounts(right.frees)),
            self._amounts_above(right.above),
            self._amounts_above(right.returns),
        )

    def _right_looked_up(self, right: EvictionRight) -> LossRight:
        width, judging = len(self._judging) + len(self._counted), tuple(self._judging)
        above, returns = (
            self._above.by_account(some, judging, width) if some else {}
            for some in (right.above, right.returns)
        )
        return LossRight(tuple(self._freed_amounts(right.frees)), looked_up=(above, returns))

    def _amounts_above(self, above: _Above) -> tuple[_Over, ...]:
        """How much queues hold above limits, by column; 0 where they do not name a resource."""
        if not above:
            return ()
        width = len(self._judging) + len(self._counted)
        return self._above.by_column(above, tuple(self._judging), width)

    def _freed_amounts(self, frees: Iterable[tuple[str, str, int]]) -> list[Amount]:
        return [
            (self._account_number(queue), self._counted[name], amount)
            for queue, name, amount in frees
            if name in self._counted
        ]

    def _account_number(self, queue: str) -> int:
        return self._above.account_number(queue)

    # -- what leaves -------------------------------------------------------------------------
    def taken_with(self, pod_class: PodClass) -> tuple[int, ...]:
        """What is taken from the accounts of its queue when a member of a class leaves, by column."""
        known = self._vectors.get(pod_class.digest)
        if known is None:
            known = self._vectors[pod_class.digest] = self._amount_vector(pod_class.charged)
        return known

    def _amount_vector(self, requests: Resources) -> tuple[int, ...]:
        amounts = [0] * (len(self._judging) + len(self._counted))
        for group in self._groups:
            if any(requests.get(name) for name in group):
                for name in group:
                    amounts[self._judging[name]] = requests.get(name)
                break
        for name, column in self._counted.items():
            amounts[column] = requests.get(name)
        return tuple(amounts)

    def bundle_loss(self, gang: Gang, steps: Sequence[Sequence[tuple[int, ...]]]) -> BundleLoss:
        """What is lost when a gang loses these steps, each of some members' amounts."""
        number = self._gangs.setdefault(gang.key, len(self._gangs))
        if len(steps) != 1 or len(steps[0]) != 1:
            sums = [tuple(map(sum, zip(*step, strict=True))) for step in steps]
            taken = tuple(map(sum, zip(*sums, strict=True))) if sums and sums[0] else NO_AMOUNTS
            return self._loss(number, gang.queue, taken, sums[-1] if sums else NO_AMOUNTS)
        return self.pod_loss(gang, steps[0][0]).of_gang(number)

    def pod_loss(self, gang: Gang, taken: tuple[int, ...]) -> BundleLoss:
        """What is lost with one pod, whatever gang of the queue it is of: thousands lose the same."""
        of_queue = self._losses.get(taken)
        if of_queue is None:
            of_queue = self._losses[taken] = {}
        known = of_queue.get(gang.queue)
        if known is None:
            loss = self._loss(-1, gang.queue, taken, taken)
            known = of_queue[gang.queue] = self._above.shared_loss(loss)
        return known

    def _loss(
        self, number: int, queue: str, taken: tuple[int, ...], last: tuple[int, ...]
    ) -> BundleLoss:
        """What is lost with these amounts, and with the last step of them."""
        side, accounts = self._side.get(queue, -1), self._above.account_path(queue)
        if not taken:
            return BundleLoss(side, number, accounts)
        return BundleLoss(side, number, accounts, self._judged_columns(taken), taken, last)

    def _judged_columns(self, taken: tuple[int, ...]) -> tuple[int, ...]:
        """Columns by which a step is judged that takes these amounts: of the first resources that it takes any of."""
        known = self._judged.get(taken)
        if known is None:
            known = NO_AMOUNTS
            for group in self._groups:
                known = tuple(c for name in group if taken[c := self._judging[name]])
                if known:
                    break
            self._judged[taken] = known
        return known
