"""Stands for the Lease of a daemon, or for those of its shards, for one term after another."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from gpusched.api.serializer.seal import KEY_BYTES
from gpusched.app.options import AppOptions
from gpusched.base.classes import frozen
from gpusched.cache.cache import Cache
from gpusched.io.client.api_client import ApiClient
from gpusched.io.leader.dead_terms import DeadTerms
from gpusched.io.leader.elector import Elector, Leadership, lease_timing
from gpusched.io.leader.gone_shards import GoneShards
from gpusched.io.leader.lease_namespace import ensure_namespace, make_namespace, run_unless_ending
from gpusched.io.leader.lone_leader import LoneLeader
from gpusched.io.leader.seal_key_copy import SealKeyCopy
from gpusched.io.leader.shard_board import BoardStore
from gpusched.io.leader.shard_keeper import ShardKeeper
from gpusched.io.observe.logs import Logger
from gpusched.io.observe.telemetry import Telemetry
from gpusched.io.watch.informer_factory import InformerFactory
from gpusched.shards.part import ShardPart

_LEASE_CONNECTIONS: Final = 2
_SHARD_CONNECTIONS: Final = 2
"""Beside one for each other shard."""
_log = Logger(__name__)


@frozen(kw_only=True)
class TermParts:
    """What a candidate reaches of the term that it stands for.

    Attributes:
        wake: has a session begin.
        lead: what a leader does from its first moment on; cancelled when it leads no longer.
    """

    cache: Cache
    readers: InformerFactory
    wake: Callable[[], None]
    lead: Callable[[Elector, SealKeyCopy], Awaitable[None]]


class LeaseCandidate:
    """See the module.

    Args:
        over: set when the term is to end; set here when the leadership is lost.
        on_restored: told in a sentence that the Lease went back in time.
        on_failed: told of a defect, and in which part.

    Attributes:
        leadership: what writers ask before each write.
        keeper: of the shards of this term; None where the configuration has none.
        lease_asked: the Lease of this term was taken or is another's, or could not be asked for.
        gives_back: whether the term ends in order because a daemon asks for a shard that it leads
            before others.
    """

    def __init__(
        self,
        options: AppOptions,
        telemetry: Telemetry,
        *,
        over: asyncio.Event,
        on_restored: Callable[[str], None],
        on_failed: Callable[[str, Exception], None],
    ) -> None:
        self._options = options
        self._telemetry = telemetry
        self._over = over
        self._on_restored = on_restored
        self._on_failed = on_failed
        self.leadership = Leadership()
        self.keeper: ShardKeeper | None = None
        self.lease_asked = asyncio.Event()
        self.gives_back = False
        self._seal_key = ""
        """The key of the seal as this process saw it last."""

    @property
    def shards(self) -> tuple[str, ...]:
        """Shards that this daemon cares for, the one first that it leads before others."""
        options = self._options
        return options.shards or tuple(each.name for each in options.config.shards)

    def lease_name(self, shard: str = "") -> str:
        """Of a daemon without shards, or of a shard."""
        name = self._options.config.leader_election.lease_name
        return f"{name}-{shard}" if shard else name

    @property
    def first_lease(self) -> str:
        """The name of the Lease without which this daemon decides nothing."""
        return self.lease_name(self.shards[0] if self.shards else "")

    async def run(self, api: ApiClient, term: TermParts) -> None:
        """Stand for the Lease, and lead for one term at most.

        Args:
            api: a client that nothing else uses; closed at the end.
            term: for whose time this daemon stands.
        """
        try:
            if not api.in_cluster:
                # Before each term: the cluster may have been made anew in the meantime.
                election = self._options.config.leader_election
                await run_unless_ending(
                    self._over,
                    ensure_namespace(api, election.lease_namespace, self._options.clock),
                )
            if not self._over.is_set():
                await self._stand(api, term)
        finally:
            self.lease_asked.set()
            await api.close()

    @property
    def connections(self) -> int:
        """How many a client needs that serves ``run``."""
        shards = len(self.shards)
        return _LEASE_CONNECTIONS + (_SHARD_CONNECTIONS + shards if shards else 0)

    async def _stand(self, api: ApiClient, parts: TermParts) -> None:
        options = self._options
        copy = SealKeyCopy(
            api,
            namespace=options.config.leader_election.lease_namespace,
            lease=self.lease_name(),
            clock=options.clock,
            create_if_missing=not api.in_cluster,
        )
        shard = f"{self.shards[0]}:" if self.shards else ""  # terms of shards are counted apart
        identity = f"{shard}{options.identity}_{options.rng.getrandbits(40):010x}"
        self.gives_back = False
        keeper = self.keeper = self._shard_keeper(api, identity, copy, parts)
        elector = self._elector(
            api, identity, copy, self.first_lease, on_refused=self.lease_asked.set
        )
        self.leadership.elector, self.leadership.others = elector, []
        term = asyncio.create_task(elector.run(), name="elector")
        lead = asyncio.create_task(self._lead(elector, copy, parts), name="lead")
        asking = asyncio.create_task(keeper.stand_by(elector)) if keeper is not None else None
        try:
            why = await term
        finally:
            self._seal_key = elector.known_key
            lead.cancel()
            term.cancel()
            if keeper is not None and asking is not None:
                asking.cancel()
                keeper.cancel()
            self._telemetry.set_leader(leading=False)
            with contextlib.suppress(asyncio.CancelledError):
                await lead
        if not self._over.is_set():
            _log.warning("leadership ended; all is read again and this process stands by", why=why)
            self._telemetry.cache_reset("leadership")
            self._over.set()

    async def _lead(self, elector: Elector, copy: SealKeyCopy, parts: TermParts) -> None:
        await elector.acquired()
        self._telemetry.set_leader(leading=True)
        await parts.lead(elector, copy)

    def _elector(
        self,
        api: ApiClient,
        identity: str,
        copy: SealKeyCopy,
        name: str,
        *,
        patience_s: float = 0.0,
        on_refused: Callable[[], None] = lambda: None,
    ) -> Elector:
        """A candidate for the Lease of this name."""
        options = self._options
        election = options.config.leader_election
        return Elector(
            api,
            identity=identity,
            namespace=election.lease_namespace,
            name=name,
            timing=lease_timing(election),
            patience_s=patience_s,
            clock=options.clock,
            create_if_missing=not api.in_cluster,
            on_restored=self._on_restored,
            create_namespace=None
            if api.in_cluster
            else lambda: make_namespace(api, election.lease_namespace),
            new_key=lambda: (options.secret or options.rng.randbytes)(KEY_BYTES).hex(),
            known_key=self._seal_key,
            key_copy=copy,
            on_refused=on_refused,
            manifests="manifests/shards, with a Lease for each shard"
            if self.shards
            else "manifests/",
        )

    def _shard_keeper(
        self, api: ApiClient, identity: str, copy: SealKeyCopy, parts: TermParts
    ) -> ShardKeeper | None:
        """Of this term; None where the configuration has no shards."""
        cache, part, clock = parts.cache, parts.cache.part, self._options.clock
        if not isinstance(part, ShardPart):
            return None
        part.identity = identity
        election = self._options.config.leader_election
        return ShardKeeper(
            part=part,
            store=BoardStore(
                api,
                namespace=election.lease_namespace,
                name=f"{election.lease_name}-shards",
                create_if_missing=not api.in_cluster,
            ),
            preferred=self.shards,
            elector_of=lambda shard: self._elector(
                api, identity, copy, self.lease_name(shard), patience_s=election.lease_duration_s
            ),
            leadership=self.leadership,
            clock=clock,
            relist=lambda least: parts.readers.ask_relist(least)(),
            use_part=lambda: part.take_effect(cache),
            changed=parts.wake,
            lost=self._over.set,
            give_back=self._give_back,
            lone_leader=LoneLeader(
                api,
                election.lease_namespace,
                election.lease_name,
                election.lease_duration_s,
                clock,
            ),
            dead_terms=DeadTerms(
                api=api,
                namespace=election.lease_namespace,
                lease_name=election.lease_name,
                lease_s=election.lease_duration_s,
                clock=clock,
            ),
            gone_shards=GoneShards(
                api=api,
                namespace=election.lease_namespace,
                lease_name=election.lease_name,
                lease_s=election.lease_duration_s,
                clock=clock,
            ),
            measured=self._telemetry.set_shards,
            failed=self._on_failed,
        )

    def _give_back(self) -> None:
        self.gives_back = True
        self._over.set()
