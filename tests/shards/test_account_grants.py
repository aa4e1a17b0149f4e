"""Users and node pools are granted by shard: only where everybody counts them, and nothing before everybody has."""

from __future__ import annotations

import pytest

from gpusched.api.meta.identity import Creator, ResourceVersion
from gpusched.api.meta.resources import Resources
from gpusched.api.queue.budget import Budget
from gpusched.api.queue.queue import Queue
from gpusched.api.queue.user_limits import NO_USER_LIMITS, RUNNING_GANGS, UserLimit, UserLimits
from gpusched.cache.part import ClusterPart
from gpusched.cache.queues.queues_here import QueuesHere
from gpusched.shards.account_grants import AccountGrants, granted_here
from gpusched.shards.accounts import (
    is_kept_in_one_shard,
    is_lasting_account,
    limits_of_account,
    users_counted,
)
from gpusched.shards.board import (
    COUNTS_ALL_SHARDS,
    COUNTS_USERS_AND_POOLS,
    FORMAT,
    Board,
    GrantRow,
    ShardEntry,
    decode_board,
    encode_board,
)
from gpusched.testing import entities
from gpusched.testing.given import Given

GPU = "nvidia.com/gpu"
ANN = "team/user/ann"


def limit(gpus=None, **counts):
    return UserLimit(resources=Resources.of({} if gpus is None else {GPU: gpus}), **counts)


def queue_with(limits=NO_USER_LIMITS, **spec):
    return Queue(
        name="team", uid=entities.uid("Queue", "team"), resource_version=ResourceVersion("1"), generation=1,
        created=0.0, user_limits=limits, **spec,
    )  # fmt: skip


def test_a_user_has_the_entry_of_the_name_else_that_of_all():
    queue = queue_with(
        UserLimits(
            per_user=limit(8),
            users={"ann": limit(16, max_running=2)},
            groups={"interns": limit(4)},
        )
    )
    assert limits_of_account(queue, ANN) == {GPU: 16, RUNNING_GANGS: 2}
    assert limits_of_account(queue, "team/user/bob/x") == {GPU: 8}
    assert limits_of_account(queue, "team/group/interns") == {GPU: 4}
    assert limits_of_account(queue, "team/group/others") == {}


def test_other_amounts_count_the_same_users_and_other_names_do_not():
    counted = users_counted(queue_with(UserLimits(per_user=limit(8))))
    assert counted == users_counted(queue_with(UserLimits(per_user=limit(16))))
    assert counted != users_counted(queue_with(UserLimits(per_user=limit(8, max_running=1))))
    assert counted != users_counted(
        queue_with(UserLimits(per_user=limit(8), users={"ann": limit(1)}))
    )
    assert users_counted(queue_with(UserLimits())) == ""


@pytest.mark.parametrize(
    ("spec", "since"),
    [
        ({}, 0),
        ({"limits": UserLimits(per_user=limit(8, max_running=2))}, COUNTS_USERS_AND_POOLS),
        ({"limits": UserLimits(per_user=limit(max_pending=2))}, COUNTS_ALL_SHARDS),
        ({"limits": UserLimits(groups={"interns": limit(max_pending=2)})}, COUNTS_ALL_SHARDS),
        ({"budget": Budget(amount=1)}, COUNTS_ALL_SHARDS),
    ],
)
def test_beside_an_earlier_version_in_the_first_shard_gangs_are_kept_there(spec, since):
    for counts in range(COUNTS_ALL_SHARDS + 1):
        assert is_kept_in_one_shard(queue_with(**spec), counts) is (counts < since)


def test_nothing_may_be_used_of_what_was_lowered_below_what_all_are_granted():
    rows = {"a": GrantRow(granted={GPU: 8}), "b": GrantRow(granted={GPU: 8})}
    board = Board(grants={ANN: rows})
    assert granted_here(ANN, {GPU: 16}, [board], ["a"]) == {GPU: 8}
    assert granted_here(ANN, {GPU: 15}, [board], ["a"]) == {GPU: 0}


class DividedPart(ClusterPart):
    """Every queue is divided between shards."""

    def queues_here(self, queues):
        """All of what each deserves."""
        return QueuesHere(shares={each.name: each for each in queues})


def entry(**more):
    return ShardEntry(holder="d", settled=True, counts=COUNTS_USERS_AND_POOLS, **more)


def asking(board, *, bounds=True, **spec):
    """What shard a writes of its grants when a gang of ann waits in it that is not preemptible."""
    c = Given()
    c.node("n", gpus=8)
    c.queue("team", **spec)
    c.group("g", queue="team", min_member=1, creator=Creator("ann"), preemptible=False)
    c.pods("g", 1, group="g", gpus=8)
    c.cache.part = DividedPart()
    snapshot = c.cache.take_snapshot(c.now)
    (gang,) = snapshot.gangs
    grants = AccountGrants()
    grants.accounts.bounds_not_preemptible = bounds
    grants.count_used(snapshot, ["a"], lambda _key: "a")
    grants.note_needs([gang], {gang.key: False}, ["a"], lambda _key: "a", board)
    return grants.settled([board], ["a"], ["a", "b"])


def granted(rows, account):
    return rows[account]["a"].granted if account in rows else {}


def test_a_capability_is_granted_when_every_shard_has_counted_the_resource():
    # given another shard that has not counted what the queue holds there
    shards = {"a": entry(), "b": entry()}
    capability = {"capability": Resources.of({GPU: 8_000})}

    # then nothing is granted, and all of it once it has
    assert granted(asking(Board(shards=shards), **capability), "team") == {GPU: 0}
    rows = {"team": {"b": GrantRow(used={GPU: 0})}}
    assert granted(asking(Board(shards=shards, grants=rows), **capability), "team") == {GPU: 8_000}


def test_a_gang_that_can_never_start_is_granted_nothing():
    board = Board(
        shards={"a": entry(), "b": entry()}, grants={"team": {"b": GrantRow(used={GPU: 0})}}
    )
    assert granted(asking(board, capability=Resources.of({GPU: 4_000})), "team") == {GPU: 0}


def test_users_are_granted_when_every_shard_that_divides_them_has_counted_the_same():
    limits = UserLimits(per_user=limit(8_000))
    counted = users_counted(queue_with(limits))
    same = {"team": {"b": GrantRow(users=counted)}}
    other = {"team": {"b": GrantRow(users="other")}}
    new, old = {"a": entry(), "b": entry()}, {"a": entry(), "b": ShardEntry(settled=True)}

    def of(shards, rows):
        return granted(asking(Board(shards=shards, grants=rows), user_limits=limits), ANN)

    assert of(new, same) == {GPU: 8_000}
    assert of(new, other) == {GPU: 0}
    assert of(new, {}) == {GPU: 0}
    # and a daemon of an earlier version starts no such gang: it need not have counted
    assert of(old, {}) == {GPU: 8_000}


LASTING = "team/lasting"


def test_what_is_not_preemptible_is_granted_what_the_queue_deserves_when_every_shard_counts_it():
    # given another shard that counts what the queue holds there, and may count what of it is not preemptible
    shards = {"a": entry(), "b": entry()}
    deserved = {"deserved": Resources.of({GPU: 16_000})}

    def of(row, **more):
        rows = {"team": {"b": GrantRow(used={GPU: 0}, **row)}, **more}
        return granted(asking(Board(shards=shards, grants=rows), **deserved), LASTING)

    # then a gang is granted what it needs once it does, and the other shard has left so much
    assert of({}) == {GPU: 0}
    assert of({"lasting": ("cpu",)}) == {GPU: 0}
    assert of({"lasting": (GPU,)}) == {GPU: 8_000}
    full = {LASTING: {"b": GrantRow(used={GPU: 12_000}, granted={GPU: 12_000})}}
    assert of({"lasting": (GPU,)}, **full) == {GPU: 4_000}


def test_no_account_of_what_is_not_preemptible_is_kept_where_it_may_borrow():
    rows = {"team": {"b": GrantRow(used={GPU: 0}, lasting=(GPU,))}}
    board = Board(shards={"a": entry(), "b": entry()}, grants=rows)
    written = asking(board, bounds=False, deserved=Resources.of({GPU: 16_000}))
    assert LASTING not in written
    assert written["team"]["a"].lasting == ()


def test_an_account_of_a_user_called_lasting_is_hers():
    assert is_lasting_account("team/lasting")
    assert not is_lasting_account("team/user/lasting")
    assert not is_lasting_account("team/user/a/lasting")
    assert not is_lasting_account("team")


def test_the_board_has_a_later_format_while_all_count_users_and_something_is_granted():
    rows = {ANN: {"a": GrantRow(granted={GPU: 8})}}
    all_count = Board(shards={"a": entry(), "b": entry()}, grants=rows)
    some_count = Board(shards={"a": entry(), "b": ShardEntry()}, grants=rows)
    none_granted = Board(shards={"a": entry()}, grants={"team": {"a": GrantRow()}})
    assert f'"format":{FORMAT}' in encode_board(all_count)
    assert '"format":1' in encode_board(some_count)
    assert '"format":1' in encode_board(none_granted)
    assert decode_board(encode_board(all_count)) == all_count
