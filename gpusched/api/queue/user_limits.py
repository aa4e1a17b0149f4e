"""Limits of users and groups inside a queue: what each may hold, run and have waiting.

Gangs whose creator is not known count together, as those of one user without a name: leaving the
name out frees from no limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from gpusched.api.meta.identity import Creator
from gpusched.api.meta.resources import NOTHING, Resources
from gpusched.base.classes import frozen

UNKNOWN_USER: Final = ""
"""The user of gangs whose creator is not known."""
RUNNING_GANGS: Final = "running gangs"
"""What an account has of ``maxRunning`` where that is counted beside resources; no resource has such a name."""


@frozen(slots=True, kw_only=True)
class UserLimit:
    """The most that one user, or all users of one group together, may have in a queue and below it.

    Attributes:
        resources: held at a time; a resource that is not named has no limit.
        max_running, max_pending: gangs that run, and gangs that wait in line; None for no limit.
    """

    resources: Resources = NOTHING
    max_running: int | None = None
    max_pending: int | None = None

    def __bool__(self) -> bool:
        """Whether it limits anything."""
        return bool(self.resources.items) or (self.max_running, self.max_pending) != (None, None)


NO_USER_LIMIT: Final = UserLimit()
_NOBODY: Final[Mapping[str, UserLimit]] = MappingProxyType({})


@frozen(slots=True, kw_only=True)
class UserLimits:
    """Limits by user and by group of a queue.

    Attributes:
        per_user: of each user that has no entry of its own.
        users, groups: by name.
    """

    per_user: UserLimit = NO_USER_LIMIT
    users: Mapping[str, UserLimit] = _NOBODY
    groups: Mapping[str, UserLimit] = _NOBODY

    def __bool__(self) -> bool:
        """Whether it limits anybody."""
        return bool(self.per_user or self.users or self.groups)

    @property
    def limits_lines(self) -> bool:
        """Whether it limits how many gangs of anybody stand in line."""
        those = (self.per_user, *self.users.values(), *self.groups.values())
        return any(each.max_pending is not None for each in those)

    def of_creator(self, creator: Creator) -> Iterator[tuple[str, str, UserLimit]]:
        """``user`` or ``group``, the name and the limit, of all that hold for a creator's gangs."""
        limit = self.users.get(creator.user, self.per_user)
        if limit:
            yield "user", creator.user, limit
        for group in creator.groups:
            limit = self.groups.get(group, NO_USER_LIMIT)
            if limit:
                yield "group", group, limit


NO_USER_LIMITS: Final = UserLimits()


def account_of(queue: str, kind: str, name: str) -> str:
    """Name of the account in which a queue counts what a user or group has; no queue has such a name.

    Args:
        queue: name of the queue.
        kind: ``user`` or ``group``.
        name: of the user or group.
    """
    return f"{queue}/{kind}/{name}"


def user_accounts(queue: str, limits: UserLimits, creator: Creator) -> Iterator[str]:
    """Names of the accounts of a queue that limits users in which gangs of a creator are counted."""
    yield account_of(queue, "user", creator.user)
    for group in creator.groups:
        if group in limits.groups:
            yield account_of(queue, "group", group)
