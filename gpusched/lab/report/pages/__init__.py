"""How is a run shown as one HTML file? Parts, frame, style sheet and script; one run, several compared, or the list of runs."""
