"""What do people see of the cluster: which gangs wait and run, on which nodes, from which queues?

One model for the daemon's server, its page and the commands: built from a session's snapshot and
plan, or from what the API shows where there is no daemon.
"""
