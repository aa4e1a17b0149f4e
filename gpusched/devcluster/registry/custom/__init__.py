"""What does a CustomResourceDefinition declare, and what does a write to its objects have to pass?"""
