"""What is a scenario? Objects, a timeline of acts, workloads in short form and expectations, as data."""
