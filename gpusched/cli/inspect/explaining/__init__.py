"""Why does it wait, what does it need, where is it? One gang, queue or node, told from the daemon's view and the API's objects."""
