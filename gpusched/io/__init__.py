"""What touches the outside world? Requests, watches, the lease, files, threads, metrics and logs around the pure core; every package here answers one question of its own."""
