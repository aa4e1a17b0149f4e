"""Which types of GPUs does a gang get? What it takes, what each type costs the others that wait, and the choice."""
