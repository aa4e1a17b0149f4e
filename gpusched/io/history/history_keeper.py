"""What the daemon has of the history: it follows the gangs of a term, counts, and has runs written."""

from __future__ import annotations

from collections.abc import Callable

from gpusched.api.devices.gpu_types import gpu_type_of
from gpusched.api.meta.gpu_resources import gpu_resources
from gpusched.api.meta.identity import GangKey
from gpusched.base import limits
from gpusched.base.clock import Clock
from gpusched.cache.cache import Cache
from gpusched.cache.gangs.gang import Gang
from gpusched.io.history.gang_lives import GangLives
from gpusched.io.history.gang_run import STILL_OPEN, GangRun
from gpusched.io.history.history_writer import HistoryOptions, HistoryWriter
from gpusched.io.history.told_starts import ComparedStart, ToldStart, ToldStarts
from gpusched.io.observe.telemetry import Telemetry
from gpusched.session.state.plan import GangStop, Plan


class HistoryKeeper:
    """See the module. One for each daemon; metrics are counted without a file, too.

    Args:
        options: the file; None for none.
        clock: time.
        telemetry: counts.
        inline: the file is written in the event loop (virtual time).
        on_compared: called with each start that is compared with what was told of it.
    """

    def __init__(
        self,
        options: HistoryOptions | None,
        *,
        clock: Clock,
        telemetry: Telemetry,
        inline: bool,
        on_compared: Callable[[ComparedStart], None] = lambda _compared: None,
    ) -> None:
        self._on_compared = on_compared
        self.told_starts = ToldStarts(self._compared)
        """What gangs of this term were told of their starts."""
        self._clock = clock
        self._telemetry = telemetry
        self._began = clock.now()
        self._writer = HistoryWriter(options, clock, inline=inline) if options else None
        if self._writer is not None:
            telemetry.show_history(self._writer)
        self._lives: GangLives | None = None
        self._asked = False
        self._resumed = False
        """Whether the names of runs that have not ended are known: before, a run may turn out to be an old one."""

    def begin_term(self, cache: Cache) -> None:
        """Follow the gangs of a cache that knows nothing yet."""
        self.end_term()
        self.told_starts = ToldStarts(self._compared)

        def gpu_type(name: str) -> str:
            node = cache.rows.get(name)
            return gpu_type_of(node.labels, gpu_resources()) if node is not None else ""

        self._lives = lives = GangLives(self, gpu_type, began=self._began)
        self._asked = self._resumed = False

        def counted(key: GangKey, family: tuple[Gang, ...]) -> None:
            lives.counted(key, family, self._clock.now())

        cache.families.on_counted.append(counted)

    def decided(self, plan: Plan) -> None:
        """A session has ended: remember for whom gangs leave, and write what is due."""
        lives, writer, now = self._lives, self._writer, self._clock.now()
        if lives is None:
            return
        lives.decided(plan)
        lives.checkpoint(
            now, older_than_s=limits.HISTORY_CHECKPOINT_S, most=limits.HISTORY_CHECKPOINTS_MAX
        )
        if writer is None:
            return
        if not self._asked:
            self._asked = True
            writer.ask_open_runs()
        writer.flush()
        recorded = writer.take_open_runs()
        if recorded is not None:
            self._resumed = True
            lives.resume(recorded, now)
            writer.flush()

    def stopped(self, stop: GangStop) -> None:
        """The first member of a gang was made to leave."""
        if self._lives is not None:
            self._lives.stopped(stop)

    def end_term(self) -> None:
        """What is followed is written as it stands; the next term goes on with it."""
        if self._lives is not None:
            now = self._clock.now()
            self._lives.write_all(now)
            self._lives, self._began = None, now

    def stop(self) -> None:
        """The daemon ends: the file is closed when all is in it."""
        self.end_term()
        if self._writer is not None:
            self._writer.stop(limits.HISTORY_STOP_S)

    # -- what is new of runs -------------------------------------------------------------------
    def write(self, run: GangRun) -> None:
        """A run is new, or has changed."""
        first = None if run.told_at else self.told_starts.first_told(run.gang, run.uid)
        if first is not None:
            run.told_at, run.first_start = first.at, first.start
        if self._writer is not None and (self._resumed or run.ended < STILL_OPEN):
            self._writer.put(run)

    def started(self, run: GangRun) -> None:
        """A run that was seen waiting has started."""
        self._telemetry.gang_waited(run.queue, max(0.0, run.started - run.since))
        earlier = ToldStart(at=run.told_at, start=run.first_start) if run.told_at else None
        run.estimate_change = self.told_starts.last_change(run.gang, run.uid) or run.estimate_change
        compared = self.told_starts.compare_start(
            run.gang, run.uid, queue=run.queue, since=run.since, started=run.started,
            earlier=earlier,
        )  # fmt: skip
        run.estimate_moves += compared.moves
        if compared.first is not None:
            run.told_at, run.first_start = compared.first.at, compared.first.start
        if compared.half is not None:
            run.half_start, run.known_by = compared.half.start, compared.half.known_by
            run.earliest_start, run.latest_start = compared.half.earliest, compared.half.latest

    def _compared(self, compared: ComparedStart) -> None:
        told = compared.half
        if told is None:
            self._telemetry.start_untold(compared.queue)
        else:
            error_s = abs(compared.started - told.start)
            self._telemetry.start_compared(
                compared.queue, told.known_by, error_s=error_s, wait_s=compared.wait
            )
            if compared.in_range is not None:
                self._telemetry.start_ranged(compared.queue, held=compared.in_range)
        self._on_compared(compared)

    def ended(self, run: GangRun) -> None:
        """A run has ended before our eyes."""
        self.told_starts.forget(run.gang, run.uid)
        if run.started:
            self._telemetry.gang_ran(run.queue, run.outcome, max(0.0, run.ended - run.started))

    def evicted(self, run: GangRun, pods: int) -> None:
        """Members were made to leave."""
        self._telemetry.gang_evicted(run.queue, pods)

    def add_held_time(self, queue: str, gpu_type: str, gpu_seconds: float) -> None:
        """GPUs were held by a gang since this was told of it last."""
        self._telemetry.gpus_held(queue, gpu_type, gpu_seconds)
