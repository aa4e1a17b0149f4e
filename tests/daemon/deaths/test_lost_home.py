"""The namespace of the Lease goes while a daemon runs that made it: it is made again."""

from __future__ import annotations

LEASES = "leases.coordination.k8s.io"


def test_a_daemon_that_waits_makes_the_namespace_again(play):
    """It was made, and lost before the Lease was: by a restore, or by a person."""
    lost = []

    async def scenario(w):
        def lose(method, path):
            if method == "POST" and path.endswith("/leases") and not lost:
                lost.append(path)
                w.client.delete("namespaces", None, "gpusched-system")
                while w.client.get("namespaces", None, "gpusched-system") is not None:
                    patch = {"spec": {"finalizers": []}}
                    space = w.client.get("namespaces", None, "gpusched-system")
                    w.client.update("namespaces", {**space, **patch}, "finalize")
            return ""

        await w.start(nodes=1)
        daemon = w.daemon(fault=lose)
        await w.until(lambda: lost)
        await w.until(lambda: daemon.leading, within=30)
        w.gang("a", 1)
        await w.until(lambda: len(w.running("a")) == 1)

    play(scenario)
