"""A list that is read again takes in what it does not know yet, and nothing else: a large cluster is not read twice."""

from __future__ import annotations

import msgspec

from gpusched.cache.cache import Cache
from gpusched.config.model import DEFAULT
from gpusched.io.watch.informers import make_event_handlers
from gpusched.testing import entities


def pod(name, version):
    made = entities.pod(name, entities.pod_class(gpus=1))
    return msgspec.structs.replace(made, resource_version=version)


def test_a_list_takes_in_only_what_is_new_to_it(monkeypatch):
    # given pods that are known
    cache = Cache(DEFAULT.scheduler_names)
    handler = make_event_handlers(cache, lambda *_: None)["pods"]
    handler.replace([pod("stays", "1"), pod("changes", "2"), pod("goes", "3")])
    taken = []
    put = cache.put_pod
    monkeypatch.setattr(handler, "_put", lambda key, item: taken.append(key.name) or put(item))

    # when they are listed again
    handler.replace([pod("stays", "1"), pod("changes", "4"), pod("comes", "5")])

    # then the changed and the new one are taken in, and what is gone is dropped
    assert taken == ["changes", "comes"]
    assert sorted(key.name for key in cache.pods) == ["changes", "comes", "stays"]
