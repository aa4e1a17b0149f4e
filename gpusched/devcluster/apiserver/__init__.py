"""How is a request for a resource answered? Authorization, admission, the verbs that read and write, and the client of this process."""
