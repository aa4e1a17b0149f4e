"""What do tables of victims rest on? What queues may lose, and pods that are worked out once for all claimants."""
