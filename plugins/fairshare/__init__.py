"""Fair shares: what each queue is due, who is served first by it, and who must give back."""
