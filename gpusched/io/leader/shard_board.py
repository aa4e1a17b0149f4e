"""Reads and writes the board that all daemons share: one ConfigMap, replaced by the version that was read."""

from __future__ import annotations

import json
from typing import Any

from gpusched.base import limits
from gpusched.base.errors import ApiError, Conflict
from gpusched.config.model import LeaderElectionConfig
from gpusched.io.client.api_client import ApiClient
from gpusched.io.client.responses import api_error
from gpusched.shards.board import KEY, Board, BoardUnreadable, decode_board, encode_board


def board_path(election: LeaderElectionConfig) -> str:
    """Where the board of the shards is."""
    name = f"{election.lease_name}-shards"
    return f"/api/v1/namespaces/{election.lease_namespace}/configmaps/{name}"


async def find_board(api: ApiClient, election: LeaderElectionConfig) -> Board | None:
    """The board, for who only reads it; None where there is none, or this user may not read it.

    One of a later format, or a damaged one, is an empty board here.
    """
    answer = await api.request("GET", board_path(election), timeout_s=limits.REQUEST_TIMEOUT_S)
    if not answer.ok:
        return None
    found = json.loads(answer.body)
    try:
        return decode_board(str((found.get("data") or {}).get(KEY) or ""))
    except BoardUnreadable:
        return Board()


class BoardStore:
    """The board, with the version of its ConfigMap.

    Args:
        api: the client of the leader election.
        namespace: of the Leases.
        name: of the ConfigMap.
        create_if_missing: True only outside a cluster; inside, the manifest makes it.
    """

    def __init__(
        self, api: ApiClient, *, namespace: str, name: str, create_if_missing: bool
    ) -> None:
        self._api = api
        self._collection = f"/api/v1/namespaces/{namespace}/configmaps"
        self._namespace = namespace
        self._name = name
        self._create_if_missing = create_if_missing
        self._object: dict[str, Any] | None = None

    @property
    def version(self) -> str:
        """The version that was read or written last; empty for none."""
        return str(self._object["metadata"].get("resourceVersion", "")) if self._object else ""

    async def read(self) -> Board:
        """The board as it is now; an empty one where there is none.

        Raises:
            GpuschedError: it cannot be read, or is of a later format.
        """
        answer = await self._api.request(
            "GET", f"{self._collection}/{self._name}", timeout_s=limits.REQUEST_TIMEOUT_S
        )
        if answer.status == 404 and self._create_if_missing:
            self._object = None
            return Board()
        if not answer.ok:
            raise api_error(answer, doing=f"read {self._what}")
        return self._take(answer.body)

    async def write(self, board: Board) -> None:
        """Replace what was read last.

        Raises:
            Conflict: somebody has written since; nothing was changed.
            GpuschedError: it is not known whether it was written, or it was refused.
        """
        known = self._object
        metadata = dict(known["metadata"]) if known else {}
        metadata.pop("managedFields", None)
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {**metadata, "name": self._name, "namespace": self._namespace},
            "data": {**((known or {}).get("data") or {}), KEY: encode_board(board)},
        }
        method, path = ("PUT", f"/{self._name}") if known else ("POST", "")
        answer = await self._api.request(
            method,
            self._collection + path,
            body=json.dumps(body).encode(),
            timeout_s=limits.REQUEST_TIMEOUT_S,
        )
        if answer.status in {404, 409}:
            raise Conflict(f"{self._what} was written by another daemon")
        if not answer.ok:
            raise api_error(answer, doing=f"write {self._what}", write=True)
        self._take(answer.body)

    def _take(self, body: bytes) -> Board:
        try:
            found = json.loads(body)
            text = (found.get("data") or {}).get(KEY, "")
            found["metadata"]["resourceVersion"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ApiError(f"the answer for {self._what} is no ConfigMap") from None
        self._object = found
        return decode_board(str(text))

    @property
    def _what(self) -> str:
        return f"ConfigMap {self._namespace}/{self._name}"
