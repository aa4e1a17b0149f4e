"""Objects drawn from a seed and put through whole sessions, with every action on."""
