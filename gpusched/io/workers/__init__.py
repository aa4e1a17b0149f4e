"""Who does work beside the event loop, and how fast? A bounded queue with fair turns, a thread that nobody waits for, the rate limiter and the back-off."""
