"""Plays recorded exchanges against a server, in their order, and reports each disagreement.

A ``wait`` of a recording becomes a limit: the server is left alone until its own writes have
ceased, and a read that follows is sent again until it agrees or the limit has passed. Everything
else is sent once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import aiohttp
import attrs
from yarl import URL

from .wire_compare import (
    Tokens,
    differences,
    only_recorded,
    rows_but,
    trimmed_differences,
    unordered_errors,
)

Obj = dict[str, Any]
Prepare = Callable[[Any, Any], tuple[Any, Any]]

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

PREPARED: Final[Mapping[str, Prepare]] = {
    # lists of which only the entries of interest were kept
    "discovery#8": lambda want, got: (want, only_recorded(want, got)),
    "discovery#9": lambda want, got: (want, only_recorded(want, got)),
    "discovery#10": lambda want, got: (want, only_recorded(want, got)),
    "nodes#11": lambda want, got: (want, only_recorded(want, got)),
    "list-watch#31": lambda want, got: (want, only_recorded(want, got)),
    "native-gangs#2": lambda want, got: (want, only_recorded(want, got)),
    # the pod of a deleted node, which the real server had collected by then
    "pods-create#26": rows_but("nd-pod"),
    # several errors at once stand in the order of a Go map
    "custom-resources#12": lambda want, got: (unordered_errors(want), unordered_errors(got)),
}
"""How both sides of an answer are made comparable, by ``topic#number``."""

_WAIT_MIN_S: Final = 20.0  # a busy machine may need longer than the recorded wait
_POLL_S: Final = 0.03
_QUIET_S: Final = 0.1
_QUIET_POLLS: Final = 5
_QUIET_PATH: Final = "/api/v1/namespaces?limit=1"


@attrs.frozen
class Answer:
    """Status, media type and body of one answer."""

    code: int
    media: str
    body: Any


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
        await self._until_quiet(_WAIT_MIN_S)
        for number, step in steps(topic):
            if "wait" in step:
                limit = max(step["wait"], _WAIT_MIN_S)
                await self._until_quiet(limit)
                continue
            name = f"{topic}#{number}" if number is not None else f"{topic} set-up"
            prepare = PREPARED.get(name, _as_they_are)
            if "seconds" in step:
                found = await self._watch(step, tokens)
            elif step["request"]["method"] == "GET":
                found = await self._until_agrees(step, tokens, limit, prepare)
            else:
                found = _check(step, await self._send(step["request"], tokens), tokens, prepare)
            limit = 0.0
            self._note(name, step, found)

    async def _until_quiet(self, limit_s: float) -> None:
        """Wait until the version of the whole server stands still for some polls in a row.

        One that others write to all the time is waited for no longer than the limit.
        """
        clock = asyncio.get_running_loop().time
        end = clock() + limit_s
        seen: list[str] = []
        while clock() < end and (len(seen) < _QUIET_POLLS or len({*seen[-_QUIET_POLLS:]}) > 1):
            answer = await self._send({"method": "GET", "path": _QUIET_PATH}, Tokens())
            seen.append(answer.body["metadata"]["resourceVersion"])
            await asyncio.sleep(_POLL_S)

    def _note(self, name: str, step: Obj, found: list[str]) -> None:
        if not step.get("setup"):
            self.report.answers += 1
            self.report.steps[name] = step["step"]
        if found:
            self.report.disagreeing.setdefault(name, []).extend(found)

    async def _until_agrees(
        self, step: Obj, tokens: Tokens, limit_s: float, prepare: Prepare
    ) -> list[str]:
        clock = asyncio.get_running_loop().time
        end = clock() + limit_s
        while True:
            trial = tokens.copy()
            found = _check(step, await self._send(step["request"], trial), trial, prepare)
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

    async def _send(self, request: Obj, tokens: Tokens) -> Answer:
        async with self._request(request, tokens) as response:
            return await _read(response)

    async def _watch(self, step: Obj, tokens: Tokens) -> list[str]:
        """Open a watch, send what was sent during it, take the recorded number of events."""
        events: list[Obj] = []
        recorded = step["response"]
        async with self._request(step["request"], tokens) as response:
            if response.status != 200 or "events" not in recorded:
                return _check(step, await _read(response), tokens)
            reading = asyncio.create_task(_read_events(response, events))
            found: list[str] = []
            for inner in step.get("during", ()):
                found += _check(inner, await self._send(inner["request"], tokens), tokens)
            await _counted(events, len(recorded["events"]), max(step["seconds"], _WAIT_MIN_S))
            if "timeoutSeconds" in step["request"]["path"]:
                async with asyncio.timeout(max(step["seconds"], _WAIT_MIN_S)):
                    await reading  # its end is the promise
            else:
                await asyncio.sleep(_QUIET_S)  # an event too many would come now
                reading.cancel()
                with suppress(asyncio.CancelledError):
                    await reading
        return found + list(differences(recorded["events"], events, tokens, at="events"))


async def _counted(events: list[Obj], count: int, limit_s: float) -> None:
    end = asyncio.get_running_loop().time() + limit_s
    while len(events) < count and asyncio.get_running_loop().time() < end:  # noqa: ASYNC110
        await asyncio.sleep(_POLL_S)


async def _read_events(response: aiohttp.ClientResponse, events: list[Obj]) -> None:
    async for line in response.content:
        events.append(json.loads(line))  # noqa: PERF401  # it is read while it grows


async def _read(response: aiohttp.ClientResponse) -> Answer:
    media = response.headers.get("Content-Type", "")
    raw = await response.read()
    try:
        return Answer(response.status, media, json.loads(raw))
    except ValueError:
        return Answer(response.status, media, raw.decode())


def _as_they_are(want: Any, got: Any) -> tuple[Any, Any]:
    return want, got


def _check(step: Obj, answer: Answer, tokens: Tokens, prepare: Prepare = _as_they_are) -> list[str]:
    """Return the differences of one answer; the status first, and alone when it differs."""
    recorded = step["response"]
    if answer.code != recorded["status"]:
        why = answer.body.get("message", "") if isinstance(answer.body, dict) else answer.body
        return [f"status: recorded {recorded['status']}, served {answer.code} {why[:200]}"]
    found = []
    if "contentType" in recorded and answer.media != recorded["contentType"]:
        found.append(f"content type: recorded {recorded['contentType']}, served {answer.media}")
    if "body" not in recorded:
        return found
    want, got = prepare(recorded["body"], answer.body)
    if recorded.get("trimmed"):
        return found + trimmed_differences(want, got, tokens)
    return found + list(differences(want, got, tokens))
