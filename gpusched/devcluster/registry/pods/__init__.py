"""What must a pod or a pod template say to be stored, and which of its fields may change?"""
