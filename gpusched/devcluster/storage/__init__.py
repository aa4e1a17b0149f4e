"""Where do objects live, and who is told of a change? One store with one integer version over all kinds, as etcd has it, and feeds of its changes."""
