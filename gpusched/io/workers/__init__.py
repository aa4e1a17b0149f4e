"""What does work beside the event loop, and how fast? A bounded queue that serves tenants in turn, a thread whose end is not awaited, the rate limiter and the back-off."""
