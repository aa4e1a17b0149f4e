"""Advice on the objects that ask for it: label ``gpusched.io/advise: "true"``, answer in ``gpusched.io/advice``.

A PodGroup, or a Job of its own, with the label is told what would let it start for as long as it
waits. Looking for the label costs two small lists a minute; the answers are those of the process
that answers questions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpusched.base import limits
from gpusched.base.clock import Clock
from gpusched.base.errors import GpuschedError
from gpusched.io.client.api_client import ApiClient
from gpusched.io.client.responses import api_error
from gpusched.io.observe.logs import Logger
from gpusched.io.observe.text import one_line
from gpusched.io.serve.answers.served_questions import ServedQuestions
from gpusched.io.serve.reviews import AccessRefused
from gpusched.view.access import ViewAccess
from gpusched.view.model import WAITING
from gpusched.view.store import ViewStore

ASK_LABEL: Final = "gpusched.io/advise"
ADVICE: Final = "gpusched.io/advice"
_KINDS: Final = {
    "PodGroup": "/apis/scheduling.gpusched.io/v1alpha1",
    "Job": "/apis/batch/v1",
}
_ROUND_S: Final = 60.0
_RENEWED_S: Final = 300.0
"""Between two answers to one gang that goes on waiting for the same reason."""
_ANSWERS_MAX: Final = 20
"""Gangs that are answered in one round; the others are in the next ones."""
_LISTED_MAX: Final = 500
_NOTE_MAX: Final = 2_000
_MERGE_PATCH: Final = "application/merge-patch+json"
_log = Logger(__name__)


class AdviceWriter:
    """``run`` is its life.

    Args:
        api: of the cluster, with the right to list and patch PodGroups and Jobs.
        questions: answered on a copy of the cluster.
        store: tells which gangs wait, and whether this daemon leads.
        clock: time.
    """

    def __init__(
        self, api: ApiClient, questions: ServedQuestions, store: ViewStore, clock: Clock
    ) -> None:
        self._api = api
        self._questions = questions
        self._store = store
        self._clock = clock
        self._answered: dict[str, tuple[float, str]] = {}
        """When a gang was answered last, and why it waited then, by its key."""
        self._trouble = ""

    async def run(self) -> None:
        """Answer until cancelled."""
        while True:
            await self._clock.sleep(_ROUND_S)
            await self.answer_once()

    async def answer_once(self) -> None:
        """One round: those that ask and wait are answered, of those that run the answer is taken off."""
        head = self._store.head
        if head is None or not head.leading or not self._store.revision:
            return
        try:
            asking = [item for kind in _KINDS for item in await self._list_asking(kind)]
            keys = {_key_of(kind, item) for kind, item in asking}
            self._answered = {key: at for key, at in self._answered.items() if key in keys}
            left = _ANSWERS_MAX
            for kind, item in asking:
                left -= await self._answer(kind, item) if left else 0
        except (GpuschedError, AccessRefused, ValueError) as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                _log.warning("what would help cannot be written", why=one_line(self._trouble))
        else:
            self._trouble = ""

    async def _list_asking(self, kind: str) -> list[tuple[str, dict[str, Any]]]:
        answer = await self._api.request(
            "GET",
            f"{_KINDS[kind]}/{_plural(kind)}",
            query={
                "labelSelector": f"{ASK_LABEL}=true",
                "limit": str(_LISTED_MAX),
            },
            timeout_s=limits.REQUEST_TIMEOUT_S,
        )
        if not answer.ok:
            raise api_error(answer, doing=f"list {_plural(kind)} that ask what would help")
        items = json.loads(answer.body).get("items") or ()
        return [(kind, item) for item in items]

    async def _answer(self, kind: str, item: dict[str, Any]) -> bool:
        """Whether a question was asked for it."""
        metadata = item["metadata"]
        key, namespace, name = _key_of(kind, item), metadata["namespace"], metadata["name"]
        written = (metadata.get("annotations") or {}).get(ADVICE, "")
        gang = self._store.gangs.get(key)
        if gang is None or gang.state != WAITING:
            self._answered.pop(key, None)
            if written and gang is not None:
                await self._write(kind, metadata, None)
            return False
        now = self._clock.monotonic()
        at, reason = self._answered.get(key, (0.0, ""))
        if at and now - at < _RENEWED_S and reason == gang.reason:
            return False
        self._answered[key] = (now, gang.reason)
        reader = ViewAccess(namespaces=frozenset({namespace}), nodes=False, queues=False)
        try:
            advice = await self._questions.advise(namespace, kind.lower(), name, reader)
        except AccessRefused as error:
            if error.status != 404:  # it started, or went, a moment ago
                raise
            return True
        await self._write(kind, metadata, advice_note(advice))
        return True

    async def _write(self, kind: str, metadata: Mapping[str, Any], note: str | None) -> None:
        place = f"namespaces/{metadata['namespace']}/{_plural(kind)}/{metadata['name']}"
        patch = {"metadata": {"uid": metadata["uid"], "annotations": {ADVICE: note}}}
        answer = await self._api.request(
            "PATCH",
            f"{_KINDS[kind]}/{place}",
            body=json.dumps(patch).encode(),
            content_type=_MERGE_PATCH,
            timeout_s=limits.REQUEST_TIMEOUT_S,
        )
        if not answer.ok and answer.status not in {404, 409}:
            raise api_error(answer, doing=f"write what would help on {place}")


def advice_note(advice: Mapping[str, Any]) -> str:
    """An answer as one line of an annotation.

    Args:
        advice: as ``/v1/gangs/.../advice`` tells it.
    """
    never, suggestions = advice["never"], advice["suggestions"]
    said = [f"it starts {never['sentence']}"] if never else []
    if advice["unchanged"]["kind"] in ("now", "afterEvictions"):
        said = ["it starts without any change"]
    elif suggestions:
        said.append("it would start " + ", or ".join(map(_suggestion_text, suggestions)))
    elif not never:
        said += ["no change that was tried would let it start", *advice.get("inTheWay", ())]
    said += advice.get("remarks", ())
    return one_line(f"{advice['asOf']}: {'; '.join(said)}", _NOTE_MAX)


def _suggestion_text(suggestion: Mapping[str, Any]) -> str:
    start = suggestion["start"]
    at = suggestion["at"] or start["at"]
    when = {"now": "now", "afterEvictions": "after evictions"}.get(start["kind"], "")
    if suggestion["change"] == "endOfOthers" or start["kind"] == "expected":
        when = f"expected {at}" if at else "nothing tells when"
    return f"{suggestion['message']} ({when})"


def _key_of(kind: str, item: Mapping[str, Any]) -> str:
    metadata: Mapping[str, Sequence[str]] = item["metadata"]
    return f"{metadata['namespace']}/{kind}/{metadata['name']}"


def _plural(kind: str) -> str:
    return f"{kind.lower()}s"
