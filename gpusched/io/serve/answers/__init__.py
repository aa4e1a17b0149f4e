"""What is answered beside the view itself? The past, questions of what would happen, and the description of all that is served."""
