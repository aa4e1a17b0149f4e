"""What is written of claims before a gang is bound? Volumes get their nodes, devices their claims."""
