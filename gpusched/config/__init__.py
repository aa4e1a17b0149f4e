"""What the operator decides: the configuration file, read strictly."""
