"""How is any object named, and in which units are its amounts counted? Keys, provenance, exact quantities, durations, and the codec that turns pages and watch events into entities."""
