"""How do requests reach the API server? The socket, HTTP and its in-process twin, fault rules before the verbs."""
