"""How are gangs made of what other projects' objects and pods say?"""
