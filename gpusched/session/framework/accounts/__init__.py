"""What queues, and queues on some nodes, hold and may hold in a session."""
