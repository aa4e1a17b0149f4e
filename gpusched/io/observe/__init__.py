"""How does an operator see what the daemon does? Logs, metrics, spans, endpoints, events about the daemon itself, and the watchdog of its event loop."""
