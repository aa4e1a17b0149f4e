"""Where are objects stored, and how are changes of them followed? One store with one integer version over all kinds, as etcd has it, and feeds of its changes."""
