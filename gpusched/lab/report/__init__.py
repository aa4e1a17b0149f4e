"""What happened in a run, the numbers that follow from it, and the page that shows it. Pure: no clock, no network; only write_report touches files."""
