"""Which devices are there, who has them, and what does a gang's claim wait for?"""
