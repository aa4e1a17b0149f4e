"""What does the command line share with kubectl and with people's shells? Options anywhere, and completion."""
