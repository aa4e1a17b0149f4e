"""How does a cluster fare under the daemon's decisions over months? A discrete-event simulation without server or daemon, fed by traces or snapshots."""
