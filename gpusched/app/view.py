"""What people see of a daemon, wired to its parts."""

from __future__ import annotations

from collections.abc import Callable

from gpusched.api.meta.identity import ObjectKey
from gpusched.app.candidate import LeaseCandidate
from gpusched.app.options import AppOptions
from gpusched.cache.cache import Cache
from gpusched.cache.snapshot import Snapshot
from gpusched.config.model import Config
from gpusched.io.client.api_client import ApiClient
from gpusched.io.cycle.session_cycle import SessionCycle
from gpusched.io.history.played_starts import PlayedStarts, StartPlayer, StartsNotPlayed
from gpusched.io.history.told_starts import ToldStarts
from gpusched.io.serve.announcement import ViewAnnouncement
from gpusched.io.serve.publisher import ViewAddress
from gpusched.io.serve.served_view import ServedView
from gpusched.session.decide import Decision
from gpusched.session.state.plan import Plan
from gpusched.session.status.foreign_names import HideNames, hide_names
from gpusched.view.node_views import gpu_totals_view

VIEW_CONNECTIONS = 2


def make_view(
    address: ViewAddress,
    api: ApiClient,
    options: AppOptions,
    candidate: LeaseCandidate,
    *,
    ready: Callable[[], str],
    hide: HideNames,
) -> ServedView:
    """The view that a daemon serves at an address, announced beside its Lease."""
    return ServedView(
        address,
        ViewAnnouncement(
            api,
            namespace=options.config.leader_election.lease_namespace,
            lease=candidate.first_lease,
            clock=options.clock,
            create_if_missing=not api.in_cluster,
        ),
        clock=options.clock,
        daemon=options.identity,
        leading=lambda: candidate.leadership.leading,
        ready=ready,
        scheduler_names=options.config.scheduler_names,
        hide=hide,
    )


def follow_sessions(view: ServedView, cycle: SessionCycle, cache: Cache) -> None:
    """Have a view show the sessions of a new term, and nothing of terms before."""
    view.forget()
    view.gpu_totals = lambda: gpu_totals_view(cycle.gpu_gauges.counts)

    def show(snapshot: Snapshot, plan: Plan, decision: Decision) -> None:
        if not decision.ended_early:
            rules = cycle.rules
            view.session(
                snapshot,
                plan,
                decision,
                cache=cache,
                policy=rules.policy,
                session_cache=rules.session_cache,
            )

    cycle.shown.append(show)


def follow_plays(
    cycle: SessionCycle,
    told: ToldStarts,
    options: AppOptions,
    view: Callable[[], ServedView | None],
) -> StartPlayer | None:
    """Have gangs told the starts that are played beside the sessions of a term; None where nothing plays them."""
    if options.play_starts is None and options.view is None:
        return None

    async def play_in_view() -> PlayedStarts:
        served = view()
        if served is None:
            raise StartsNotPlayed("the view is not served yet, whose process would play them")
        return await served.play_starts()

    player = StartPlayer(
        options.play_starts or play_in_view,
        period_s=lambda: cycle.rules.config.cycle.play_starts_s,
        on_played=cycle.wake,
        clock=options.clock,
    )

    def note(_snapshot: Snapshot, plan: Plan, decision: Decision) -> None:
        if not decision.ended_early:
            player.note_session(plan)

    cycle.shown.append(note)
    told.played = player.fresh_starts
    return player


def hide_foreign_names(text: str, reader: str, config: Config, cache: Cache) -> str:
    """A sentence as users of one namespace may read it."""
    if config.names_of_other_namespaces == "shown":
        return text
    known = cache.namespaces.items
    return hide_names(text, reader, lambda name: ObjectKey("", name) in known)
