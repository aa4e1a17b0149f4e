"""Which nodes do Reservations keep, in which windows of time, and from which gangs?"""
