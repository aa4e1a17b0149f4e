"""What do queues and gangs wait for? Commands that read the cluster's objects and print them; nothing is decided again here."""
