"""Points on a Ray cluster: each is one task, with the same bytes in and out as in a process of this machine.

Ray plays a task once (``max_retries=0``): what becomes of a lost worker's point is decided and told by
``run_points``, as for processes of this machine.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from gpusched import __version__
from gpusched.base.errors import ClusterUnreachable, NotInstalled
from gpusched.cli.lab.sweep.workers import PointEnd, try_point

LOCAL: Final = "local"
"""In place of an address: a cluster that is started here, and ended with the command."""
_STORE_BYTES: Final = 256 * 2**20
"""Of the object store of a cluster that is started here: points are a few MiB."""
_HOST_PORT: Final = re.compile(r"(?:ray://)?\[?(?P<host>[^\[\]/]+?)\]?:(?P<port>[0-9]{1,5})")
_ANSWER_S: Final = 5.0
_LOOK_EVERY_S: Final = 5.0
"""After which it is looked whether the head is there while no point ends: without it Ray ends this program after a minute."""
_LOOKS_MAX: Final = 3
"""So often in a row the head may not answer."""
_TOKEN_FILE: Final = Path(".ray") / "auth_token"
"""In the home of a user, where Ray keeps a token that it made for a cluster."""
_CLUSTER_LOST: Final = "LocalRayletDiedError"
"""Name of Ray's exception that says that nothing more can be started from here."""
_LOST: Final = (
    "WorkerCrashedError", "NodeDiedError", "OutOfMemoryError", "ObjectLostError", "OwnerDiedError",
    "RayActorError", "TaskUnschedulableError",
)  # fmt: skip
"""Names of Ray's exceptions that say that a worker is gone, and nothing about its point."""


class ClusterLost(ClusterUnreachable):
    """A Ray cluster that answered went away while points were played."""


def load_ray() -> Any:
    """The library.

    Raises:
        NotInstalled: the extra is missing.
    """
    # It would tell its makers how it is used, over the network.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if _has_token():
        # So does `ray start`, and Ray reads it once. A cluster that wants no token takes one.
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray = import_module("ray")
    except ModuleNotFoundError as error:
        raise NotInstalled(
            f"--ray needs {error.name}, which is not installed: "
            f'run pip install ".[ray]" in a checkout of gpusched {__version__}'
        ) from error
    if signal.getsignal(signal.SIGTERM) is not before:
        signal.signal(signal.SIGTERM, before)  # Ray's would end the program without a table
    return ray


def _has_token() -> bool:
    """Whether Ray would find a token for a cluster that authenticates."""
    given = any(os.environ.get(name) for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    return given or (Path.home() / _TOKEN_FILE).is_file()


def _look_at(address: str) -> None:
    """Connect once where the address names a host and port: Ray itself takes minutes to give up.

    Raises:
        OSError: nobody listens there.
    """
    match = _HOST_PORT.fullmatch(address)
    if match is not None:
        socket.create_connection((match["host"], int(match["port"])), timeout=_ANSWER_S).close()


def play_on_ray(work: bytes, version: str) -> tuple[bytes | None, str]:
    """A task: one packed point; its result, or a sentence why there is none."""
    if version != __version__:
        return (
            None,
            f"the Ray worker has gpusched {__version__}, this is {version}: install the same",
        )
    end = try_point(0, work)
    return end.result, end.error


class RayWorkers:
    """As many points at a time as the cluster has processors.

    Args:
        address: of the cluster, as ``ray.init`` takes it, or ``local``.
        size: points at a time at most; None for as many as there are processors.

    Raises:
        NotInstalled: Ray is missing.
        ClusterUnreachable: the cluster does not answer.
    """

    def __init__(self, address: str, size: int | None) -> None:
        self._ray = load_ray()
        self._address = address
        if not self._ray.is_initialized():
            self._connect(address, size)
        there = max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        self.size = min(there, size or there)
        self._task = self._ray.remote(play_on_ray).options(max_retries=0, num_cpus=1)
        self._at: dict[Any, int] = {}
        self._silent = 0

    def _connect(self, address: str, size: int | None) -> None:
        plain: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
        try:
            _look_at(address)
            if address == LOCAL:
                self._ray.init(
                    num_cpus=size,
                    include_dashboard=False,
                    object_store_memory=_STORE_BYTES,
                    **plain,
                )
            else:
                self._ray.init(address=address, **plain)
        except (OSError, OverflowError, RuntimeError, ValueError) as error:
            said = " ".join(str(error).split())[:200]
            raise ClusterUnreachable(
                f"the Ray cluster {address} cannot be reached: {said}; start one with ray start --head, "
                "or take --ray local; one that authenticates wants its token in RAY_AUTH_TOKEN"
            ) from error

    def start_point(self, number: int, work: bytes) -> None:
        """See ``PointWorkers``."""
        with self._told_when_lost():
            self._at[self._task.remote(work, __version__)] = number

    def wait_for_ends(self) -> list[PointEnd]:
        """See ``PointWorkers``.

        Raises:
            ClusterLost: the whole cluster is gone, or cannot be reached any more.
        """
        ready: list[Any] = []
        while not ready:
            with self._told_when_lost():
                ready, _ = self._ray.wait(list(self._at), num_returns=1, timeout=_LOOK_EVERY_S)
            if not ready:
                self._look_at_head()
        self._silent = 0
        return [self._end(self._at.pop(each), each) for each in ready]

    def _look_at_head(self) -> None:
        try:
            _look_at(self._head)
        except OSError as error:
            self._silent += 1
            if self._silent >= _LOOKS_MAX:
                raise self._lost(f"{self._head} does not answer: {error}") from error
        else:
            self._silent = 0

    @property
    def _head(self) -> str:
        """Where the head of the cluster listens, or what was given as its address."""
        try:
            return str(self._ray.get_runtime_context().gcs_address)
        except (AttributeError, RuntimeError):  # by ray:// it is not known
            return self._address

    @contextlib.contextmanager
    def _told_when_lost(self) -> Iterator[None]:
        try:
            yield
        except Exception as fault:
            raise self._lost(_in_one_line(fault)) from fault

    def _lost(self, said: str) -> ClusterLost:
        return ClusterLost(
            f"the Ray cluster {self._address} was lost: {said}; points that have ended are kept: go on with --resume"
        )

    def _end(self, number: int, reference: Any) -> PointEnd:
        try:
            result, error = self._ray.get(reference)
        except Exception as fault:
            names = {each.__name__ for each in type(fault).__mro__}
            said = _in_one_line(fault)
            if _CLUSTER_LOST in names:
                raise self._lost(said) from fault
            return PointEnd(number=number, error=said, lost=not names.isdisjoint(_LOST))
        return PointEnd(number=number, result=result, error=error)

    def close(self) -> None:
        """See ``PointWorkers``; the connection stays for the next points and ends with the program."""
        for reference in self._at:
            with contextlib.suppress(Exception):  # it may be over, or its worker gone
                self._ray.cancel(reference, force=True)
        self._at.clear()


def _in_one_line(fault: Exception) -> str:
    return f"{type(fault).__name__}: {' '.join(str(fault).split())[:160]}"
