"""How does the view reach people: a process of its own serves it over HTTP, and the daemon feeds it."""
