"""Which layouts of MIG partitions would nodes need for what waits and usually comes, and what would they gain?"""
