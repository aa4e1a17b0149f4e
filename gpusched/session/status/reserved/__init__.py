"""Which room is kept for gangs that wait, and which nodes for Reservations?"""
