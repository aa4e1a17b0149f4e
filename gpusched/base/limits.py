"""Bounds that several packages share, or that input from outside meets, each with its reason.

Three kinds of bounds are elsewhere. What an operator tunes is in the configuration, in ``limits``,
``clientConnection``, ``placement``, ``cycle`` and ``leaderElection``; its default is here, under the name
that ``config.model`` says, and the range beside the reader (``config.read_limits``). A budget of one
algorithm stands beside it. What one format or protocol demands stands beside its reader.

What is here is not tuned: a bound against hostile input must hold however a cluster is configured, and a
pause or a timeout of a protocol is worked out against others, which a change of one would break.
"""

from __future__ import annotations

from typing import Final

# -- objects --------------------------------------------------------------------------------
QUANTITY_MAX: Final = 2**53
"""Base units of one quantity: sums of 512 such fit int64, and CP-SAT stays exact."""
COLUMN_MAX: Final = 2**62
"""A node column saturates here, far from int64 overflow, which numpy does not report."""
LABELS_MAX: Final = 256
"""Labels or annotations we read of one object; beyond, someone is storing data in them."""
TEXT_MAX: Final = 1024
"""Characters of a condition or event message: the API server's own cap for events."""
FOREIGN_TEXT_MAX: Final = 256
"""Characters quoted from a user's object inside our own sentences."""
GANG_PODS_MAX: Final = 10_000
"""Pods of one gang, the CRD's cap for minMember."""
GPU_TYPES_MAX: Final = 32
"""GPU types that one gang names with their speeds, the CRD's cap."""
OBJECTS_PER_KIND_MAX: Final = 200_000
"""Objects of one kind that the cache holds."""
AUDIT_SETTLE_MAX_S: Final = 3600.0
"""Longest pause between the two looks of an audit."""
QUEUE_DEPTH_MAX: Final = 8
"""Queues from the top of a tree to a leaf, both counted."""
DOMAIN_DEPTH_MAX: Final = 8
"""Levels of one topology, the CRD's cap."""
DOMAINS_PER_LEVEL_MAX: Final = 100_000
"""Domains of one level, the first by name: as many as nodes that anybody has, so that who labels
each node with values of its own does not fill tables."""
SLOTS_PER_NODE_MAX: Final = 1024
"""GPU slots named on one node; beyond, only the count is kept (bitmasks stay small)."""
KUBELET_REFUSAL_S: Final = 300.0
"""A node whose kubelet refused a pod gets no such pod for so long; twice as long each time."""
KUBELET_REFUSAL_MAX_S: Final = 3600.0
KUBELET_REFUSALS_KEPT_S: Final = 6 * 3600.0
"""Older refusals are forgotten, and do not make later ones count double."""
KUBELET_REFUSALS_PER_NODE_MAX: Final = 256
LAYOUT_LEVELS_MAX: Final = 4
"""Islands in islands: pairs in switches in sockets in a board."""
LAYOUT_TEXT_MAX: Final = 16 * 1024
"""Bytes of a layout in an annotation."""
JSON_DEPTH_MAX: Final = 64
"""Nesting we follow in an object; deeper input only serves to exhaust the stack."""
CLASS_BYTES_MAX: Final = 32 * 2**20
"""Bytes of raw specs remembered to recognise equal pods: some 30,000 templates."""

# -- watch ----------------------------------------------------------------------------------
LIST_PAGE: Final = 500
"""Objects a list page, as client-go asks: large enough for speed, small enough for memory."""
PAGES_BEFORE_PROCESSES: Final = 5
"""Pages of a list of pods that the daemon decodes itself before it starts processes for the others."""
PAGE_PROCESSES_MAX: Final = 2
"""More than that decode faster than one process can take in."""
PAGE_ANSWER_MAX_S: Final = 30.0
"""A process that has not decoded two pages after so long is of no use."""
WATCH_LINE_MAX: Final = 4 * 2**20
"""Bytes of one watch event: etcd refuses objects above 1.5 MiB."""
WATCH_WINDOW_MIN_S: Final = 60.0
WATCH_WINDOW_MAX_S: Final = 120.0
"""A server ends a watch after this long, jittered so that kinds do not reconnect together."""
WATCH_GRACE_S: Final = 15.0
"""How much longer than its window a silent stream is believed."""
WATCH_SHORT_S: Final = 5.0
"""A stream shorter than this counts as a failure for the back-off."""
COMPARE_PERIOD_S: Final = 600.0
"""Between two comparisons of the cache with a list of everything that is read: a lost event is
rare, and a list of 100,000 pods costs the API server seconds of work."""
COMPARE_TRIES_MAX: Final = 3
"""Looks of one audit at a kind whose stream is renewed under it: streams last a minute or two, so
one look in ten meets that, and waiting for the next audit would double the time of a repair."""
COMPARE_PAUSE_S: Final = 0.2
"""Between two pages of such a list, so that 100,000 pods are read within 40 s and not at once."""
COMPARE_GRACE_S: Final = 10.0
"""An event that has not come so long after the list was made is lost."""
COMPARE_CUT_PAUSE_S: Final = 240.0
"""At least between two such lists because streams were cut off: a load balancer that cuts idle
connections every minute must not cost the API server a list of all pods each time."""
RESTORE_LOOK_S: Final = 0.5
"""Between two looks at a version that is lower than one seen before: a replica that lags by as
much as that is not taken for a restored etcd, and a repair may take a minute in all."""
LIST_BEHIND_MAX_S: Final = 60.0
"""A new leader asks so long for lists no older than its Lease; then it believes what there is: the
Lease may be kept in an etcd of its own, whose versions say nothing of other kinds."""
BACKOFF_MIN_S: Final = 0.8
BACKOFF_MAX_S: Final = 30.0
DISCOVERY_PERIOD_S: Final = 30.0
"""How often is looked which kinds of other projects are served; 1 to 8 small requests."""
NOT_INSTALLED_S: Final = 5.0
"""So long a CRD of ours may be missing at the start before decisions go on without its kind: the
daemon may start while ``kubectl apply`` is still at work."""
CACHE_STALENESS_MAX_S: Final = 30.0
"""After a stream broke, decisions go on so long on the cache, then stop."""

# -- sessions and commits -------------------------------------------------------------------
SESSION_MAX_S: Final = 10.0
FRAGMENTATION_PERIOD_S: Final = 10.0
"""The metric of fragmentation is counted anew after so long: some 50 ms at 100,000 pods."""
STATUS_SESSION_DELAY_S: Final = 0.2
"""A session that only status needs is put off so long, for more of the same; while bindings wait
to be sent again and again, as it takes the processor from them."""
STATUS_SESSION_GANG_S: Final = 0.005
"""The same for each gang of which the session before told the status, where that is more: sessions that nobody's place
depends on take about a hundredth of a processor."""
STATUS_SESSION_DELAY_MAX_S: Final = 1.0
"""However many gangs wait, status is told after so long."""
STATUS_UNTOLD_MAX_S: Final = 1.5
"""While Jobs start one after the other, their sessions leave what they would tell to the one after them, which waits anew for so long
behind the first of them; then one of them tells it."""
SESSION_WORK_MAX: Final = 120_000
"""Default of ``limits.sessionWork``. Units of work, each about a microsecond, that the gangs of all tenants may come to in one action
of one session; the others are looked at by the next."""
WORK_GANG: Final = 30
"""Units for a gang that asks for no place, or is told what was found for one of its kind."""
WORK_CLASS: Final = 300
"""Units for one class of pods held against the nodes, beside what each node costs."""
WORK_NODES_A_UNIT: Final = 8
WORK_PODS_A_UNIT: Final = 8
WORK_RULES_TIMES: Final = 4
"""So much more costs a class with rules about other pods."""
WORK_STEP: Final = 150
"""Units for one place tried for a member with rules about others."""
WORK_MOMENT: Final = 50
"""Units for one moment of a search for a start in the future."""
WORK_VICTIM: Final = 4
"""Units for one victim looked at."""
WORK_SOLVER_S: Final = 1_000_000
"""Units for a deterministic second of the solver."""
PODS_COUNTED_AT_ONCE: Final = 1_000
"""Pods whose gangs are counted, some 10 ms, before the event loop goes on."""
NODES_SUMMED_AT_ONCE: Final = 100
"""Nodes of which what is held is added up, some 10 ms, before the event loop goes on."""
IDLE_GANGS_MAX: Final = 256
"""Gangs without pods that one session is shown, so that any number of them costs next to nothing."""
DEFERRED_REPORTED_MAX: Final = 256
"""Gangs that one session tells that others are before them."""
DEFERRED_REPORTED_S: Final = 5.0
"""A gang that waits so long and was never looked at is told that others are before it."""
TENANT_ROUND_PAUSE_S: Final = 1.0
"""Between two sessions of a round during which nothing has changed."""
PLAN_BINDS_MAX: Final = 5_000
"""Default of ``limits.bindsPerSession``. Bindings of one plan: a few seconds of writing, so that a plan does not go stale."""
PLAN_EVICTIONS_MAX: Final = 2_500
"""Default of ``limits.evictionsPerSession``. Evictions that one action of one session asks for: a burst that the API takes in half a minute."""
VICTIM_WORK_MAX: Final = 60_000
"""Default of ``limits.victimWork``. Victims and trials that one action looks at in one session: about half a second."""
VICTIM_TRIALS_MAX: Final = 4_000
"""Victims among which is searched by trying."""
VICTIM_MODEL_S: Final = 0.3
"""Deterministic seconds for the victims of one domain, where several are searched: medians are a tenth of it."""
BINDS_IN_FLIGHT_MAX: Final = 64
"""Default of ``limits.bindsInFlight``: an API server answers so many side by side."""
CONNECTIONS_MAX: Final = 96
"""Default of ``clientConnection.maxConnections``: bindings, other writes and a stream of each kind."""
LOG_LINES_MAX: Final = 10_000
"""Log lines that wait for their reader; at 1 KiB each these are 10 MiB."""
LOG_DRAIN_S: Final = 2.0
"""At its end the process waits so long for the reader of its log."""
OPEN_FILES_WANTED: Final = 256
"""Files and connections that the daemon may have open: both pools, the solver's pipes, scrapes."""
OPEN_FILES_MIN: Final = 64
"""With fewer the kinds could not be watched and gangs bound at the same time."""
OPEN_FILES_RESERVED: Final = 24
"""Of these a pool of connections leaves so many to the lease, the solver, files and scrapes."""
BIND_UNWATCHED_LOOK_S: Final = 0.05
"""Between two looks whether pods and nodes are followed again, for a binding that waits for it."""
BIND_TIMEOUT_SERVER_S: Final = 4.0
BIND_TIMEOUT_CLIENT_S: Final = 5.0
"""The client waits longer than the server works: an answer tells what happened."""
REQUEST_TIMEOUT_S: Final = 15.0
GANG_RECOVERY_MAX_S: Final = 120.0
"""A gang bound in part is complete or undone after so long, counted from the API's own times."""
BIND_TRIES_MAX: Final = 3
EXPECTED_PODS_MAX_S: Final = 60.0
"""Room of a Job that was started is held so long for pods that its controller has yet to make."""
ADMITTED_MAX_S: Final = 300.0
"""A Job that was started and got no place in this time is suspended again."""
ADMIT_AGAIN_S: Final = 60.0
"""After that it waits so long before it may be started again."""
ADMIT_AGAIN_MAX_S: Final = 4 * 3600.0
"""The same at most for a group whose pods do not come: it doubles with the age of the group."""
BIND_FREE_FAILURES: Final = 2
"""Commits of a gang that fail in a row before it pauses: one conflict is an everyday thing."""
BIND_PAUSE_MIN_S: Final = 1.0
"""First pause of such a gang, doubled with each failure."""
BIND_PAUSE_MAX_S: Final = 300.0
"""Longest such pause: what refuses bindings may end without an object changing."""
BIND_PAUSE_IN_PART_MAX_S: Final = 5.0
"""Longest such pause of a gang with pods bound: what it holds is of no use before it is whole."""
BIND_LAPSED_PAUSE_S: Final = 0.5
"""Pause of a gang whose commit ended as the lease may end: a renewal comes within seconds."""
BIND_PAUSES_MAX: Final = 10_000
"""Gangs of which failed commits are remembered, some 1 KB each."""
NOMINATION_MAX_S: Final = 300.0
"""Default of ``limits.nominationTimeout``. Room that is being freed stays promised so long: ten graceful ends of 30 s, one after another."""
REPAIR_ROOM_MAX_S: Final = 300.0
"""Room is held so long for members that a gang has lost and that do not exist again yet."""
MOVED_AGAIN_S: Final = 3600.0
"""Default of ``limits.movePause``. A gang that was moved is left where it is for so long."""
MOVED_AHEAD_MAX_S: Final = 60.0
"""A record of a move may be so much younger than now: clocks of two leaders differ by less."""
MOVE_RECORD_MAX: Final = 256 * 2**10
"""Bytes of the record of a move: as much as all annotations of an object may be."""
EVICTIONS_RECORDED_MAX: Final = 8
"""Evictions of a gang that are remembered on its object: enough to tell a storm, few enough for every status."""
CHARGE_RECORD_MAX: Final = 32 * 2**10
"""Bytes of the record of who pays for a pod: as many groups of a user as are read, with the longest names."""
EVICTION_RECORD_MAX: Final = 16 * 2**10
"""Bytes of the record of evictions: so many of them with the longest names."""
EVICTION_WINDOW_S: Final = 3600.0
"""Default of ``limits.evictionWindow``. Evictions of a gang within an hour belong together: what trains for less has hardly begun."""
MOVES_MAX: Final = 16
"""Gangs that are moved for one; more would cost more than one gang is worth."""
MOVES_COST_MAX_S: Final = 600
"""Work that moves may cost, unless told otherwise: as much as the gang that waits does in ten minutes."""
MOVE_TRIES_MAX: Final = 24
"""Sets of gangs that are tried for one that waits; each is proven by placing all of them."""
MOVE_GANGS_MAX: Final = 4
"""Waiting gangs for which one session looks for gangs to move."""
PREEMPTION_MAX_S: Final = 60.0
"""Victims that a disruption budget or a busy server still protects after so long are left alone,
and the room is sought elsewhere."""
PREEMPTIONS_IN_FLIGHT_MAX: Final = 16
"""Default of ``limits.preemptionsInFlight``."""
PREEMPTION_TRIES_MAX: Final = 3
PREEMPTION_RETRY_S: Final = 1.0
"""Pause before a promise or a Job's switch that was not answered, or met a change, is repeated."""
ASSUMED_MAX_S: Final = 30.0
"""What was accepted and is not shown by the watch after so long is believed no more."""
API_RATE_MAX: Final = 4_000.0
"""Requests a second; halved on 429 and grown back slowly."""
POD_EVENTS_MAX: Final = 16
"""Waiting pods of one gang that get an event of their own; the gang's object has it anyway."""
EVENT_PERIOD_S: Final = 60.0
"""One event an object and reason in this time."""
USAGE_PERIOD_S: Final = 60.0
"""What a queue used of late is remembered this often at most, and only when its share changed."""
USAGE_STEP: Final = 10**6
"""A share that changed by less, in billionths, did not change."""
STATUS_PERIOD_S: Final = 1.0
"""One status write an object in this time."""
SHUTDOWN_S: Final = 10.0
"""After SIGTERM: bindings in flight are awaited so long."""
COLLECT_AFTER_OBJECTS: Final = 20_000
"""New objects before Python looks for cycles; its own 700 are one page of pods three times."""
COLLECT_IN_PLAYS_AFTER_OBJECTS: Final = 200_000
"""The same where sessions are played: one in which gangs wait makes some 40,000, which go with it."""
COLLECT_OLDER_AFTER: Final = 50
"""Looks at new objects before one at those that outlived some: a large session has all of its own looked at again after Python's own ten, to find nothing."""
COLLECT_WHILE_LISTING_AFTER_OBJECTS: Final = 2_000_000
"""The same of a daemon that has not listed everything yet: what it makes then stays."""
CLOCK_SLACK_S: Final = 5.0
"""By so much our time may differ from what the API server's answers show before theirs is taken."""
CLOCK_LOG_PERIOD_S: Final = 600.0
"""That it did is logged this often at most."""
LOOP_BLOCKED_MAX_S: Final = 2.0
"""The event loop may stand still so long before its stack is logged: a lease retry period."""
LEASE_MAX_S: Final = 300.0
"""Longest leader lease: a successor never waits longer, whatever a broken record says."""

# -- joint admission ------------------------------------------------------------------------
BATCH_GANGS_MAX: Final = 20
"""Gangs that may move so that one more starts: with more, models are not solved in time."""
BATCH_TRIES_MAX: Final = 8
"""Windows of one session, each some 10 to 100 ms at 1,000 nodes."""
BATCH_WORK_S: Final = 1.0
"""Deterministic seconds of the solver for all windows of one session."""
BATCH_MODEL_S: Final = 0.2
"""The same for one model: medians are a fifth of it."""

# -- reservations ---------------------------------------------------------------------------
WINDOW_LENGTH_MAX_S: Final = 366 * 86_400
"""Longest window of a Reservation: what is to last longer is a taint on the nodes."""
WINDOW_LENGTH_MIN_S: Final = 60
"""Shortest window of a Reservation, and shortest time from one to the next."""
WINDOW_NAMES_MAX: Final = 1024
"""Nodes, queues or namespaces that one Reservation names, the CRD's cap."""
WINDOWS_AHEAD_MAX: Final = 64
"""Windows of one Reservation that searches for starts look ahead to; they look a day ahead anyway."""
RESERVATION_WINDOW_S: Final = 86_400
"""Starts later than in a day are not promised: too many walltimes lie between."""
RESERVATIONS_MAX: Final = 64
"""Reservations of one session, over all node pools."""
RESERVATION_WORK_MAX: Final = 20_000
"""Moments looked at for the reservations of one session, each some 0.05 ms at 1,000 nodes."""
ESTIMATE_WORK_MAX: Final = 1_000
"""The same for estimates: gangs behind them are told when they come closer."""
ESTIMATES_MAX: Final = 64
"""Default of ``limits.startEstimates``. Gangs of one session that are told when they will start: each takes milliseconds to work out."""
PLAY_STARTS_S: Final = 300.0
"""Default of ``cycle.playStarts``: a play takes seconds of another process, and what it tells changes as jobs come."""
PLAY_STARTS_MAX_S: Final = 86_400
ESTIMATES_EVERY_S: Final = 2.0
"""Between two sessions that work out when gangs are expected to start: those between them leave what was told."""
ESTIMATES_AFTER_CHANGE_S: Final = 4.0
"""The same where a session comes for a change, and others follow it at once for the rest of the line, who work them out."""
ESTIMATES_SESSION_GANG_S: Final = 0.02
"""A session of which nothing but such starts is needed comes that much later for each gang of which the one before told the
status, where that is more: sessions that are held anyway work them out on the way."""
ESTIMATES_SESSION_MAX_S: Final = 10.0
"""However many gangs wait, starts are worked out after so long."""
ESTIMATE_STEP_S: Final = 60
"""A start that moved by less is not told again."""
POSITIONS_EXACT_MAX: Final = 64
"""Places in a queue beyond this one are told in steps of it: one start moves every gang behind it."""
WALLTIME_OVERRUN_MAX_S: Final = 600
"""A gang over its walltime by this, and by the walltime itself, is taken to run for ever."""
WALLTIME_OVERRUN_STEP_S: Final = 60
"""What is over its walltime is expected to end within this time from now."""

# -- API traffic ----------------------------------------------------------------------------
LIST_TIMEOUT_S: Final = 60.0
"""One page of a list: a server under load needs long for the first, which reads everything."""
WATCH_EVENTS_PER_TURN: Final = 200
"""Events applied before other tasks get a turn of the loop: about 5 ms."""
TOKEN_AGE_MAX_S: Final = 60.0
"""A token file is read again after so long: the kubelet renews it at 80 % of its life."""
CREDENTIAL_MARGIN_S: Final = 60.0
"""An exec plugin runs again so long before its credential expires."""
CREDENTIAL_LOAD_MAX_S: Final = 10.0
"""Longest wait for an exec plugin."""
CREDENTIAL_REREAD_MIN_S: Final = 10.0
"""Least time between two readings that age, expiry or a broken certificate ask for."""
KEEPALIVE_S: Final = 60.0
"""An idle connection is kept so long: setting up TLS costs more than a socket."""
DNS_AGE_S: Final = 30
"""Seconds that an address of the API server is believed."""
POOL_WAIT_S: Final = 30.0
"""A watch waits so long for a free connection."""
READ_BUFFER_BYTES: Final = 2**18
"""Bytes read ahead on one connection: a list page arrives in few steps."""

# -- telemetry ------------------------------------------------------------------------------
QUEUE_NAMES_IN_METRICS_MAX: Final = 500
RESOURCE_NAMES_IN_METRICS_MAX: Final = 64
GPU_TYPES_IN_METRICS_MAX: Final = 64
FIELD_NAMES_IN_METRICS_MAX: Final = 256
"""Names beyond these bounds are counted together as ``other``."""
PLUGIN_NAMES_IN_METRICS_MAX: Final = 128
"""Plugins that stand under their own name; a configuration seldom names twenty."""
METRIC_ROWS_MAX: Final = 20_000
"""Rows of one metric: 501 queues times the resources or reasons there are."""
SPANS_QUEUED_MAX: Final = 2048
"""Spans waiting for a slow collector; beyond, they are dropped."""
WATCHDOG_PERIOD_S: Final = 0.5
"""How often the event loop beats and its watchdog looks."""
CONFIG_BYTES_MAX: Final = 2**20

# -- configuration and plugins --------------------------------------------------------------
CONFIG_DEPTH_MAX: Final = 16
"""Nesting of the configuration; its own needs five levels, the rest is for arguments."""
CONFIG_PROBLEMS_MAX: Final = 20
"""Problems reported of one file: more of them are the same mistake made again."""
CONFIG_NAMES_MAX: Final = 64
"""Scheduler names, actions, tiers, plugins of a tier."""
CONFIG_POLL_S: Final = 2.0
"""Between two looks at the configuration file: two equal looks make a change."""
CONFIG_LOAD_MAX_S: Final = 60.0
"""Loading what a changed configuration names: imports of plugins, seconds where they are slow."""
DEBOUNCE_MAX_S: Final = 5
"""Waiting longer for more events would be felt by a person who submits one job."""
CYCLE_PERIOD_MAX_S: Final = 600
LEASE_DURATION_MAX_S: Final = 3600
SOLVER_WORKERS_MAX: Final = 64
SOLVER_SOFT_S: Final = 0.5
"""Beyond the time budget: searches in the solver's process end then with what they have."""
SOLVER_HARD_S: Final = 0.9
"""Beyond the time budget: the process is given up. With what is done around it, a second."""
SOLVER_START_MAX_S: Final = 10.0
"""Until a process has loaded the solver: half a second on an idle machine with a warm disk."""
SOLVER_MEMORY_MAX: Final = 2 << 30
"""Bytes that the solver's process may hold, half of what the Deployment's container may; 226 MB
were seen."""
SOLVER_ANSWER_MAX: Final = 1 << 28
"""Bytes of one answer; counts of 10,000 pods on 10,000 nodes are a tenth of it."""
SOLVER_LOSSES_MAX: Final = 3
"""Processes lost in a row, after which none is started for a time."""
SOLVER_LOSSES_OF_JOB_MAX: Final = 2
"""A search that cost so many processes is not tried again."""
SOLVER_COSTLY_JOBS_MAX: Final = 256
"""Searches that are remembered for that."""
SOLVER_PAUSE_MIN_S: Final = 5.0
SOLVER_PAUSE_MAX_S: Final = 300.0
"""The solver is left alone for the shorter time at first, then for twice as long each time."""
SOLVER_MESSAGES_MAX: Final = 256
"""Sentences of its faults that are remembered, so that each is told once."""
SOLVER_DUMPS_MAX: Final = 8
"""Stories of faults of the solver that one daemon tells in full."""
PLUGIN_FAULTS_MAX: Final = 10
"""A hook that failed so often in a row is quarantined: it refuses without being called."""
PLUGIN_NEW_TRIES: Final = 32
"""Calls of a quarantined hook in one session, each for something that it did not fail for yet."""
PLUGIN_SUBJECTS_MAX: Final = 1_000
"""Names remembered of what a hook failed for."""
PLUGIN_SLOW_S: Final = 1.0
"""A hook that takes so long in one session is named in the log."""
PLUGIN_STUCK_S: Final = 10.0
"""One call of one hook for so long: the watchdog says which and where it is."""
PLUGIN_STUCK_MAX_S: Final = 60.0
"""One call for so long never comes back: the process ends, so that a new one can start."""

# -- commits and status -----------------------------------------------------------------------
BIND_RETRY_S: Final = 0.25
"""Before the second try of a binding; doubled for the third: a stale server cache recovers."""
READ_RETRY_S: Final = 1.0
"""Between two read-backs of one pod: its slots stay assumed until one is answered."""
EVICTIONS_IN_FLIGHT_MAX: Final = 8
"""Default of ``limits.evictionsInFlight``: evictions are few, and each waits for a budget's controller."""
EVICT_RETRY_MIN_S: Final = 2.0
EVICT_RETRY_MAX_S: Final = 30.0
"""Pauses after a disruption budget refused: it opens when other pods become ready."""
COMMIT_STORY_MAX: Final = 32
"""Noteworthy steps of a gang kept for the story of a broken invariant."""
STATUS_IN_FLIGHT_MAX: Final = 8
"""Default of ``limits.statusWritesInFlight``."""
STATUS_QUEUE_MAX: Final = 50_000
"""Status writes that wait; what finds no room is said again by a later session."""
EVENTS_IN_FLIGHT_MAX: Final = 2
"""Default of ``limits.eventsInFlight``: events must not take turns from what they tell of."""
EVENT_QUEUE_MAX: Final = 8_000
"""Events that wait; beyond, the oldest is dropped and counted."""
REPORTED_OBJECTS_MAX: Final = OBJECTS_PER_KIND_MAX
"""Objects of which is remembered what was told about them."""

# -- search ---------------------------------------------------------------------------------
POD_RULES_STEPS_MAX: Final = 600
"""Places tried for one gang whose members have rules about each other: a tenth of a second."""
POD_RULES_SESSION_STEPS_MAX: Final = 6_000
"""The same for all gangs of one session: a long wait must not make every cycle slow."""
POD_RULES_DOMAINS_MAX: Final = 32
"""Domains of one topology key in which such a gang is tried one after another."""

# -- the log of decisions -------------------------------------------------------------------
DECISION_LINE_RATE: Final = 50
"""Default of ``limits.decisionLineRate``. A person reads fewer; ten seconds' worth may come at once."""

# -- the history ------------------------------------------------------------------------------
HISTORY_ROWS_WAITING_MAX: Final = 50_000
"""Records that wait to be written, some 1 KB each: five for each gang of the largest cluster."""
HISTORY_RETRY_S: Final = 30.0
"""So long after it could not be written the file is tried again."""
HISTORY_STOP_S: Final = 3.0
"""So long the end of the daemon waits for the last records: the grace of its pod has room for it."""
HISTORY_SWEEP_S: Final = 600.0
"""Between two deletions of old records."""
HISTORY_CHECKPOINT_S: Final = 60.0
"""So often what a running gang holds is written: as much is not known when the process dies."""
HISTORY_CHECKPOINTS_MAX: Final = 200
"""Records of running gangs that one session writes anew: some 2 ms."""
HISTORY_JOURNAL_BYTES_MAX: Final = 16 * 2**20
"""Bytes that the file's journal keeps when it is empty."""
HISTORY_KEPT_S: Final = 30 * 86_400
"""Default of ``history.keep``: a month, after which sums are in the reports of those who need them."""
HISTORY_ROWS_MAX: Final = 1_000_000
"""Default of ``history.maxRows``."""
HISTORY_PAGE_MAX: Final = 10_000
"""Records of one answer."""

# -- volumes --------------------------------------------------------------------------------
VOLUMES_WAIT_S: Final = 600.0
"""Default of ``limits.volumeTimeout``. So long a gang holds its places while its volumes are made, as long as kube-scheduler waits."""
VOLUMES_LOOK_S: Final = 5.0
"""So often it is looked whether pods, claims and leadership are still what they were."""

# -- files of clusters and decisions ---------------------------------------------------------
SNAPSHOT_LINE_MAX: Final = 8 * 2**20
"""Bytes of one object in the file of a recorded cluster: more than an API server stores."""
DECISION_BYTES_MAX: Final = 2 * 2**30
"""Bytes of the file of one decision, unpacked: several times that of the largest cluster."""

# -- scenarios -------------------------------------------------------------------------------
SCENARIO_FILE_BYTES_MAX: Final = 16 * 2**20
"""One file of a scenario: 20,000 nodes written out."""
SCENARIO_COUNT_MAX: Final = 100_000
"""Repeats of one entry of a timeline, and nodes or pods that one line asks for."""
SCENARIO_MOMENTS_MAX: Final = 1_000_000
"""Moments of one timeline: they are kept in memory, some 2 KB each."""
SCENARIO_LIMIT_MAX_S: Final = 366 * 86_400
"""Longest simulated time: a year of a trace."""
SCENARIO_LOST_S: Final = 60.0
"""A real cluster that does not answer for so long is lost: a restart of its server takes less."""
SCENARIO_SEED_MAX: Final = 2**31 - 1
"""Seeds of scenarios and of their entries."""
TRACE_BYTES_MAX: Final = 512 * 2**20
"""A file of a trace, unpacked: four times the whole Philly log. Its rows take ten times that in memory."""
TRACE_DAYS_MAX: Final = 3660
"""Days over which the jobs of a trace come: ten years."""
GENERATED_JOBS_MAX: Final = 1_000_000
"""Jobs that are made up at once: the Philly log has 117,325."""
SWEEP_FILE_BYTES_MAX: Final = 2**20
"""A file that describes a sweep."""
SWEEP_POINTS_MAX: Final = 10_000
"""Points of a sweep, unless its user asks for more: a day of two cores at 17 s a point."""
SWEEP_VALUES_MAX: Final = 1_000
"""Values of one key, and seeds, that a range makes."""

# -- containment of faults in sessions ---------------------------------------------------------
CONTAIN_TRIES_MAX: Final = 64
"""Attempts at one session in which the objects that make it raise are looked for."""
CONTAIN_WORK_MAX: Final = 100_000
"""The same as gangs and nodes gone through: sessions of large clusters are tried less often."""
CONTAIN_TRIES_MIN: Final = 16
"""A search by halves among 10,000 gangs takes fourteen attempts."""
SET_ASIDE_RETRY_S: Final = 600.0
"""After it, an object that was set aside is tried again although it did not change."""
SET_ASIDE_RETRY_MAX_S: Final = 4 * 3600.0
"""The same at most: it doubles with each time that it failed again."""
SET_ASIDE_MAX: Final = 1_000
"""Objects that are remembered as set aside; one more makes sessions plainer instead."""
DEGRADED_RETRY_S: Final = 60.0
"""After it, a session that was made plainer is tried in full again."""
DEGRADED_RETRY_MAX_S: Final = 900.0
"""The same at most: it doubles with each time that it failed again."""
HOOK_FAULTS_HEARD_MAX: Final = 64
"""Faults of hooks in one session of which is remembered what they were asked about."""
HOOK_SUSPECTS_MAX: Final = 32
"""Objects of one session that are set aside for one hook: beyond, it is the hook."""
HOOK_TRIES_MIN: Final = 8
"""Attempts at one session of a large cluster in which objects are found for which hooks fail."""
ONE_BY_ONE_MAX: Final = 64
"""Gangs that are tried in one session where each is decided alone."""
ONE_BY_ONE_FAULTS_MAX: Final = 3
"""Gangs in a row that fail alone, after which it is not the gangs."""
FAULT_STORY_MAX: Final = 16 * 1024
"""Characters of a stack that is kept of a contained fault."""
FAULT_DUMPS_MAX: Final = 32
"""Dumps of contained faults that one daemon writes."""
FAULT_DUMP_BYTES_MAX: Final = 4 * 2**20
"""Bytes of one such dump; of a larger object only the stack is kept."""
DECISIONS_WAITING_MAX: Final = 16
"""Decisions that wait to be written into files: snapshots share what did not change between
them, and 16 of 2,500 nodes and 10,000 pods are 11 s of writing."""
COMMAND_TRIES_MAX: Final = 6
"""How often a command asks a server that says it is busy: a new kind's first seconds fit in."""
COMMAND_WAIT_S_MAX: Final = 5.0
"""Longest wait between two of them, whatever the server asks for: a person waits there."""
BUNDLE_LOG_LINES_MAX: Final = 50_000
BUNDLE_LOG_BYTES_MAX: Final = 2**24
"""Of the log of one process that a bundle takes: the last lines, of 16 MiB at most."""
BUNDLE_DECISIONS_BYTES_MAX: Final = 2**27
"""Of recorded decisions that a bundle takes, the newest first: 128 MiB."""
STATE_FILES_MAX: Final = 8
"""Processes of one name on one machine that each have a state file of their own."""
CRASHES_FORGOTTEN_S: Final = 300.0
"""Full sessions for so long, after which earlier deaths of the process are forgotten."""
CRASHES_OF_GANG_MAX: Final = 2
"""Processes that died with one gang in hand, after which the next begins without it."""
