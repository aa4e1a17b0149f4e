"""Which devices do fake nodes have, and how do their drivers publish them?"""
