"""Which Reservations are there, and what is in the way of one?"""
