"""How do programs in this process use the API? A client on the server's own verbs, a queue of work and a watch of all kinds."""
