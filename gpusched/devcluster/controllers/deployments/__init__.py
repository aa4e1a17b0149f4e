"""How do Deployments and ReplicaSets keep as many pods of the right template?"""
