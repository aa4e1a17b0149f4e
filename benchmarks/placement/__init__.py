"""Quality and speed of placement: tables over seeds, greedy beside them."""
