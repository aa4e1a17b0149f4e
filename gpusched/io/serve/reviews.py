"""Who asks, and what that user may see: the API server's own answers, remembered for seconds.

Who may list pods of a namespace may see its gangs; who may list nodes, or queues, may see these.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, Generic, TypeVar

from gpusched.base import limits
from gpusched.base.classes import frozen
from gpusched.base.clock import Clock
from gpusched.base.errors import ClusterUnreachable, OutcomeUnknown
from gpusched.io.client.api_client import ApiClient
from gpusched.view.access import ViewAccess

T = TypeVar("T")
_GROUP: Final = "scheduling.gpusched.io"
_TOKEN_REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105 - a path
_ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_KEPT_S: Final = 15.0
"""As long as an API server remembers such answers of a webhook, about."""
_KEPT_MAX: Final = 10_000
_AT_ONCE_MAX: Final = 16
_PER_S_MAX: Final = 100.0
"""Reviews a second: whoever makes tokens up costs the API server no more than this."""
_NAMESPACES_MAX: Final = 256
"""Namespaces that are asked about for a user who may not list all pods."""


class AccessRefused(Exception):
    """A request is not answered.

    Attributes:
        status: of HTTP.
        reason: as the API names it.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


@frozen
class Viewer:
    """A user as the API server knows it, as part of its answer to a TokenReview."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: str = "{}"
    """JSON of what the server says of the user beyond that."""


class RecentAnswers(Generic[T]):
    """Answers by question, for some seconds and of bounded number; who asks meanwhile waits for the same one."""

    def __init__(self, clock: Clock, kept_s: float) -> None:
        self._clock = clock
        self._kept_s = kept_s
        self._known: OrderedDict[Any, tuple[float, T]] = OrderedDict()
        self._asked: dict[Any, asyncio.Task[T]] = {}

    async def find(self, question: Any, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The answer that is fresh, else the one that ``ask`` gets, once for all who want it."""
        known = self._known.get(question)
        if known is not None and known[0] > self._clock.monotonic():
            return known[1]
        task = self._asked.get(question)
        if task is None:
            task = self._asked[question] = asyncio.create_task(ask())
            task.add_done_callback(lambda done: self._answered(question, done))
        return await asyncio.shield(task)  # one that goes away takes the answer from nobody

    def _answered(self, question: Any, task: asyncio.Task[T]) -> None:
        self._asked.pop(question, None)
        if task.cancelled() or task.exception() is not None:
            return
        self._known[question] = (self._clock.monotonic() + self._kept_s, task.result())
        self._known.move_to_end(question)
        while len(self._known) > _KEPT_MAX:
            self._known.popitem(last=False)


class AccessReviewer:
    """Asks the API server.

    Args:
        api: with the right to create tokenreviews and subjectaccessreviews (ClusterRole
            ``system:auth-delegator``).
        clock: time.
        kept_s: seconds for which an answer is remembered.
    """

    def __init__(self, api: ApiClient, clock: Clock, *, kept_s: float = _KEPT_S) -> None:
        self._api = api
        self._clock = clock
        self._viewers: RecentAnswers[Viewer | str] = RecentAnswers(clock, kept_s)
        self._allowed: RecentAnswers[bool] = RecentAnswers(clock, kept_s)
        self._at_once = asyncio.Semaphore(_AT_ONCE_MAX)
        self._allowance = _PER_S_MAX
        self._allowed_at = clock.monotonic()

    async def viewer(self, token: str) -> Viewer:
        """The user whose token this is.

        Raises:
            AccessRefused: nobody's, or it cannot be found out.
        """
        question = hashlib.sha256(token.encode()).digest()
        known = await self._viewers.find(question, lambda: self._review_token(token))
        if isinstance(known, str):
            raise AccessRefused(401, "Unauthorized", known)
        return known

    async def access(self, viewer: Viewer, namespaces: Callable[[], Iterable[str]]) -> ViewAccess:
        """What a user may see.

        Args:
            viewer: the user.
            namespaces: in which there is something to see, asked where not all may be seen.
        """
        everywhere, nodes, queues = await asyncio.gather(
            self.is_allowed(viewer, "pods"),
            self.is_allowed(viewer, "nodes"),
            self.is_allowed(viewer, "queues", group=_GROUP),
        )
        if everywhere:
            return ViewAccess(namespaces=None, nodes=nodes, queues=queues)
        asked = sorted(set(namespaces()))[:_NAMESPACES_MAX]
        answers = await asyncio.gather(
            *(self.is_allowed(viewer, "pods", namespace=name) for name in asked)
        )
        seen = frozenset(name for name, may in zip(asked, answers, strict=True) if may)
        return ViewAccess(namespaces=seen, nodes=nodes, queues=queues)

    async def is_allowed(
        self, viewer: Viewer, resource: str, *, group: str = "", namespace: str = ""
    ) -> bool:
        """Whether a user may list a resource.

        Raises:
            AccessRefused: it cannot be found out.
        """
        question = (viewer, resource, namespace)
        return await self._allowed.find(
            question, lambda: self._review_access(viewer, resource, group, namespace)
        )

    async def _review_access(
        self, viewer: Viewer, resource: str, group: str, namespace: str
    ) -> bool:
        attributes = {"verb": "list", "resource": resource}
        attributes |= {"group": group} if group else {}
        attributes |= {"namespace": namespace} if namespace else {}
        spec = {
            "user": viewer.name,
            "groups": list(viewer.groups),
            "uid": viewer.uid,
            "extra": json.loads(viewer.extra),
            "resourceAttributes": attributes,
        }
        answer = await self._review(_ACCESS_REVIEWS, "authorization", "SubjectAccessReview", spec)
        return answer.get("allowed") is True

    async def _review_token(self, token: str) -> Viewer | str:
        answer = await self._review(
            _TOKEN_REVIEWS, "authentication", "TokenReview", {"token": token}
        )
        user = answer.get("user")
        if answer.get("authenticated") is not True or not isinstance(user, dict):
            return "the API server does not know this token: log in again, or take another one"
        return Viewer(
            name=str(user.get("username") or ""),
            groups=tuple(str(each) for each in user.get("groups") or ()),
            uid=str(user.get("uid") or ""),
            extra=json.dumps(user.get("extra") or {}, sort_keys=True),
        )

    async def _review(self, path: str, group: str, kind: str, spec: dict[str, Any]) -> Any:
        if not self._may_ask():
            raise AccessRefused(
                429, "TooManyRequests", "too many tokens and rights to be checked: try again later"
            )
        body = {"apiVersion": f"{group}.k8s.io/v1", "kind": kind, "spec": spec}
        async with self._at_once:
            try:
                answer = await self._api.request(
                    "POST",
                    path,
                    body=json.dumps(body).encode(),
                    timeout_s=limits.REQUEST_TIMEOUT_S,
                )
            except (ClusterUnreachable, OutcomeUnknown) as error:
                raise AccessRefused(
                    503, "ServiceUnavailable", f"rights cannot be checked: {error}"
                ) from error
        if not answer.ok:
            raise AccessRefused(
                503,
                "ServiceUnavailable",
                f"rights cannot be checked: the API server answers {answer.status} to a {kind}; "
                "whoever runs gpusched needs ClusterRole system:auth-delegator",
            )
        told = json.loads(answer.body).get("status")
        return told if isinstance(told, dict) else {}

    def _may_ask(self) -> bool:
        now = self._clock.monotonic()
        self._allowance = min(
            2 * _PER_S_MAX, self._allowance + (now - self._allowed_at) * _PER_S_MAX
        )
        self._allowed_at = now
        if self._allowance < 1:
            return False
        self._allowance -= 1
        return True
