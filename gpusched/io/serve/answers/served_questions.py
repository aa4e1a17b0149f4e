"""Questions under ``/v1`` that are decided on a copy of the cluster, within a user's rights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpusched.io.serve.answers.question_process import QuestionProcess
from gpusched.io.serve.reviews import AccessRefused
from gpusched.view.access import ViewAccess


class ServedQuestions:
    """See the module.

    Args:
        process: that answers users; None where nothing does.
        plays: that plays the line for the daemon: no user waits for it; None where nothing does.
    """

    def __init__(
        self, process: QuestionProcess | None, plays: QuestionProcess | None = None
    ) -> None:
        self._process = process
        self._plays = plays

    async def advise(
        self, namespace: str, kind: str, name: str, access: ViewAccess
    ) -> dict[str, Any]:
        """What would let a gang start.

        Raises:
            AccessRefused: there is no answer, or the user may not have it.
        """
        if not access.sees_namespace(namespace):
            raise AccessRefused(
                404, "NotFound", "no such gang waits or runs, or its namespace may not be seen"
            )
        return await self._ask(
            {
                "ask": "advice",
                "kind": kind,
                "namespace": namespace,
                "name": name,
                "everything": access.namespaces is None,
            }
        )

    async def when(
        self,
        manifests: str,
        namespace: str,
        options: Mapping[str, list[str]],
        access: ViewAccess,
    ) -> dict[str, Any]:
        """When manifests would start if they were submitted, or variants of them.

        Args:
            manifests: YAML or JSON, several documents.
            namespace: of those that name none.
            options: values of those that are varied; empty for none.
            access: of the user.

        Raises:
            AccessRefused: there is no answer, or the user may not have it.
        """
        if not access.sees_namespace(namespace):
            raise AccessRefused(
                403,
                "Forbidden",
                f"when something would start in namespace {namespace} may be asked by who may list "
                "its pods",
            )
        return await self._ask(
            {
                "ask": "when",
                "manifests": manifests,
                "namespace": namespace,
                "options": dict(options),
                "everything": access.namespaces is None,
            }
        )

    async def play_starts(self) -> dict[str, Any]:
        """When gangs that wait start, all of them: for the daemon, no user asks this.

        Raises:
            AccessRefused: there is no answer.
        """
        plays = _there(self._plays)
        try:
            return await plays.ask({"ask": "starts"})
        finally:
            await plays.close()  # the next play is minutes away, and of another cluster

    async def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        return await _there(self._process).ask(question)


def _there(process: QuestionProcess | None) -> QuestionProcess:
    if process is None:
        raise AccessRefused(
            404,
            "NotFound",
            "questions are not answered here: gpusched advise and when do so themselves",
        )
    return process
