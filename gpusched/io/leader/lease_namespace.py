"""The namespace of the Lease. In a cluster the manifest makes it; outside, we do.

A daemon that is tried out with a kubeconfig should not need more than the CRDs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

import msgspec

from gpusched.base import limits
from gpusched.base.clock import Clock
from gpusched.base.errors import Denied, GpuschedError
from gpusched.io.client.api_client import ApiClient
from gpusched.io.client.responses import api_error
from gpusched.io.observe.logs import Logger

_PATH: Final = "/api/v1/namespaces"
_RETRY_S: Final = 2.0
_log = Logger(__name__)


async def ensure_namespace(api: ApiClient, name: str, clock: Clock) -> None:
    """Create the namespace when it is missing; try until the API server answers.

    Without the right to do so nothing happens: the next read of the Lease says what is wrong.
    """
    told = ""
    while True:
        try:
            await make_namespace(api, name)
        except Denied as error:
            _log.debug("cannot make sure that the lease's namespace exists", why=str(error))
            return
        except GpuschedError as error:
            if str(error) != told:
                told = str(error)
                _log.warning(
                    "the lease's namespace cannot be made sure of yet; trying again", why=told
                )
            await clock.sleep(_RETRY_S)
        else:
            return


async def make_namespace(api: ApiClient, name: str) -> None:
    """Create the namespace when it is missing.

    Raises:
        GpuschedError: it cannot be read or created.
    """
    answer = await api.request("GET", f"{_PATH}/{name}", timeout_s=limits.REQUEST_TIMEOUT_S)
    if answer.ok:
        return
    if answer.status != 404:
        raise api_error(answer, doing=f"read namespace {name}")
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    made = await api.request(
        "POST", _PATH, body=msgspec.json.encode(body), timeout_s=limits.REQUEST_TIMEOUT_S
    )
    if not made.ok and made.status != 409:
        raise api_error(made, doing=f"create namespace {name}", write=True)
    _log.info("created the namespace of the lease", namespace=name)


async def run_unless_ending(stopped: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Do some work, or leave it when the end is asked for."""
    doing = asyncio.create_task(work)
    stop = asyncio.create_task(stopped.wait())
    await asyncio.wait({doing, stop}, return_when=asyncio.FIRST_COMPLETED)
    for task in (doing, stop):
        task.cancel()
    await asyncio.gather(doing, stop, return_exceptions=True)
    if not doing.cancelled():
        doing.result()
