"""How are numbers drawn? Axes, legends and shapes as SVG; the Gantt chart, use over time, waiting times."""
