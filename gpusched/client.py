"""What notebooks and portals ask the daemon: what waits and runs, and when something would start.

``Client().when("job.yaml")`` is the same question as ``gpusched when -f job.yaml``, answered by the process
beside the daemon with the rights of who asks. Calls return when the answer is there; they may be made
inside of a notebook, whose own event loop is left alone. Nothing is written to the cluster.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from gpusched.base.clock import SystemClock
from gpusched.base.errors import UsageError
from gpusched.io.client.api_client import ApiClient
from gpusched.io.client.connection_choice import ConnectionChoice
from gpusched.io.client.credentials import choose_credentials
from gpusched.io.serve.view_client import NoView, ViewClient, ViewRoute, find_view
from gpusched.view.model import GangView, NodeView, QueueView
from gpusched.view.over_time.advice_view import AdviceView
from gpusched.view.over_time.future import SpanView
from gpusched.view.over_time.submission_view import SubmissionVariantsView, SubmissionView

T = TypeVar("T")
Manifests: TypeAlias = "str | Path | Mapping[str, Any] | Sequence[Mapping[str, Any]]"
"""A file by its path, YAML or JSON as text, or manifests as Python has them."""
_LEASE_NAMESPACE: Final = "gpusched-system"
_LEASE: Final = "gpusched"
_WANTED: Final = "manifests are the name of a file, YAML or JSON as text, or dictionaries"


class Client:
    """Asks the view of a daemon.

    Args:
        kubeconfig: a file, None for the pod's account, KUBECONFIG, ``~/.kube/config``; not with ``url``.
        context: of the kubeconfig; its current one unless told.
        url: of the daemon's view, such as ``http://127.0.0.1:8081``, in place of finding it by its Lease.
        token: to log in with; with ``url`` it is needed.
        namespace: of what names none.
        lease_namespace: of the Lease of the daemon's leadership.
        lease: its name.

    Raises:
        UsageError: arguments contradict each other.
    """

    def __init__(
        self,
        *,
        kubeconfig: str | None = None,
        context: str = "",
        url: str = "",
        token: str = "",
        namespace: str = "default",
        lease_namespace: str = _LEASE_NAMESPACE,
        lease: str = _LEASE,
    ) -> None:
        if url and (kubeconfig or context):
            raise UsageError("give a url with a token, or a kubeconfig: not both")
        if url and not token:
            raise UsageError("the daemon's view asks for a token: give it beside the url")
        self.namespace = namespace
        self._choice = ConnectionChoice(kubeconfig=kubeconfig, context=context, token=token)
        self._route: ViewRoute | None = None
        if url:
            headers = {"Authorization": f"Bearer {token}"}
            self._route = ViewRoute(base=url.rstrip("/"), headers=headers, access=None, told=url)
        self._lease = (lease_namespace, lease)

    def when(self, manifests: Manifests, *, namespace: str = "") -> SubmissionView:
        """When manifests would start if they were submitted now, all together.

        Args:
            manifests: that would be submitted.
            namespace: of those that name none; the client's unless told.

        Raises:
            NoView: no daemon answers.
            Denied: this user may not ask about that namespace.
            ApiError: the manifests or the question mean nothing; the sentence says why.
        """
        raw = manifest_bytes(manifests)
        space = namespace or self.namespace
        return self._answered(lambda view: view.when(raw, space))

    def when_variants(
        self,
        manifests: Manifests,
        *,
        namespace: str = "",
        queue: str | Sequence[str] = (),
        members: int | Sequence[int] = (),
        level: str | Sequence[str] = (),
        gpus: str | Sequence[str] = (),
    ) -> SubmissionVariantsView:
        """The same of all combinations of options, the best first; an option is one value or several.

        Args:
            manifests: that would be submitted.
            namespace: of those that name none; the client's unless told.
            queue: queues to be submitted to.
            members: numbers of pods that start together.
            level: levels of the topology of which all pods share a domain; ``none`` for none.
            gpus: types of GPUs, by some words of their names.

        Raises:
            UsageError: no option is varied.
            NoView, Denied, ApiError: as for ``when``.
        """
        raw = manifest_bytes(manifests)
        space = namespace or self.namespace
        options = {"queue": queue, "members": members, "level": level, "gpus": gpus}
        written = {name: _values(values) for name, values in options.items()}
        varied = {name: values for name, values in written.items() if values}
        if not varied:
            raise UsageError("name what is varied: queue, members, level or gpus")
        return self._answered(lambda view: view.when_variants(raw, space, varied))

    def advise(self, kind: str, name: str, namespace: str = "") -> AdviceView | None:
        """What would let a gang start that waits; None where no such gang waits.

        Args:
            kind: of the gang or of what made it, in any form that kubectl takes.
            name: of the same.
            namespace: of the same; the client's unless told.
        """
        space = namespace or self.namespace
        return self._ask(lambda view: view.advice(space, kind, name))

    def gangs(self, *, namespace: str = "", queue: str = "") -> list[GangView]:
        """Gangs that wait or run, as far as this user may see them.

        Args:
            namespace: only of this one; all unless told.
            queue: only of this one; all unless told.
        """
        return self._ask(lambda view: view.gangs(namespace=namespace, queue=queue))

    def queues(self) -> list[QueueView]:
        """Queues by name."""
        return self._ask(lambda view: view.queues())

    def nodes(self) -> list[NodeView]:
        """Nodes by name, with each GPU and who holds it."""
        return self._ask(lambda view: view.nodes())

    def future(self) -> list[SpanView]:
        """Known ends, reserved room and estimated starts, by time."""
        return self._ask(lambda view: view.future())

    def _answered(self, question: Callable[[ViewClient], Awaitable[T | None]]) -> T:
        answer = self._ask(question)
        if answer is None:
            raise NoView("this daemon answers no such questions: gpusched when decides them itself")
        return answer

    def _ask(self, question: Callable[[ViewClient], Awaitable[T]]) -> T:
        """One question on connections of its own, in a thread whose event loop is ours."""
        with ThreadPoolExecutor(max_workers=1) as thread:
            return thread.submit(asyncio.run, self._asked(question)).result()

    async def _asked(self, question: Callable[[ViewClient], Awaitable[T]]) -> T:
        async with ViewClient(self._route or await self._found_route()) as view:
            return await question(view)

    async def _found_route(self) -> ViewRoute:
        clock = SystemClock()
        source = choose_credentials(self._choice.kubeconfig, clock=clock, choice=self._choice)
        api = await ApiClient.connect(source, clock=clock)
        try:
            namespace, lease = self._lease
            return await find_view(api, namespace=namespace, lease=lease)
        finally:
            await api.close()


def manifest_bytes(manifests: Manifests) -> bytes:
    """Manifests as a request has them.

    Raises:
        UsageError: the file cannot be read, or they are nothing that can be sent.
    """
    if isinstance(manifests, str) and _is_text(manifests):
        return manifests.encode()
    if isinstance(manifests, str | Path):
        try:
            return Path(manifests).read_bytes()
        except OSError as error:
            raise UsageError(f"{manifests}: cannot be read: {error.strerror or error}") from error
    several = [manifests] if isinstance(manifests, Mapping) else manifests
    try:
        return "\n---\n".join(json.dumps(each) for each in several).encode()
    except TypeError as error:
        raise UsageError(f"{_WANTED}: {error}") from error


def _is_text(manifests: str) -> bool:
    """Whether it holds manifests, and is not the name of a file."""
    if not manifests.strip():
        raise UsageError(f"{_WANTED}: there is nothing")
    return "\n" in manifests or manifests.lstrip()[0] in "{["


def _values(given: str | int | Sequence[str] | Sequence[int]) -> str:
    """Values of an option with commas; one alone needs no list."""
    return str(given) if isinstance(given, str | int) else ",".join(map(str, given))
