"""Where things sit: domains between nodes, islands of GPUs inside one."""
