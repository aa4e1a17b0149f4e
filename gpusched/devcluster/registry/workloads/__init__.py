"""What must Jobs, ReplicaSets, StatefulSets and Deployments say to be stored, and which of their fields may change?"""
