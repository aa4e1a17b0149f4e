"""Which kinds and fields make up Kubernetes' own gangs, behind which gates, and what may they hold?

``features`` says what is switched on, ``declarative`` runs rules over an object, ``rules`` has
those of each release, ``strategies`` are the kinds, ``kinds`` what discovery tells of them.
"""
