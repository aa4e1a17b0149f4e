"""The imperative shell: API traffic, lease, endpoints, telemetry and logs."""
