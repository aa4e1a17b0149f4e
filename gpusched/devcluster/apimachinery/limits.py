"""Bounds of the embedded cluster with their reasons; where a real API server has one, it is the same."""

from __future__ import annotations

from typing import Final

# -- stored history ----------------------------------------------------------------------------
HISTORY_PER_KIND_MAX: Final = 20_000
"""Changes of one kind that watches and past lists can still see: etcd's five minutes at 60/s."""
HISTORY_BYTES_MAX: Final = 64 * 2**20
"""JSON of the changes of one kind that are kept, whatever their number; decoded it is thrice that."""
HISTORY_SLACK: Final = 1.125
"""How far a history may grow beyond its limits before it is cut back to them."""
SNAPSHOTS_MAX: Final = 16
"""Named states of a cluster kept in memory."""

# -- requests ----------------------------------------------------------------------------------
BODY_BYTES_MAX: Final = 3 * 2**20
"""Request body a real API server accepts."""
HEAD_BYTES_MAX: Final = 2**20
"""Request line or one header field: what Go's server reads of a head altogether."""
HEADER_WAIT_S: Final = 32.0
"""Seconds after which a client without a whole request head is cut off, as by a real server."""
BODY_WAIT_S: Final = 60.0
"""Seconds after which a request body must be whole: a real server's time for a whole request."""
GZIP_FROM_BYTES: Final = 128 * 2**10
"""Answers from this size on are packed for clients that take it, as a real server does."""
YAML_DEPTH_MAX: Final = 500
"""Nesting of a YAML body; the parser recurses on the machine's stack, which ends without a word."""
YAML_NODES_MAX: Final = 400_000
"""Values of a YAML body after its aliases are followed: from there on they are an attack."""
JSON_PATCH_OPERATIONS_MAX: Final = 10_000
"""Operations of one JSON patch: the API server's own bound."""
LIST_CONTINUE_MAX: Final = 4096
"""Characters of a continue token that we try to read."""

# -- watches -----------------------------------------------------------------------------------
WATCH_BATCH_MAX: Final = 512
"""Changes written to one watcher in one go, so that a busy kind does not starve the loop."""
BOOKMARK_PERIOD_S: Final = 60.0
"""Seconds between the bookmarks that bring a quiet watch to the current version."""
LAGGING_CHUNKS_MAX: Final = 1024
"""Chunks of one watch that a lag holds; beyond, the watch itself is held."""

# -- caches ------------------------------------------------------------------------------------
FIELD_SHAPES_MAX: Final = 4096
"""Sets of fields kept for managedFields: objects of one shape share one."""
POD_SPECS_KNOWN_MAX: Final = 4096
"""Specs of pods remembered to be without a fault, each by 16 bytes."""
STAGE_READINGS_MAX: Final = 4096
"""Answers kept of one stage expression, by the fields it read; beyond, it starts over."""

# -- clock and faults --------------------------------------------------------------------------
STEP_TURNS_MAX: Final = 100_000
"""Turns of the loop that one moment of a stepped clock may take: endless work is left behind."""
STEP_MAX_S: Final = 7 * 86_400.0
"""Longest step of a paused clock."""
CLOCK_RATE_MAX: Final = 1000.0
"""Fastest a cluster's clock runs."""
FAULT_RULES_MAX: Final = 256
"""Fault rules at a time: each request is held against all of them."""
FAULT_DELAY_MAX_S: Final = 3600.0
"""Longest delay or lag that a fault rule may ask for."""
FAULT_FILE_BYTES_MAX: Final = 2**20
"""Bytes of one file of fault rules: as many rules as are allowed need a tenth of it."""
SERVER_DOWN_MAX_S: Final = 3600.0
"""Longest time a restarting server stays away."""
