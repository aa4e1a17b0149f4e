"""Which pods does a StatefulSet need next, by what name, with which claims and of which revision?

``pods`` makes them, ``revisions`` keeps their templates, ``turn`` says what is next and does it,
``controller`` watches.
"""
