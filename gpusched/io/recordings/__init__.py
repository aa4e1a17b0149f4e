"""How is a cluster recorded into a file? Every kind that the daemon reads, less what nothing decides on, with pseudonyms on request; and such a file is read again."""
