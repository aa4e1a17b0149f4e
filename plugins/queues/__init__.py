"""What is each queue due, and what may it hold? Fair shares, quotas and decayed usage."""
