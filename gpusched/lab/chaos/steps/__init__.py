"""What does each step of a chaos script do, and which API objects does it make?"""
