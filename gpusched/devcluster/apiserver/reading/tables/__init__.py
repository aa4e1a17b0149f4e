"""What does kubectl get print? Columns of each kind, computed on the server's side."""
