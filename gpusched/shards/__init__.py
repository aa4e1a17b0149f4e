"""Which daemon decides about which nodes and gangs where shards divide a cluster, and how much of a queue may it start?

``layout`` says to which shard a node belongs and where a gang begins; ``board`` is the record that all
daemons share; ``grants`` divides a queue's capability between shards; ``handover`` passes gangs on;
``part`` is what the cache of one daemon asks. All of it is pure: ``io.shards`` reads and writes.
"""
