"""What may people do with a gang? Hold and release, requeue, suspend and resume it, and move it to another queue."""
