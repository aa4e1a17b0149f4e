"""Keeps the last decisions in files, so that each can be repeated.

Writing is done beside the event loop, one decision after another; a few may wait for their turn.
It never costs a decision: what finds no place is counted, in the metric, in the log and in the
next file, and what goes wrong is said once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gpusched.base import limits
from gpusched.base.classes import frozen
from gpusched.base.errors import SolverFault
from gpusched.cache.snapshot import Snapshot
from gpusched.config.model import Config
from gpusched.io.decisions.decision_file import (
    SUFFIX,
    DecisionInputs,
    RecordedSearch,
    pack_decision,
)
from gpusched.io.decisions.entity_codec import Unrecordable
from gpusched.io.decisions.file_names import tag_of
from gpusched.io.observe.logs import Logger
from gpusched.io.workers.worker_thread import WorkerThread
from gpusched.placement.model.problem import SearchJob, SearchRunner
from gpusched.pluginhost.guard import FailingHook
from gpusched.session.decide import Decision

LAST: Final = 100
"""Files that are kept unless told."""
_OURS: Final = re.compile(r"\d{13}-\d{9}" + re.escape(SUFFIX))
_log = Logger(__name__)


@frozen(kw_only=True)
class RecordingOptions:
    """What is to be recorded.

    Attributes:
        folder: made when it is not there. Files of decisions in it that are too many are
            removed, those of earlier processes too; others are not touched.
        last: how many are kept.
        everything: sessions that changed nothing as well.
    """

    folder: Path
    last: int = LAST
    everything: bool = False


class SearchRecorder:
    """A ``Search`` that remembers what was answered. One for each decision."""

    def __init__(self, search: SearchRunner, failing: tuple[FailingHook, ...]) -> None:
        self._search = search
        self.failing = failing
        self.searches: list[RecordedSearch] = []

    def __call__(self, job: SearchJob) -> object:
        """What the search behind it answers; see ``Search``."""
        name = tag_of(type(job))
        try:
            answer = self._search(job)
        except SolverFault as fault:
            self.searches.append(RecordedSearch(job=name, fault=str(fault)))
            raise
        self.searches.append(RecordedSearch(job=name, answer=answer))
        return answer


class DecisionRecorder:
    """See the module.

    Args:
        recording: what and where.
        inline: files are written in the event loop (virtual time).
        on_skipped: called for each decision that is not recorded.
    """

    def __init__(
        self,
        recording: RecordingOptions,
        *,
        inline: bool,
        on_skipped: Callable[[], None] = lambda: None,
    ) -> None:
        self._recording = recording
        self._aside = None if inline else WorkerThread("decisions")
        self._writing: set[asyncio.Task[None]] = set()
        self._on_skipped = on_skipped
        self._since_file = 0
        self._trouble = ""
        self.skipped = 0
        """Decisions that were not recorded because too many waited to be written."""

    @classmethod
    def from_options(
        cls, recording: RecordingOptions | None, *, inline: bool, on_skipped: Callable[[], None]
    ) -> DecisionRecorder | None:
        """A recorder where one is wanted."""
        if recording is None:
            return None
        return cls(recording, inline=inline, on_skipped=on_skipped)

    def record(
        self, snapshot: Snapshot, config: Config, tape: SearchRecorder, *, decision: Decision
    ) -> None:
        """Write what was decided and what it was made of, unless nothing was decided."""
        if not (self._recording.everything or decision.plan.has_effects):
            return
        inputs = DecisionInputs(
            snapshot=snapshot,
            config=config,
            failing=tape.failing,
            searches=tuple(tape.searches),
        )
        if self._aside is None:
            self._write(inputs, decision, 0)
        elif len(self._writing) >= limits.DECISIONS_WAITING_MAX:
            self._since_file += 1
            self.skipped += 1
            self._on_skipped()
        else:
            skipped, self._since_file = self._since_file, 0
            if skipped:
                _log.warning(
                    "decisions came faster than they are written: some were not recorded",
                    not_recorded=skipped, before=snapshot.revision,
                )  # fmt: skip
            job = self._aside.run(lambda: self._write(inputs, decision, skipped))
            task = asyncio.create_task(job, name="decision file")
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)

    async def wait_for_rest(self, timeout_s: float) -> None:
        """Wait until all that waits is written, for so long at most."""
        left: set[asyncio.Task[None]] = set()
        if self._writing:
            _, left = await asyncio.wait(self._writing, timeout=timeout_s)
        if left or self._since_file:
            _log.warning(
                "the last decisions were not recorded", not_recorded=len(left) + self._since_file
            )

    def stop(self) -> None:
        """The thread ends with what it still has."""
        if self._aside is not None:
            self._aside.stop()

    # -- in the thread -----------------------------------------------------------------------
    def _write(self, inputs: DecisionInputs, decision: Decision, skipped: int) -> None:
        try:
            body = pack_decision(inputs, decision.plan, faults=decision.faults, skipped=skipped)
            self._keep(body, inputs.snapshot)
        except OSError as error:
            where = self._recording.folder
            self._tell_failure(
                f"decisions cannot be recorded in {where}: {error.strerror or error}"
            )
        except Unrecordable as error:
            self._tell_failure(f"decisions cannot be recorded: {error}")
        else:
            self._trouble = ""

    def _keep(self, body: bytes, snapshot: Snapshot) -> None:
        folder = self._recording.folder
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{int(snapshot.now * 1000):013d}-{snapshot.revision:09d}{SUFFIX}"
        handle, part = tempfile.mkstemp(prefix=".", suffix=".part", dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(body)
            Path(part).replace(folder / name)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(part).unlink()
            raise
        kept = sorted(each for each in folder.iterdir() if _OURS.fullmatch(each.name))
        for old in kept[: -self._recording.last]:
            old.unlink(missing_ok=True)

    def _tell_failure(self, message: str) -> None:
        if message != self._trouble:
            self._trouble = message
            _log.warning(message)
