"""What must Jobs, ReplicaSets and Deployments say to be stored, and which of their fields may change?"""
