"""Scenarios: a cluster, a timeline and what is expected of it, played by the whole daemon.

``model`` says what a scenario is, ``read`` makes one of files, ``moments`` unrolls its timeline,
``play`` runs it on a ``ground``, ``gpusched.report.record`` is what happened, ``expect`` judges it.
"""
