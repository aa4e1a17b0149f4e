"""How one daemon is run."""

from __future__ import annotations

import random
from collections.abc import Callable

from gpusched.api.serializer.requests import ObjectRef
from gpusched.base.classes import frozen
from gpusched.base.clock import Clock
from gpusched.config.load import ConfigFiles, read_files
from gpusched.config.model import Config
from gpusched.io.client.credentials import CredentialSource
from gpusched.io.client.transport import Open, over_http
from gpusched.io.decisions.recorder import RecordingOptions
from gpusched.io.history.history_writer import HistoryOptions
from gpusched.io.history.played_starts import PlayStarts
from gpusched.io.serve.publisher import ViewAddress
from gpusched.placement.model.problem import SearchRunner, search_in_process


@frozen(kw_only=True)
class AppOptions:
    """How one daemon is run.

    Attributes:
        kubeconfig: None for in-cluster configuration, else the default places; or credentials.
        identity: of the process; a random part is added for each term as candidate.
        listen: hosts and ports for the endpoints, of which the first free one is taken; none
            for no endpoints.
        config_file: to be watched for changes; empty when the configuration is built in.
        read_config: reads the configuration file.
        pod: our own, for events about ourselves; None outside a cluster.
        inline: sessions run in the event loop, searches with them, and no watchdog is started
            (virtual time).
        recording: of decisions; None keeps none.
        history: where runs of gangs are kept; None keeps none.
        state_file: shows the next process what this one died of; empty for none.
        secret: makes so many secret bytes; None draws them from ``rng``, which only serves where
            nothing is forged.
        opened: makes what carries requests to the API server and answers back.
        search: runs searches of inline sessions.
        session_s: how long an inline session takes, in seconds of the clock.
        view: where a process of its own serves what people see; None serves nothing.
        play_starts: plays when gangs that wait start; None for the process that serves the view, where there is one.
        on_listed: called when everything was listed, once in each leadership.
        shards: that this daemon cares for, the one first that it leads before others; none for all of the
            configuration, in its order.
    """

    config: Config
    clock: Clock
    rng: random.Random
    kubeconfig: str | CredentialSource | None = None
    identity: str = "gpusched"
    listen: tuple[tuple[str, int], ...] = ()
    config_file: str = ""
    read_config: Callable[[str], ConfigFiles] = read_files
    pod: ObjectRef | None = None
    inline: bool = False
    recording: RecordingOptions | None = None
    history: HistoryOptions | None = None
    state_file: str = ""
    secret: Callable[[int], bytes] | None = None
    opened: Open = over_http
    search: SearchRunner = search_in_process
    session_s: Callable[[], float] = lambda: 0.0
    view: ViewAddress | None = None
    play_starts: PlayStarts | None = None
    on_listed: Callable[[], None] = lambda: None
    shards: tuple[str, ...] = ()
