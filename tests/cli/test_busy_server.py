"""Commands that read wait for a server that is busy, as it is just after a kind was defined."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpusched.base import limits
from gpusched.base.clock import SystemClock
from gpusched.base.errors import Throttled
from gpusched.cli.inspect.cluster_reader import get_object, list_objects
from gpusched.io.client.responses import ApiResponse

BUSY = ApiResponse(
    429,
    {"Retry-After": "1"},
    json.dumps({"kind": "Status", "message": "storage is (re)initializing"}).encode(),
)


class Server:
    """Says that it is busy so many times, then answers."""

    host = "https://server"

    def __init__(self, busy: int, body: Any) -> None:
        self.left = busy
        self.asked = 0
        self.body = json.dumps(body).encode()

    async def request(self, method: str, path: str, **how: Any) -> ApiResponse:
        """One request."""
        self.asked += 1
        self.left -= 1
        return BUSY if self.left >= 0 else ApiResponse(200, {}, self.body)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that were waited, without waiting."""
    found: list[float] = []

    async def sleep(_: SystemClock, seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr(SystemClock, "sleep", sleep)
    return found


async def test_it_is_asked_again(waits: list[float]) -> None:
    """As long as it said, for lists and for objects."""
    server = Server(3, {"items": [{"metadata": {"name": "a"}}]})
    found = await list_objects(server, "/x", what="queues")  # type: ignore[arg-type]
    assert [each["metadata"]["name"] for each in found] == ["a"]
    assert waits == [1.0, 1.0, 1.0]
    assert await get_object(Server(1, {"a": 1}), "/x", what="queue a") == {"a": 1}  # type: ignore[arg-type]


async def test_one_that_stays_busy_is_told(waits: list[float]) -> None:
    """After a handful of tries, in the server's words."""
    server = Server(99, {})
    with pytest.raises(Throttled, match=r"could not read queues: storage is \(re\)initializing"):
        await list_objects(server, "/x", what="queues")  # type: ignore[arg-type]
    assert server.asked == limits.COMMAND_TRIES_MAX
    assert len(waits) == limits.COMMAND_TRIES_MAX - 1
