"""Plays recorded exchanges against a server, in their order, and reports each disagreement.

A ``wait`` of a recording becomes a limit: the answer that follows it is asked for again until
it agrees or the limit has passed. Everything else is sent once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import aiohttp
import attrs
from yarl import URL

from .wire_compare import Tokens, differences, trimmed_differences

Obj = dict[str, Any]

WIRE: Final = Path(__file__).parent / "wire"
ORDER: Final = (
    "discovery",
    "nodes",
    "pods-create",
    "binding",
    "status-and-patch",
    "delete-and-evict",
    "list-watch",
    "custom-resources",
    "events-leases-access",
    "jobs",
    "dynamic-resources",
)
"""Topics in the order of their recording; ``expired-versions`` wants its own moment."""

_WAIT_MIN_S: Final = 5.0  # a busy machine may need longer than the recorded wait
_POLL_S: Final = 0.03
_QUIET_S: Final = 0.1


@attrs.define
class Report:
    """What was played.

    Attributes:
        answers: how many answers were compared.
        disagreeing: their differences, by ``topic#number``.
        steps: what each number is called.
    """

    answers: int = 0
    disagreeing: dict[str, list[str]] = attrs.field(factory=dict)
    steps: dict[str, str] = attrs.field(factory=dict)


def steps(topic: str) -> Iterator[tuple[int | None, Obj]]:
    """Yield the entries of a recording with their numbers: set-up and waits have none."""
    number = 0
    for step in json.loads((WIRE / f"{topic}.json").read_text())["steps"]:
        if "wait" in step or step.get("setup"):
            yield None, step
        else:
            yield number, step
            number += 1


class Player:
    """One client of one server.

    Args:
        session: sends.
        url: where the server is.
        tokens_of: bearer token for each ``as`` of the recordings; ``""`` is the admin.
    """

    def __init__(
        self, session: aiohttp.ClientSession, url: str, tokens_of: Mapping[str, str]
    ) -> None:
        self._session = session
        self._url = url
        self._tokens_of = tokens_of
        self.report = Report()

    async def play(self, topic: str) -> None:
        """Play one topic from its first entry to its last."""
        tokens = Tokens()
        limit = 0.0
        for number, step in steps(topic):
            if "wait" in step:
                limit = max(step["wait"], _WAIT_MIN_S)
                await asyncio.sleep(_QUIET_S)
                continue
            if "seconds" in step:
                found = await self._watch(step, tokens)
            elif step["request"]["method"] == "GET":
                found = await self._until_agrees(step, tokens, limit)
            else:
                found = _check(step, *await self._send(step["request"], tokens), tokens)
            limit = 0.0
            self._note(topic, number, step, found)

    def _note(self, topic: str, number: int | None, step: Obj, found: list[str]) -> None:
        name = f"{topic}#{number}" if number is not None else f"{topic} set-up"
        if number is not None:
            self.report.answers += 1
            self.report.steps[name] = step["step"]
        if found:
            self.report.disagreeing.setdefault(name, []).extend(found)

    async def _until_agrees(self, step: Obj, tokens: Tokens, limit_s: float) -> list[str]:
        clock = asyncio.get_running_loop().time
        end = clock() + limit_s
        while True:
            trial = tokens.copy()
            found = _check(step, *await self._send(step["request"], trial), trial)
            if not found or clock() >= end:
                tokens.values = trial.values
                return found
            await asyncio.sleep(_POLL_S)

    def _request(self, request: Obj, tokens: Tokens) -> Any:
        headers = {
            "Accept": request.get("accept", "application/json"),
            "Authorization": f"Bearer {self._tokens_of[request.get('as', '')]}",
        }
        data = None
        if "body" in request:
            body = tokens.fill(request["body"])
            data = (body if isinstance(body, str) else json.dumps(body)).encode()
            headers["Content-Type"] = request.get("contentType", "application/json")
        path = tokens.fill(request["path"]).replace(" ", "%20")
        url = URL(self._url + path, encoded=True)
        return self._session.request(request["method"], url, data=data, headers=headers)

    async def _send(self, request: Obj, tokens: Tokens) -> tuple[int, str, Any]:
        async with self._request(request, tokens) as response:
            return await _read(response)

    async def _watch(self, step: Obj, tokens: Tokens) -> list[str]:
        """Open a watch, send what was sent during it, take the recorded number of events."""
        events: list[Obj] = []
        recorded = step["response"]
        async with self._request(step["request"], tokens) as response:
            if response.status != 200 or "events" not in recorded:
                return _check(step, *await _read(response), tokens)
            reading = asyncio.create_task(_read_events(response, events))
            found: list[str] = []
            for inner in step.get("during", ()):
                found += _check(inner, *await self._send(inner["request"], tokens), tokens)
            await _counted(events, len(recorded["events"]), step["seconds"])
            if "timeoutSeconds" in step["request"]["path"]:
                async with asyncio.timeout(step["seconds"]):
                    await reading  # its end is the promise
            else:
                await asyncio.sleep(_QUIET_S)  # an event too many would come now
                reading.cancel()
                with suppress(asyncio.CancelledError):
                    await reading
        return found + list(differences(recorded["events"], events, tokens, at="events"))


async def _counted(events: list[Obj], count: int, limit_s: float) -> None:
    end = asyncio.get_running_loop().time() + limit_s
    while len(events) < count and asyncio.get_running_loop().time() < end:
        await asyncio.sleep(_POLL_S)


async def _read_events(response: aiohttp.ClientResponse, events: list[Obj]) -> None:
    async for line in response.content:
        events.append(json.loads(line))


async def _read(response: aiohttp.ClientResponse) -> tuple[int, str, Any]:
    media = response.headers.get("Content-Type", "")
    raw = await response.read()
    try:
        return response.status, media, json.loads(raw)
    except ValueError:
        return response.status, media, raw.decode()


def _check(step: Obj, code: int, media: str, body: Any, tokens: Tokens) -> list[str]:  # noqa: PLR0917
    """Return the differences of one answer; the status first, and alone when it differs."""
    want = step["response"]
    if code != want["status"]:
        why = body.get("message", "") if isinstance(body, dict) else str(body)
        return [f"status: recorded {want['status']}, served {code} {why[:200]}"]
    found = []
    if "contentType" in want and media != want["contentType"]:
        found.append(f"content type: recorded {want['contentType']}, served {media}")
    if "body" not in want:
        return found
    if want.get("trimmed"):
        return found + trimmed_differences(want["body"], body, tokens)
    return found + list(differences(want["body"], body, tokens))
