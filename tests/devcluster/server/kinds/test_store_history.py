"""The store: versions, snapshots, counts, and the end of a trimmed history."""

import pytest

from gpusched.devcluster.storage import store as module
from gpusched.devcluster.storage.store import Store


def obj(name, value=0):
    return {"metadata": {"name": name}, "value": value}


def values(found):
    return {key: stored.obj["value"] for key, stored in found}


def test_a_snapshot_is_the_past_in_key_order():
    """scan_at shows created, changed and deleted objects as they were."""
    pods = Store().collection("pods")
    pods.write("ns/a", obj("a", 1))
    pods.write("ns/c", obj("c", 1))
    then = pods.get("ns/c").version
    pods.write("ns/a", obj("a", 2))
    pods.remove("ns/c")
    pods.write("ns/b", obj("b", 1))
    assert list(values(pods.scan_at(then, "ns")).items()) == [("ns/a", 1), ("ns/c", 1)]
    assert values(pods.scan("ns")) == {"ns/a": 2, "ns/b": 1}


def test_namespaces_do_not_leak_into_one_another():
    """A namespace whose name begins with another's is not part of it."""
    pods = Store().collection("pods")
    for key in ("a/x", "a-b/x", "ab/x"):
        pods.write(key, obj("x"))
    assert list(values(pods.scan("a"))) == ["a/x"]
    assert (pods.count("a"), pods.count()) == (1, 3)
    assert pods.count("a", after="a/x") == 0


def test_one_counter_serves_all_kinds():
    """Versions grow over all collections, and a deletion takes one too."""
    store = Store()
    pods, nodes = store.collection("pods"), store.collection("nodes")
    assert pods.write("ns/a", obj("a")).version == 1
    assert nodes.write("n", obj("n")).version == 2
    assert pods.remove("ns/a").version == 3
    assert pods.since(0, 10)[-1].type == "DELETED"


def test_a_reader_behind_the_log_is_told(monkeypatch):
    """When history was trimmed past a position, the reader gets None and not a gap."""
    monkeypatch.setattr(module, "HISTORY_PER_KIND_MAX", 4)
    pods = Store().collection("pods")
    for i in range(9):
        pods.write("ns/a", obj("a", i))
    assert pods.since(0, 10) is None
    assert [c.version for c in pods.since(pods.end - 2, 10)] == [8, 9]
    assert pods.scan_at(3) is None
    assert values(pods.scan_at(6)) == {"ns/a": 5}


def test_a_pinned_place_is_never_trimmed(monkeypatch):
    """A reader in this process finds every change, however late it comes."""
    monkeypatch.setattr(module, "HISTORY_PER_KIND_MAX", 4)
    pods = Store().collection("pods")
    pin = pods.pin()
    for i in range(20):
        pods.write("ns/a", obj("a", i))
    assert len(pods.since(pin.position, 99)) == 20
    pods.unpin(pin)
    pods.write("ns/a", obj("a"))
    assert pods.since(0, 1) is None


def test_a_change_is_encoded_once():
    """Every watcher is handed the same bytes."""
    pods = Store().collection("pods")
    pods.write("ns/a", obj("a"))
    (change,) = pods.since(0, 1)
    assert change.after.raw is change.after.raw
    assert change.line.endswith(b"}\n")


@pytest.mark.parametrize("count", [1, 3])
def test_listeners_hear_every_change_until_they_stop(count):
    """A listener is called at each write and not after it stopped."""
    pods = Store().collection("pods")
    heard = []
    stop = pods.listen(lambda: heard.append(1))
    for _ in range(count):
        pods.write("ns/a", obj("a"))
    stop()
    pods.write("ns/a", obj("a"))
    assert len(heard) == count


def test_the_history_of_large_objects_is_bounded_by_their_bytes(monkeypatch):
    """A reader that is left behind finds its place gone; the newest change always stays."""
    monkeypatch.setattr(module, "HISTORY_BYTES_MAX", 10_000)
    large = Store().collection("configmaps")
    for number in range(50):
        large.write("n/a", {"metadata": {}, "data": {"x": "y" * 2_000, "n": number}})
    assert large.since(0, 100) is None
    kept = large.since(large.end - 4, 100)
    assert kept is not None
    assert [change.after.obj["data"]["n"] for change in kept] == [46, 47, 48, 49]
    assert large.since(large.end - 6, 100) is None
    large.write("n/a", {"metadata": {}, "data": {"x": "y" * 50_000}})
    assert len(large.since(large.end - 1, 100) or ()) == 1
