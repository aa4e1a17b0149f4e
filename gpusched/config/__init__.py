"""What does the operator decide? The configuration file, read strictly into a frozen value; what of a changed file a running daemon takes over; the catalogue of GPU layouts beside it."""
