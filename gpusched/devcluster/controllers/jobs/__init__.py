"""Which pods does a Job need next, and when has it failed or completed?"""
