"""Which kinds are stored without any effect of their own? Services, events, config maps, secrets, volumes, templates."""
