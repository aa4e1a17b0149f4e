"""What belongs to a bug report? One file with snapshot, decisions, logs, configuration and metrics, without secrets and environment, and with a list of what it lacks."""
